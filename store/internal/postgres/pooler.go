package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
)

// isDirect is a condition that holds when nothing stands between this machine and the server. A
// pooler gives its clients numbers of processes that the server doesn't have.
func isDirect(conn *pgconn.PgConn) string {
	return fmt.Sprintf("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %d", conn.PID())
}

// keepsSessions has the poolers that were seen to keep sessions, by address, database and user.
// Each is tried once: later, all of its connections may be in use.
var keepsSessions sync.Map

// sessionRounds is how often two clients of a pooler compare their connections.
const sessionRounds = 3

// checkKeepsSession refuses a pooler in transaction mode. It would lose the settings and the role
// of a connection, or give them to another client. Such a pooler gives the server's connection of
// one client to the next one, or another connection to the same client; one in session mode never
// does. No setting is needed to see that.
func checkKeepsSession(ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config) error {
	address := conn.Conn().RemoteAddr().String()
	key := address + "/" + config.Database + "/" + config.User
	if _, known := keepsSessions.Load(key); known {
		return nil
	}
	config = config.Copy()
	config.AfterConnect = nil
	other, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	first, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	for range sessionRounds {
		others, err := backend(ctx, other)
		if err != nil {
			return err
		}
		again, err := backend(ctx, conn)
		if err != nil {
			return err
		}
		if others == first || again != first {
			return asyncflow.Errorf(asyncflow.CodeUnavailable,
				"the pooler at %s gives a connection to the next client after each transaction "+
					"(transaction mode): settings of a connection, such as search_path, would be "+
					"lost, or another client's. Let DATABASE_URL lead to the server directly or to "+
					"a pooler in session mode; this pooler may be ASYNCFLOW_POOLED_URL beside it",
				address)
		}
	}
	keepsSessions.Store(key, true)
	return nil
}

// backend returns the number of the server's process that answers.
func backend(ctx context.Context, conn *pgconn.PgConn) (string, error) {
	row, err := firstRow(ctx, conn, "SELECT pg_catalog.pg_backend_pid()")
	if err != nil {
		return "", err
	}
	return string(row[0]), nil
}

// Pooler is the way to the database through a pooler that may be in transaction mode. Its
// connections are pooled ones, see entry.
type Pooler struct {
	URL string
	// Prepared reports whether a statement that was prepared once can be run in any later
	// transaction: the pooler prepares it on the connections that lack it.
	Prepared bool
}

// OpenPooler looks at the way through a pooler. It refuses one that leads to another database than
// the direct connections of base.
func OpenPooler(ctx context.Context, url string, base Querier) (*Pooler, error) {
	cfg, err := pooledConfig(url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectAll)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	row, err := firstRow(ctx, conn.PgConn(), databaseSQL)
	if err != nil {
		return nil, err
	}
	if err := checkSame(ctx, string(row[0]), base); err != nil {
		return nil, err
	}
	p := &Pooler{URL: url}
	p.Prepared, err = keepsPrepared(ctx, conn.PgConn(), &cfg.Config)
	return p, err
}

// CheckPooled asks a pool of a pooler which database is behind it, and refuses another one than
// that of the direct connections of base.
func CheckPooled(ctx context.Context, pool *pgxpool.Pool, base Querier) error {
	var has string
	err := pool.QueryRow(ctx, databaseSQL, pgx.QueryExecModeSimpleProtocol).Scan(&has)
	if err != nil {
		return err
	}
	return checkSame(ctx, has, base)
}

// checkSame refuses a database that isn't that of base, by what databaseSQL says of it.
func checkSame(ctx context.Context, has string, base Querier) error {
	var want string
	if err := base.QueryRow(ctx, databaseSQL).Scan(&want); err != nil {
		return err
	}
	if has != want {
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the pooled URL leads to another "+
			"database than DATABASE_URL (%s, not %s: when the server started, and the number of "+
			"the database)", has, want)
	}
	return nil
}

// databaseSQL tells databases apart. Settings of the connection don't change what it says.
const databaseSQL = `SELECT pg_catalog.concat(pg_catalog.to_char(pg_catalog.timezone('UTC',
  pg_catalog.pg_postmaster_start_time()), 'YYYY-MM-DD HH24:MI:SS.US'), ' ', oid)
FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()`

// nameSession names a session through a pooler in the server's list. Poolers take the name at the
// start, and give the server's connection the name of its present client.
func nameSession(config *pgconn.Config) {
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = applicationName
	}
}

// pooledConfig returns the configuration of a connection through a pooler, outside any pool.
func pooledConfig(url string) (*pgx.ConnConfig, error) {
	cfg, err := ConfigFor(url, nil, nil)
	if err != nil {
		return nil, err
	}
	cfg.AfterConnect = nil
	nameSession(&cfg.Config)
	return cfg, nil
}

// probe is the name of a statement.
const probe = "asyncflow_probe"

// keepsPrepared reports whether prepared statements last. A pooler that follows them gives them
// names of its own on the server; otherwise the session itself must last.
func keepsPrepared(
	ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config,
) (bool, error) {
	if _, err := conn.Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return false, err
	}
	_, err := conn.Prepare(ctx, probe, "SELECT 1", nil)
	if State(err) == pgerrcode.DuplicatePreparedStatement { // of a client that was cut off
		_, err = conn.Exec(ctx, "ROLLBACK").ReadAll()
		return false, err
	}
	if err != nil {
		return false, err
	}
	if err := conn.ExecPrepared(ctx, probe, nil, nil, nil).Read().Err; err != nil {
		return false, err
	}
	row, err := firstRow(ctx, conn, `SELECT pg_catalog.count(*)
		FROM pg_catalog.pg_prepared_statements WHERE name OPERATOR(pg_catalog.=) '`+probe+`'`)
	if err != nil {
		return false, err
	}
	followed := string(row[0]) == "0"
	if err := conn.Deallocate(ctx, probe); err != nil {
		return false, err
	}
	if _, err := conn.Exec(ctx, "COMMIT").ReadAll(); err != nil || followed {
		return followed, err
	}
	row, err = firstRow(ctx, conn, "SELECT "+isDirect(conn))
	if err != nil || string(row[0]) == "t" {
		return err == nil, err
	}
	err = checkKeepsSession(ctx, conn, config)
	if err != nil && asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		return false, nil
	}
	return err == nil, err
}

// directKey marks a context for direct connections.
type directKey struct{}

// Direct returns a context for work over direct connections, where others may be pooled.
func Direct(ctx context.Context) context.Context {
	return context.WithValue(ctx, directKey{}, true)
}

// IsDirect reports whether a context is one of Direct.
func IsDirect(ctx context.Context) bool { return ctx.Value(directKey{}) != nil }
