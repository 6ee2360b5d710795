package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTime bounds the end of a failed transaction.
const rollbackTime = time.Second

// TenantConn is a connection for batches of a tenant.
type TenantConn struct {
	conn     *pgxpool.Conn
	role     string // "": that of the connection
	entry    *entry
	placed   *PlacedTables // nil: statements stay as they are
	patience string        // for the place, see WithPlaced
	anyTime  bool          // the open transaction leaves the mode of plans to Postgres
	released func()        // nil after Release
}

// sendOne sends one statement in a transaction of its own. The next result is the
// statement's.
func (c *TenantConn) sendOne(
	ctx context.Context, sql string, args []any,
) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	text, err := c.name(ctx, sql)
	if err != nil {
		return nil, err
	}
	b.Queue(text.sql, args...)
	entries := c.enter(b, text.shown)
	br := c.conn.SendBatch(ctx, b)
	for range entries {
		if _, err := br.Exec(); err != nil {
			_ = br.Close() // it returns the same error
			return nil, roleError(c.note(err))
		}
	}
	return br, nil
}

// queueEntry adds the statements that a transaction begins with to a batch. shown says that some of
// its statements name tables as Citus shows them.
func (c *TenantConn) queueEntry(b *pgx.Batch, shown bool) {
	c.entry.queue(b, c.role)
	c.queuePlace(b, shown)
}

// queuePlace adds the statements that a transaction on placed tables begins with, if there are any.
// They come after the role, which owns the tables.
func (c *TenantConn) queuePlace(b *pgx.Batch, shown bool) {
	if c.placed != nil {
		c.anyTime = shown
		c.placed.queue(b, shown, c.patience)
	}
}

// keepPlace runs the statements of queuePlace in a transaction that has its role. They aren't sent
// with BEGIN: pgx closes the connection if that fails.
func (c *TenantConn) keepPlace(ctx context.Context, tx pgx.Tx) error {
	if c.placed == nil {
		return nil
	}
	b := &pgx.Batch{}
	c.queuePlace(b, false)
	return c.note(tx.SendBatch(ctx, b).Close())
}

// preparePlans puts the mode of plans first in a batch of the open transaction, if this is the
// first one with a statement that names tables as Citus shows them.
func (c *TenantConn) preparePlans(b *pgx.Batch, shown bool) {
	if !shown || c.anyTime {
		return
	}
	c.anyTime = true
	first := &pgx.Batch{}
	first.Queue(planModeSQL, planAnyTime)
	b.QueuedQueries = slices.Insert(b.QueuedQueries, 0, first.QueuedQueries...)
}

// name returns a statement that names the placed tables, if there are any.
func (c *TenantConn) name(ctx context.Context, sql string) (placedText, error) {
	if c.placed == nil {
		return placedText{sql: sql}, nil
	}
	return c.placed.nameOne(ctx, c.conn.Conn(), sql)
}

// nameNext is name for a statement that is sent next, by itself, in the open transaction.
func (c *TenantConn) nameNext(ctx context.Context, sql string) (placedText, error) {
	text, err := c.name(ctx, sql)
	if err != nil {
		return text, err
	}
	return text, c.plan(ctx, text.shown)
}

// plan is preparePlans for a statement, or a batch, that stays as it is.
func (c *TenantConn) plan(ctx context.Context, shown bool) error {
	b := &pgx.Batch{}
	if c.preparePlans(b, shown); len(b.QueuedQueries) == 0 {
		return nil
	}
	return c.note(c.conn.SendBatch(ctx, b).Close())
}

// nameAll makes the statements of a batch name the placed tables, if there are any, and reports
// whether some name tables as Citus shows them.
func (c *TenantConn) nameAll(ctx context.Context, b *pgx.Batch) (shown bool, err error) {
	if c.placed == nil {
		return false, nil
	}
	return c.placed.nameAll(ctx, c.conn.Conn(), b)
}

// note lets the placed tables take notice of an error, and returns it.
func (c *TenantConn) note(err error) error {
	if c.placed != nil && err != nil {
		return c.placed.note(err)
	}
	return err
}

// Send runs a batch. The batch is a transaction by itself, or a part of the one that it or
// an earlier batch begins.
func (c *TenantConn) Send(ctx context.Context, b *pgx.Batch) error {
	shown, err := c.nameAll(ctx, b)
	if err != nil {
		return err
	}
	if c.conn.Conn().PgConn().TxStatus() == 'I' {
		c.enter(b, shown)
	} else {
		c.preparePlans(b, shown)
	}
	return FirstError(roleError(c.note(c.conn.SendBatch(ctx, b).Close())), c.replicated())
}

// replicated returns ErrNotReplicated after a commit that may be on no standby.
func (c *TenantConn) replicated() error { return replicated(c.conn.Conn()) }

// Query runs a statement in the open transaction.
func (c *TenantConn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.query(ctx, c.conn, sql, args)
}

// query runs a statement on the connection, or in its transaction.
func (c *TenantConn) query(
	ctx context.Context, on Querier, sql string, args []any,
) (pgx.Rows, error) {
	text, err := c.nameNext(ctx, sql)
	if err != nil {
		return failedRows{err: err}, err
	}
	rows, err := on.Query(ctx, text.sql, args...)
	if c.placed == nil {
		return rows, err
	}
	return placedRows{rows, c.placed}, c.note(err)
}

// Release gives the connection back. It ends a failed transaction; if the transaction is open for
// another reason, the pool closes the connection. A second call does nothing.
func (c *TenantConn) Release() {
	if c.released != nil {
		// otherwise each locked table costs a connection
		if c.conn.Conn().PgConn().TxStatus() == 'E' {
			ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
			_, _ = c.conn.Exec(ctx, "ROLLBACK") // if it fails, the pool closes the connection
			cancel()
		}
		c.conn.Release()
		c.released()
		c.released = nil
	}
}

// enter puts the statements that a transaction begins with first in a batch, or behind its BEGIN,
// and returns how many results come before the next one.
//
// Postgres makes a batch one transaction by itself. But where Citus hands it on to a worker, the
// first statement would be a transaction of its own there, so it gets a BEGIN and a COMMIT. So does
// a single one that is not to wait for locks at the worker for long.
func (c *TenantConn) enter(b *pgx.Batch, shown bool) (entries int) {
	if len(b.QueuedQueries) == 0 {
		return 0
	}
	first := &pgx.Batch{}
	begun := strings.HasPrefix(b.QueuedQueries[0].SQL, "BEGIN")
	handedOn := c.placed == nil && c.entry.distributed
	impatient := handedOn && c.entry.patience != ""
	if handedOn && !begun && (impatient || len(b.QueuedQueries) > 1) {
		first.Queue("BEGIN")
		b.Queue("COMMIT")
		begun = true
	}
	whole := len(first.QueuedQueries) > 0
	c.queueEntry(first, shown)
	if impatient {
		first.Queue(c.entry.patience)
	}
	at := 0
	if begun && !whole {
		at = 1
	}
	b.QueuedQueries = slices.Insert(b.QueuedQueries, at, first.QueuedQueries...)
	return len(first.QueuedQueries)
}

// tenantTx is a transaction that releases its connection at its end.
type tenantTx struct {
	pgx.Tx
	conn      *TenantConn
	committed bool
}

// Begin begins a savepoint.
func (tx *tenantTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, tx.conn.note(err)
	}
	return &savepoint{tenantTx{Tx: inner, conn: tx.conn}, tx.conn.anyTime}, nil
}

// savepoint is a part of a tenantTx that can be rolled back by itself.
type savepoint struct {
	tenantTx
	anyTime bool // of the connection, before it
}

// Commit keeps what was done since the savepoint.
func (s *savepoint) Commit(ctx context.Context) error { return s.conn.note(s.Tx.Commit(ctx)) }

// Rollback takes back what was done since the savepoint, and with it the mode of plans.
func (s *savepoint) Rollback(ctx context.Context) error {
	err := s.Tx.Rollback(ctx)
	if err == nil {
		s.conn.anyTime = s.anyTime
	}
	return err
}

// CommitWith runs the last statements of a transaction of a TenantDB and commits it, in one round
// trip. Then nothing is left to Commit but to be called.
func CommitWith(ctx context.Context, tx pgx.Tx, last *pgx.Batch) error {
	t := tx.(*tenantTx)
	shown, err := t.conn.nameAll(ctx, last)
	if err != nil {
		return err
	}
	t.conn.preparePlans(last, shown)
	last.Queue("COMMIT")
	err = FirstError(t.conn.note(t.conn.conn.SendBatch(ctx, last).Close()), t.conn.replicated())
	t.committed = err == nil
	return err
}

// Query runs a statement.
func (tx *tenantTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return tx.conn.query(ctx, tx.Tx, sql, args)
}

// QueryRow runs a statement that returns one row.
func (tx *tenantTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if tx.conn.placed == nil {
		return tx.Tx.QueryRow(ctx, sql, args...)
	}
	rows, _ := tx.Query(ctx, sql, args...) // Scan returns its error
	return tenantRow{rows}
}

// Exec runs a statement that returns no rows.
func (tx *tenantTx) Exec(
	ctx context.Context, sql string, args ...any,
) (tag pgconn.CommandTag, err error) {
	text, err := tx.conn.nameNext(ctx, sql)
	if err != nil {
		return tag, err
	}
	tag, err = tx.Tx.Exec(ctx, text.sql, args...)
	return tag, tx.conn.note(err)
}

// SendBatch runs a batch.
func (tx *tenantTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if tx.conn.placed == nil {
		return tx.Tx.SendBatch(ctx, b)
	}
	shown, err := tx.conn.nameAll(ctx, b)
	if err != nil {
		return failedBatch{err}
	}
	if err := tx.conn.plan(ctx, shown); err != nil {
		return failedBatch{err}
	}
	return placedResults{tx.Tx.SendBatch(ctx, b), tx.conn.placed}
}

// Commit commits the transaction.
func (tx *tenantTx) Commit(ctx context.Context) error {
	defer tx.conn.Release()
	if tx.committed {
		return nil
	}
	return FirstError(tx.Tx.Commit(ctx), tx.conn.replicated())
}

// Rollback rolls the transaction back, unless it is over.
func (tx *tenantTx) Rollback(ctx context.Context) error {
	defer tx.conn.Release()
	if tx.committed { // pgx doesn't know, and the connection may be with another caller by now
		return pgx.ErrTxClosed
	}
	return tx.Tx.Rollback(ctx)
}
