package settings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// How a tenant moves from one worker of Citus to another, see ADR 73:
//
//  1. Each table gets a replica identity, which logical replication needs: see identities.
//  2. citus_schema_move copies the tables while the tenant's work goes on, follows the changes by
//     logical replication, and makes the indexes.
//  3. Then it blocks the tenant's writes, waits for the last changes, makes the foreign keys and
//     tells all servers of the new place. The transaction of the move also brings the rolls into
//     the history of the new worker: numbers go on where they were. Its commit ends the block.
//  4. Identities that were made for the move go, and the planner gets its statistics.
//
// A failure in the first three leaves the tenant where it was. Nodes learn of the new place within
// a second; until then the old worker hands their statements on.

// MovePhase says what a move is doing.
type MovePhase string

// The phases of a move, in their order.
const (
	MovePreparing MovePhase = "preparing"   // replica identities; then the empty tables
	MoveCopying   MovePhase = "copying"     // the rows, while work goes on
	MoveCatching  MovePhase = "catching up" // with the changes made meanwhile; indexes
	MoveSwitching MovePhase = "switching"   // the tenant's writes are blocked
	MoveTidying   MovePhase = "tidying up"  // the tenant works at the new place
)

// MoveProgress says how far a move is.
type MoveProgress struct {
	Tenant string
	Phase  MovePhase
	// Done and Total are bytes of the tables, while they are copied; 0: that isn't known.
	Done, Total int64
	Since       time.Duration // since the move began
}

// Move says where a tenant goes, and within which bound.
type Move struct {
	Tenant string
	// To is the worker. Its port may be 0 if its host has only one.
	To postgres.Server
	// MaxPause gives the move up when the tenant's writes have been blocked for so long.
	MaxPause time.Duration
}

// Moved is a move that was made.
type Moved struct {
	Tenant   string
	From, To postgres.Server
	Took     time.Duration
	Pause    time.Duration // in which the tenant's writes were blocked, to about 50 ms
	Tables   int
	// TidyError says why something that only the move needed is left, or why the planner has no
	// statistics of the new tables. The tenant has moved all the same. nil: all is tidy.
	TidyError error
}

// move is a tenant that is being moved.
type move struct {
	Move

	url    string
	from   postgres.Server
	role   string    // the tenant's; "": it has none
	conn   *pgx.Conn // has the transaction of the move
	side   *pgx.Conn // looks how far it is, and wakes it
	lock   *pgx.Conn // has a lock that keeps others from moving tenants
	tables int
	began  time.Time
	tell   func(MoveProgress)
	// process is the server's process of conn while it moves the tables.
	process moveProcess
	blocked time.Time // since when the tenant's writes are; zero: they aren't
}

// MoveTenant moves a tenant to another worker of Citus, and calls tell with its progress.
// CodeNotFound: there is no such tenant. CodeConflict: it is there already, or can't move now.
// CodeInvalid: there is no such worker. CodeUncertain: the coordinator was lost, and it isn't known
// whether the tenant has moved. After another error the tenant is where it was.
func MoveTenant(
	ctx context.Context, url string, wanted Move, tell func(MoveProgress),
) (out Moved, err error) {
	m := &move{Move: wanted, url: url, began: time.Now(), tell: tell}
	for _, conn := range []**pgx.Conn{&m.conn, &m.side, &m.lock} {
		if *conn, err = postgres.Connect(ctx, url); err != nil {
			return out, postgres.ConnectError(url, err)
		}
		defer func() { _ = (*conn).Close(context.WithoutCancel(ctx)) }()
	}
	if err = m.begin(ctx); err == nil {
		out, err = m.run(ctx)
	}
	return out, postgres.Wrap(err, "MoveTenant(%q, %s)", m.Tenant, m.To)
}

// begin refuses what can't be, and keeps others from moving tenants.
func (m *move) begin(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if err = m.check(ctx); err != nil {
		return err
	}
	if err = schema.LockForMove(ctx, m.lock); err != nil {
		return err
	}
	m.process, err = m.readProcess(ctx)
	return err
}

// run moves the tenant.
func (m *move) run(ctx context.Context) (out Moved, err error) {
	m.report(MovePreparing, 0, 0)
	if err := m.endOrphans(ctx); err != nil {
		return out, err
	}
	pause, err := m.tryFor(ctx, busyPatience)
	if err != nil && m.conn.IsClosed() {
		moved, lost := m.regain(ctx)
		if lost != nil {
			return out, errors.Join(lost, err)
		}
		if moved {
			pause, err = m.blockedFor(), nil
		}
	}
	if err != nil {
		return out, errors.Join(err, m.undo(ctx))
	}
	m.report(MoveTidying, 0, 0)
	return Moved{Tenant: m.Tenant, From: m.from, To: m.To, Took: time.Since(m.began), Pause: pause,
		Tables: m.tables, TidyError: m.tidy(ctx)}, nil
}

const (
	// busyPatience is how long a move tries again while Citus makes a table of the tenant, or
	// still removes what an earlier move has left.
	busyPatience = time.Minute
	busyPause    = 500 * time.Millisecond
)

// tryFor moves the tables. While Citus is busy with the tenant it tries again.
func (m *move) tryFor(
	ctx context.Context, patience time.Duration,
) (pause time.Duration, err error) {
	for until := time.Now().Add(patience); ; {
		if m.tables, err = m.identify(ctx); err == nil {
			pause, err = m.transfer(ctx)
		}
		if !isBusy(err) || time.Now().After(until) || !sleep.For(ctx, busyPause) {
			return pause, err
		}
		if failed := m.exec(ctx, longTime, cleanSQL); failed != nil {
			return pause, errors.Join(err, failed)
		}
	}
}

// isBusy reports whether Citus refused to begin a move because of something that passes: a table of
// the tenant was being made, was made or dropped just then, or one that an earlier move has left
// was being dropped.
func isBusy(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Routine {
	case "AcquirePlacementColocationLock", "AcquireShardPlacementLock",
		"ErrorIfCleanupRecordForShardExists", "VerifyTablesHaveReplicaIdentity":
		return true
	}
	return pg.Code == pgerrcode.UndefinedTable || pg.Code == pgerrcode.DeadlockDetected
}

const (
	// statementTime bounds a statement that changes or reads little: a coordinator that became
	// silent must not keep a move for ever.
	statementTime = 30 * time.Second
	// longTime bounds one that may read all of a table, or drop all tables of a tenant.
	longTime = 30 * time.Minute
)

// exec runs a statement within a bound.
func (m *move) exec(ctx context.Context, most time.Duration, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := m.conn.Exec(ctx, sql, args...)
	return err
}

func (m *move) report(phase MovePhase, done, total int64) {
	m.tell(MoveProgress{Tenant: m.Tenant, Phase: phase, Done: done, Total: total,
		Since: time.Since(m.began)})
}

// schema returns the quoted name of the tenant's schema.
func (m *move) schema() string { return postgres.Quote(schema.Of(m.Tenant)) }

// histories name the history of each of the two tables that have one.
type histories struct{ rolls, numbering string }

// histories reads what the worker that has the tables says.
func (m *move) histories(ctx context.Context, q postgres.Querier) (h histories, err error) {
	of := m.schema()
	err = q.QueryRow(ctx, `SELECT `+of+`.history(tableoid) FROM `+of+`.numbering`).
		Scan(&h.numbering)
	if err != nil {
		return h, err
	}
	err = q.QueryRow(ctx, `SELECT `+of+`.history(tableoid) FROM `+of+`.rolls LIMIT 1`).
		Scan(&h.rolls)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return h, err
}

// moveSQL moves the schema $1 to the server $2, $3. It fails if a table has no replica identity.
const moveSQL = `SELECT citus_schema_move($1::text::regnamespace, $2, $3, 'auto')`

// transact moves the tables, and brings the rolls of the worker's history into that of the new
// worker: nothing was lost, so their numbers go on. A roll of a history that was lost before stays
// lost.
func (m *move) transact(ctx context.Context) error {
	var before histories
	err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, `SELECT set_config('role', $1, true)`, m.asOwner()); err == nil {
			before, err = m.histories(ctx, tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, moveSQL, m.schema(), m.To.Host, m.To.Port)
		if err != nil {
			return m.refused(err)
		}
		if err := m.takeRole(ctx, tx); err != nil {
			return err
		}
		after, err := m.histories(ctx, tx)
		if err != nil {
			return err
		}
		if before.rolls != "" {
			_, err = tx.Exec(ctx, `UPDATE `+m.schema()+`.rolls SET history = $1 WHERE history = $2`,
				after.rolls, before.rolls)
			if err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE `+m.schema()+`.numbering SET history = $1 WHERE history = $2`,
			after.numbering, before.numbering)
		if err == nil {
			_, err = tx.Exec(ctx, `SET LOCAL ROLE NONE`) // on the workers, too, for their commit
		}
		return err
	})
}

// asOwner returns the role that owns the tenant's tables, as a value of the setting role.
func (m *move) asOwner() string {
	if m.role == "" {
		return "none"
	}
	return m.role
}

// takeRole gives the connections of the transaction at workers the tenant's role: our user must run
// no function of the tenant's, and no constraint. Over other connections the tables aren't there
// yet, so this server keeps the user, whose connections they are.
func (m *move) takeRole(ctx context.Context, tx pgx.Tx) error {
	if m.role == "" {
		return nil
	}
	for _, statement := range []string{`SET LOCAL citus.propagate_set_commands = 'local'`,
		`SET LOCAL ROLE ` + postgres.Quote(m.role), `SELECT set_config('role', 'none', true)`} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// refused explains why Citus didn't move a tenant.
func (m *move) refused(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code == pgerrcode.QueryCanceled {
		return err
	}
	said := pg.Message
	for _, more := range []string{pg.Detail, pg.Hint} {
		if more != "" {
			said += ": " + more
		}
	}
	return &asyncflow.Error{Code: asyncflow.CodeConflict, Err: err, Message: fmt.Sprintf(
		"Citus refuses to move the tenant %s: %s", m.Tenant, said)}
}

// tidy removes what only the move needed, and gathers the statistics of the planner: the new tables
// have none.
func (m *move) tidy(ctx context.Context) error {
	if err := m.forgetIdentities(ctx); err != nil {
		return err
	}
	if err := schema.RevokeOnWorkers(ctx, m.conn, m.Tenant, m.role); err != nil {
		return err
	}
	tables, err := m.all(ctx)
	for i := 0; i < len(tables) && err == nil; i++ {
		err = m.exec(ctx, longTime, `ANALYZE `+m.schema()+`.`+postgres.Quote(tables[i]))
		if postgres.State(err) == pgerrcode.UndefinedTable { // a roll was dropped
			err = nil
		}
	}
	return err
}

// all returns the tables of the tenant.
func (m *move) all(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	rows, _ := m.conn.Query(ctx, `SELECT relname FROM pg_class
		WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' ORDER BY 1`, m.schema())
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
