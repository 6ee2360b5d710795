package settings

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// How a move ends that didn't move the tenant:
//
//  1. Its process at the coordinator ends, and nobody else moves tenants.
//  2. Citus removes its publication of the tenant's tables, and the rest of what it made.
//  3. The tables get back the identities from before. A table that is published without one refuses
//     to delete rows: no task could be leased. So this is last.
//
// What a crash keeps from this, the next move does.

// undo removes what a move that failed has left, also after an interrupt.
func (m *move) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if m.conn.IsClosed() {
		if _, err := m.regain(ctx); err != nil {
			return err
		}
	}
	if err := m.keepLock(ctx); err != nil {
		return err
	}
	if err := m.clean(ctx); err != nil {
		return err
	}
	return m.forgetIdentities(ctx)
}

const (
	// cleanTries bounds how often Citus is asked to remove what it left. It waits for a lock for a
	// second each time.
	cleanTries = 60
	cleanPause = 500 * time.Millisecond
)

const cleanSQL = `CALL citus_cleanup_orphaned_resources()`

// publishedSQL counts the tables of the schema $1 that Citus publishes for a move on the server $2,
// $3. NULL: the server can't be asked.
const publishedSQL = `SELECT CASE WHEN success THEN result::bigint END
	FROM run_command_on_workers(format($$SELECT count(*) FROM pg_publication_rel r
		JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid
		WHERE c.relnamespace = to_regnamespace(%L)
			AND starts_with(p.pubname, 'citus_shard_move_publication_')$$, $1::text))
	WHERE nodename = $2 AND nodeport = $3`

// clean has Citus remove its publications of the tenant's tables.
func (m *move) clean(ctx context.Context) error {
	for range cleanTries {
		if err := m.exec(ctx, longTime, cleanSQL); err != nil {
			return err
		}
		published, err := m.published(ctx)
		if err != nil {
			return err
		}
		if published != nil && *published == 0 {
			return nil
		}
		sleep.For(ctx, cleanPause)
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable, "Citus hasn't removed its publication of "+
		"the tenant's tables on %s yet, so they keep the replica identities of the move; the next move "+
		"of the tenant removes them", m.from)
}

func (m *move) published(ctx context.Context) (n *int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	err = m.conn.QueryRow(ctx, publishedSQL, m.schema(), m.from.Host, m.from.Port).Scan(&n)
	return n, err
}

// moveProcess is a process of the coordinator that moves tables. Its number alone may be another
// one's later.
type moveProcess struct {
	pid    int
	began  time.Time
	global int64 // by this number its sessions at the workers are known
}

func (m *move) readProcess(ctx context.Context) (p moveProcess, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	err = m.conn.QueryRow(ctx, `SELECT pid, backend_start, citus_backend_gpid()
		FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&p.pid, &p.began, &p.global)
	return p, err
}

const (
	// endPatience is how long a process may take to end.
	endPatience = 30 * time.Second
	endPause    = 200 * time.Millisecond
	// regainPatience is how long the coordinator may be away, which then has to start.
	regainPatience = 2 * time.Minute
)

// endOrphansSQL ends the processes that run the statement $1, and returns how many there are.
const endOrphansSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE datname = current_database() AND query = $1 AND state <> 'idle'`

// endOrphans ends the move of a command that is gone: its process notices that only at the end. As
// we have the lock, there are no others.
func (m *move) endOrphans(ctx context.Context) error {
	for until := time.Now().Add(endPatience); ; {
		var left int
		if err := m.scanOne(ctx, &left, endOrphansSQL, moveSQL); err != nil || left == 0 {
			return err
		}
		if time.Now().After(until) || !sleep.For(ctx, endPause) {
			return asyncflow.Errorf(asyncflow.CodeConflict, "the move of a command that is gone "+
				"goes on at the coordinator, and its process doesn't end: see citus_schema_move in "+
				"pg_stat_activity, and end it by hand")
		}
	}
}

// scanOne reads one value.
func (m *move) scanOne(ctx context.Context, into any, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	return m.conn.QueryRow(ctx, sql, args...).Scan(into)
}

// regain connects to the coordinator again after the connection of the move was lost, sees to it
// that its process has ended, and returns whether the tenant has moved.
func (m *move) regain(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), regainPatience)
	defer cancel()
	var reached time.Time // the coordinator, by which the process hadn't ended
	for {
		moved, err = m.tryRegain(ctx)
		if errors.Is(err, errNotEnded) && reached.IsZero() {
			reached = time.Now()
		}
		if err == nil || !reached.IsZero() && time.Since(reached) > endPatience ||
			!sleep.For(ctx, endPause) {
			break
		}
	}
	if err != nil {
		_ = m.conn.Close(ctx)
		return false, &asyncflow.Error{Code: asyncflow.CodeUncertain, Err: err, Message: "the " +
			"coordinator was lost during the move, and it isn't known whether the tenant has moved: " +
			"see \"asyncflow tenants get\"; the next move tidies up"}
	}
	return moved, nil
}

// errNotEnded says that a process goes on.
var errNotEnded = errors.New("the coordinator's process of the move doesn't end")

func (m *move) tryRegain(ctx context.Context) (moved bool, err error) {
	if m.conn.IsClosed() {
		conn, err := postgres.Connect(ctx, m.url)
		if err != nil {
			return false, err
		}
		m.conn = conn
	}
	if p := m.process; p.pid != 0 {
		var left int
		err := m.scanOne(ctx, &left, `SELECT count(pg_terminate_backend(pid))
			FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`, p.pid, p.began)
		if err != nil {
			return false, err
		}
		if left > 0 {
			m.endAtWorkers(ctx)
			return false, errNotEnded
		}
	}
	// A commit in two phases, of which the second was lost, keeps the tenant blocked. Citus
	// finishes it within a minute; this needs a right that others may lack.
	_ = m.exec(ctx, statementTime, `SELECT recover_prepared_transactions()`)
	reading, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	at, err := catalog.Placements(reading, m.conn, []string{m.Tenant})
	return at[m.Tenant] == m.To, err
}

// endAtWorkers ends the sessions at the workers of a process that doesn't end itself, so that the
// tenant's writes there are no longer blocked. Nothing of its transaction is committed then.
func (m *move) endAtWorkers(ctx context.Context) {
	_ = m.exec(ctx, statementTime, `SELECT count(*) FROM run_command_on_workers(format(
		$$SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = %L$$, 'citus_internal gpid=' || $1::bigint))`, m.process.global)
}

// keepLock takes the lock of moves again if its connection was lost. CodeConflict: another move, or
// a migration, has it now.
func (m *move) keepLock(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if _, err := m.lock.Exec(ctx, `SELECT 1`); err == nil {
		return nil
	}
	_ = m.lock.Close(ctx)
	lock, err := postgres.Connect(ctx, m.url)
	if err != nil {
		return err
	}
	m.lock = lock
	return schema.LockForMove(ctx, lock)
}
