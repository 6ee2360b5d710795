package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
)

// Pooler is the way to the database through a pooler that may be in transaction mode. Its
// connections are pooled ones, see entry.
type Pooler struct {
	URL string
	// Prepared reports whether a statement that was prepared once can be run in any later
	// transaction: the pooler prepares it on the connections that lack it.
	Prepared bool

	direct Querier                  // the direct connections
	group  *PoolGroup               // of their pools; nil: direct is a connection of its own
	last   atomic.Pointer[database] // where they lead; nil: they weren't asked yet
}

// database is a database as databaseSQL tells it from others.
type database struct {
	text string
	seen time.Time
}

const (
	// databaseTime is how long an answer to databaseSQL is taken for true.
	databaseTime = 5 * time.Second
	// poolerTries is how often a pooler is looked at that fails for a passing reason, with
	// poolerPause between two tries.
	poolerTries = 3
	poolerPause = 200 * time.Millisecond
)

// OpenPooler looks at the way through a pooler. It refuses one that leads to another database than
// the connections of direct, or by a user that can't take the roles there. group joins the pools of
// the direct connections, nil for none. With noRoles there are no roles.
func OpenPooler(
	ctx context.Context, url string, direct Querier, group *PoolGroup, noRoles bool,
) (*Pooler, error) {
	cfg, err := pooledConfig(url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectAll)
	defer cancel()
	p := &Pooler{URL: url, direct: direct, group: group}
	for try := 1; ; try++ {
		err := p.look(ctx, cfg, noRoles)
		if err == nil || try == poolerTries || !passesSoon(err) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(poolerPause):
		}
	}
}

// passesSoon reports whether a pooler refused a statement for a passing reason.
func passesSoon(err error) bool {
	return !errors.As(err, new(*asyncflow.Error)) && !errors.As(err, new(*pgconn.ConnectError)) &&
		IsPassing(err)
}

// look looks at the way over a connection of its own.
func (p *Pooler) look(ctx context.Context, cfg *pgx.ConnConfig, noRoles bool) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := p.checkConn(ctx, conn.PgConn()); err != nil {
		return err
	}
	if err := p.checkUser(ctx, conn.PgConn(), noRoles); err != nil {
		return err
	}
	p.Prepared, err = keepsPrepared(ctx, conn.PgConn(), &cfg.Config)
	return err
}

// Check asks a pool of the pooler for its database, and refuses another one than that of the direct
// connections.
func (p *Pooler) Check(ctx context.Context, pool *pgxpool.Pool) error {
	var have string
	err := pool.QueryRow(ctx, databaseSQL, pgx.QueryExecModeSimpleProtocol).Scan(&have)
	if err != nil {
		return err
	}
	return p.checkDatabase(ctx, have)
}

// databaseSQL tells databases apart. Settings of the connection don't change what it says.
const databaseSQL = `SELECT pg_catalog.concat(pg_catalog.to_char(pg_catalog.timezone('UTC',
  pg_catalog.pg_postmaster_start_time()), 'YYYY-MM-DD HH24:MI:SS.US'), ' ', oid)
FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()`

// ServerOf returns a text that names the server and its database: another one if the server was
// restarted, or is another one.
func ServerOf(ctx context.Context, db Querier) (text string, err error) {
	err = db.QueryRow(ctx, databaseSQL).Scan(&text)
	return text, err
}

// checkConn is checkDatabase for a new connection.
func (p *Pooler) checkConn(ctx context.Context, conn *pgconn.PgConn) error {
	row, err := firstRow(ctx, conn, databaseSQL)
	if err != nil {
		return err
	}
	return p.checkDatabase(ctx, string(row[0]))
}

// checkDatabase refuses another database than the one of the direct connections, as databaseSQL
// names it: after a failover a pooler may stay behind. If the two differ, the direct connections
// are opened anew first: they may be the ones that still lead to the old primary. If they don't
// answer, where they led last counts.
func (p *Pooler) checkDatabase(ctx context.Context, have string) error {
	last := p.last.Load()
	known := last != nil && last.text == have
	if known && time.Since(last.seen) < databaseTime {
		return nil
	}
	want, err := p.askDirect(ctx)
	if err == nil && have != want && p.group != nil {
		p.group.Reset()
		want, err = p.askDirect(ctx)
	}
	if err != nil {
		if known {
			return nil
		}
		return err
	}
	if have != want {
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the pooled URL leads to another "+
			"database than DATABASE_URL (%s, not %s: when the server started, and the number of "+
			"the database)", have, want)
	}
	return nil
}

// askDirect asks where the direct connections lead.
func (p *Pooler) askDirect(ctx context.Context) (text string, err error) {
	if text, err = ServerOf(ctx, p.direct); err != nil {
		return text, err
	}
	p.last.Store(&database{text, time.Now()})
	return text, nil
}

// lackedRoleSQL selects a role that the user $1 can't take, or the rights of which it doesn't
// inherit: statements are prepared as that user. Another user than the one of the direct
// connections needs the roles of later tenants, too, so it must be a member of the owner of the
// schema.
const lackedRoleSQL = `
SELECT r.rolname FROM pg_catalog.pg_roles r
WHERE (NOT $2::boolean AND r.rolname IN (
    SELECT base_role FROM asyncflow.fence UNION ALL SELECT role FROM asyncflow.tenants)
  OR $1::name <> session_user AND r.oid = (SELECT nspowner FROM pg_catalog.pg_namespace
    WHERE nspname = 'asyncflow'))
  AND NOT CASE WHEN current_setting('server_version_num')::int >= 160000
    THEN pg_has_role($1::name, r.oid, 'SET') AND pg_has_role($1::name, r.oid, 'USAGE')
    ELSE pg_has_role($1::name, r.oid, 'USAGE') END
ORDER BY 1 LIMIT 1`

// checkUser refuses a user that can't do the work of tenants.
func (p *Pooler) checkUser(ctx context.Context, conn *pgconn.PgConn, noRoles bool) error {
	row, err := firstRow(ctx, conn, "SELECT session_user")
	if err != nil {
		return err
	}
	user := string(row[0])
	var role string
	err = p.direct.QueryRow(ctx, lackedRoleSQL, user, noRoles).Scan(&role)
	if errors.Is(err, pgx.ErrNoRows) || State(err) == pgerrcode.UndefinedTable {
		return nil // without the table, nobody migrated the database yet
	}
	if err != nil {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable, "the user %[1]s of the pooled URL can't "+
		"take the role %[2]s or doesn't inherit its rights. Let the pooled URL have the user of "+
		"DATABASE_URL, with INHERIT, or do:\n  ALTER ROLE %[3]s INHERIT; GRANT %[4]s TO %[3]s;",
		user, role, Quote(user), Quote(role))
}

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
	followed, err := runPrepared(ctx, conn)
	if refusesPrepared(err) {
		_, err = conn.Exec(ctx, "ROLLBACK").ReadAll()
		return false, err
	}
	if err != nil {
		return false, preparedError(err)
	}
	if _, err := conn.Exec(ctx, "COMMIT").ReadAll(); err != nil || followed {
		return followed, err
	}
	row, err := firstRow(ctx, conn, "SELECT "+isDirect(conn))
	if err != nil || string(row[0]) == "t" {
		return err == nil, err
	}
	err = checkKeepsSession(ctx, conn, config)
	if err != nil && asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		return false, nil
	}
	return err == nil, err
}

// runPrepared prepares, runs and forgets a statement in the open transaction, and reports whether
// the server keeps it under another name.
func runPrepared(ctx context.Context, conn *pgconn.PgConn) (renamed bool, err error) {
	if _, err := conn.Prepare(ctx, probe, "SELECT 1", nil); err != nil {
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
	return string(row[0]) == "0", conn.Deallocate(ctx, probe)
}

// refusesPrepared reports whether an error says that prepared statements don't last: a client that
// was cut off left one of that name, the server lacks what was prepared a moment ago, or the pooler
// knows none.
func refusesPrepared(err error) bool {
	switch State(err) {
	case pgerrcode.DuplicatePreparedStatement, pgerrcode.InvalidSQLStatementName,
		pgerrcode.FeatureNotSupported:
		return true
	}
	return false
}

// preparedError explains an error that says nothing about prepared statements.
func preparedError(err error) error {
	if IsPassing(err) {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err, Message: "whether the " +
		"pooler keeps prepared statements can't be found out: " + message(err)}
}

// directKey marks a context for direct connections.
type directKey struct{}

// Direct returns a context for work over direct connections, where others may be pooled.
func Direct(ctx context.Context) context.Context {
	return context.WithValue(ctx, directKey{}, true)
}

// IsDirect reports whether a context is one of Direct.
func IsDirect(ctx context.Context) bool { return ctx.Value(directKey{}) != nil }
