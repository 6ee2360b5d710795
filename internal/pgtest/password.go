package pgtest

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// checkPasswordsByMD5 makes the logins of a new server's superuser cheap. SCRAM, the default, costs
// both ends so much on purpose that it was a quarter of a connection, and a test opens several. The
// password stays, and so does SCRAM for the roles that tests create.
func checkPasswordsByMD5(ctx context.Context, server *devpg.Server) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := allowMD5(ctx, conn, server); err != nil {
		return fmt.Errorf("pg_hba.conf of %s: %w", server.Config().DataDir, err)
	}
	cfg := conn.Config()
	hash := md5.Sum([]byte(cfg.Password + cfg.User))
	_, err = conn.Exec(ctx, fmt.Sprintf(`ALTER ROLE CURRENT_USER PASSWORD 'md5%x'`, hash))
	return err
}

// allowMD5 makes the server accept either kind of password, and returns when it does.
func allowMD5(ctx context.Context, conn *pgx.Conn, server *devpg.Server) error {
	name := filepath.Join(server.Config().DataDir, "pgdata", "pg_hba.conf")
	rules, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	rules = bytes.ReplaceAll(rules, []byte("scram-sha-256"), []byte("md5"))
	if err := os.WriteFile(name, rules, 0o600); err != nil {
		return err
	}
	var before time.Time
	if err := conn.QueryRow(ctx, `SELECT pg_conf_load_time() FROM pg_reload_conf()`).
		Scan(&before); err != nil {
		return err
	}
	for {
		loaded, err := loadedSince(ctx, server, before)
		if loaded || err != nil {
			return err
		}
	}
}

// loadedSince reports whether the server read its configuration since a time. It asks in a new
// session: that knows what the main process read.
func loadedSince(ctx context.Context, server *devpg.Server, before time.Time) (bool, error) {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var at time.Time
	err = conn.QueryRow(ctx, `SELECT pg_conf_load_time()`).Scan(&at)
	return at.After(before), errors.Join(err, ctx.Err())
}
