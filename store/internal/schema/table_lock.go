package schema

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// One process at a time migrates a schema, or makes roles and grants. Each of them locks a table in
// a transaction, in a mode that excludes itself but no reads nor writes of rows. Only
// roles that may change the table can take it, while any role of the database can take any
// advisory lock.

// lockMode is the mode. VACUUM and ANALYZE of the table take it too, for a moment.
const lockMode = `IN SHARE UPDATE EXCLUSIVE MODE`

// fenceTable is the table that a RoleFence locks.
const fenceTable = Base + `.fence`

// patience is how long a migration waits.
type patience struct {
	others time.Duration // for another process that migrates
	tables string        // for the lock of each table, as lock_timeout; "0": as long as it takes
}

// byHand is the patience of commands. It is long, as several processes may make tenants at once.
var byHand = patience{5 * time.Minute, "0"}

// tableLock is a connection with a transaction that has locked a table.
type tableLock struct {
	db   *sql.DB
	conn *sql.Conn // nil: it isn't locked
}

// lock waits for a table.
func (l *tableLock) lock(ctx context.Context, table string, patience time.Duration) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	// No timeout of the server may end the transaction, which does nothing for long.
	_, err = conn.ExecContext(ctx, fmt.Sprintf(`BEGIN;
		SELECT set_config(name, '0', true) FROM pg_settings
		  WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout',
		    'statement_timeout');
		SET LOCAL lock_timeout = %d; LOCK TABLE %s %s`, patience.Milliseconds(), table, lockMode))
	if postgres.State(err) == pgerrcode.LockNotAvailable {
		err = keptOut(ctx, l.db, table, patience, err)
	}
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		_ = conn.Close()
		return err
	}
	l.conn = conn
	return nil
}

// unlock ends the transaction.
func (l *tableLock) unlock(ctx context.Context) error {
	if l.conn == nil {
		return nil
	}
	conn := l.conn
	l.conn = nil
	_, err := conn.ExecContext(ctx, `ROLLBACK`)
	return postgres.FirstError(err, conn.Close())
}

// keptOut says who has the lock of a table.
func keptOut(
	ctx context.Context, db *sql.DB, table string, patience time.Duration, cause error,
) error {
	var pid int
	var name string
	err := db.QueryRowContext(ctx, `SELECT l.pid, coalesce(a.application_name, '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.relation = $1::text::regclass AND l.granted
		  AND l.mode IN ('ShareUpdateExclusiveLock',
		  'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		LIMIT 1`, table).Scan(&pid, &name)
	holder := fmt.Sprintf("the server process %d (%s)", pid, name)
	if err != nil {
		holder = "another process"
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: cause, Message: fmt.Sprintf(
		"%s has had the table %s locked for %v, as a migration does: wait for it, or end it, "+
			"for example by pg_terminate_backend", holder, table, patience)}
}

// migrationLock lets one process at a time migrate a schema.
type migrationLock struct {
	tableLock

	schema   string
	patience time.Duration
}

// SessionLock implements lock.SessionLocker. Migrations have transactions of their own on the given
// connection, so the lock has another one.
//
// Citus changes a table only without that lock in another session. So migrations of distributed
// schemas run one at a time.
func (l *migrationLock) SessionLock(ctx context.Context, _ *sql.Conn) error {
	schema := l.schema
	distributed, err := isDistributed(ctx, l.db, schema)
	if err != nil {
		return err
	}
	if distributed {
		schema = Base
	}
	return l.lock(ctx, postgres.Quote(schema)+"."+versionTable, l.patience)
}

// SessionUnlock implements lock.SessionLocker.
func (l *migrationLock) SessionUnlock(ctx context.Context, _ *sql.Conn) error {
	return l.unlock(ctx)
}

// LockForMove lets one process at a time move tenants between workers of Citus, and none migrate
// meanwhile, until the connection ends. CodeConflict: another one does.
func LockForMove(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `BEGIN`); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `LOCK TABLE `+Base+`.`+versionTable+` `+lockMode+` NOWAIT`)
	if postgres.State(err) == pgerrcode.LockNotAvailable {
		return asyncflow.Errorf(asyncflow.CodeConflict, "another move of a tenant, or a "+
			"migration, is under way: try again when it has ended")
	}
	return err
}

// IsMoving reports whether a table without a key is being copied to another worker of Citus, where
// each row that is deleted is looked for in all of the table.
func IsMoving(ctx context.Context, q postgres.Querier, table string) (moving bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class
		  WHERE oid = to_regclass($1) AND relreplident = 'f')
		AND EXISTS (SELECT FROM pg_locks WHERE relation = to_regclass($2) AND granted
		  AND mode = 'ShareUpdateExclusiveLock' AND database =
		    (SELECT oid FROM pg_database WHERE datname = current_database()))`,
		table, Base+"."+versionTable).Scan(&moving)
	return moving, postgres.Wrap(err, "look whether %s moves", table)
}
