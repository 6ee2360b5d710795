package pgtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// StandbyName is the name of a standby for its primary, for synchronous_standby_names.
const StandbyName = "asyncflow_standby"

// Standby starts a standby of a running server. SELECT pg_promote() on it promotes it.
func Standby(t testing.TB, primary *devpg.Server) *devpg.Server {
	t.Helper()
	dir := Backup(t, primary)
	touch(t, dir, "standby.signal")
	return Server(t, devpg.Config{DataDir: dir, BinDir: primary.Config().BinDir,
		Settings: map[string]string{
			"primary_conninfo": primary.URL("") + "&application_name=" + StandbyName,
		}})
}

// Restore starts a server on the backup of a lost one, at the same address. Postgres recovers
// the backup, and goes on in another timeline.
func Restore(t testing.TB, backup string, lost *devpg.Server) *devpg.Server {
	t.Helper()
	touch(t, backup, "recovery.signal")
	return Server(t, devpg.Config{DataDir: backup, BinDir: lost.Config().BinDir,
		Port: lost.Config().Port, Settings: map[string]string{
			"restore_command": "false",
		}})
}

// RestoreBy starts a server on a data directory that restore fills, at the address of a lost one.
// The directory holds settings of its own, as in postgresql.auto.conf.
func RestoreBy(t testing.TB, lost *devpg.Server, restore func(pgdata string)) *devpg.Server {
	t.Helper()
	dir := Dir(t)
	pgdata := filepath.Join(dir, "pgdata")
	restore(pgdata)
	from := lost.Config().DataDir
	password, err := os.ReadFile(filepath.Join(from, "password"))
	if err != nil {
		t.Fatalf("pgtest: restore: %v", err)
	}
	if err = os.WriteFile(filepath.Join(dir, "password"), password, 0o600); err != nil {
		t.Fatalf("pgtest: restore: %v", err)
	}
	if err = chownLike(pgdata, filepath.Join(from, "pgdata")); err != nil {
		t.Fatalf("pgtest: restore: %v", err)
	}
	return Server(t, devpg.Config{DataDir: dir, BinDir: lost.Config().BinDir,
		Port: lost.Config().Port})
}

// Backup takes a backup of a running server, and returns it as the data directory of another one.
// It copies the files itself: pg_basebackup is not in all installations.
func Backup(t testing.TB, primary *devpg.Server) (dir string) {
	t.Helper()
	dir = Dir(t)
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := backup(ctx, primary, dir); err != nil {
		t.Fatalf("pgtest: backup of %s: %v", primary.Config().DataDir, err)
	}
	return dir
}

// backup copies the files of a running server. Changes during the copy are in the write-ahead
// log, which is copied again at the end.
func backup(ctx context.Context, primary *devpg.Server, dir string) error {
	conn, err := pgx.Connect(ctx, primary.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `SELECT pg_backup_start('pgtest', true)`); err != nil {
		return err
	}
	from := filepath.Join(primary.Config().DataDir, "pgdata")
	to := filepath.Join(dir, "pgdata")
	if err := copyTree(from, to, true); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx,
		`SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
		return err
	}
	password, err := os.ReadFile(filepath.Join(primary.Config().DataDir, "password"))
	return errors.Join(err,
		copyTree(filepath.Join(from, "pg_wal"), filepath.Join(to, "pg_wal"), true),
		os.WriteFile(filepath.Join(to, "backup_label"), []byte(label), 0o600),
		os.WriteFile(filepath.Join(dir, "password"), password, 0o600),
		chownLike(to, from))
}

// copyTree copies a directory, except for files that mark a running server. If the server is
// running, files may disappear meanwhile: then these are left out, too.
func copyTree(from, to string, running bool) error {
	gone := func(err error) bool { return running && errors.Is(err, fs.ErrNotExist) }
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if gone(err) || strings.HasPrefix(filepath.Base(name), "postmaster.") {
			return nil
		} else if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.TrimPrefix(name, from))
		if entry.IsDir() {
			return os.MkdirAll(copied, 0o700)
		}
		data, err := os.ReadFile(name)
		if gone(err) {
			return nil
		}
		return errors.Join(err, os.WriteFile(copied, data, 0o600))
	})
}

// touch creates an empty file in a cluster, which tells Postgres how to start.
func touch(t testing.TB, dir, name string) {
	t.Helper()
	pgdata := filepath.Join(dir, "pgdata")
	err := os.WriteFile(filepath.Join(pgdata, name), nil, 0o600)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if err = chownLike(filepath.Join(pgdata, name), pgdata); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}

// chownLike gives a file, or a directory with its contents, to the owner of another one, if
// permitted.
func chownLike(path, like string) error {
	info, err := os.Stat(like)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, int(owner.Uid), int(owner.Gid))
	})
}
