package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTime bounds the end of a failed transaction.
const rollbackTime = time.Second

// TenantConn is a connection for batches of a tenant.
type TenantConn struct {
	conn     *pgxpool.Conn
	role     string // "": that of the connection
	entry    *entry
	released func() // nil after Release
}

// sendOne sends one statement in a transaction of its own. The next result is the
// statement's.
func (c *TenantConn) sendOne(
	ctx context.Context, sql string, args []any,
) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	enters := c.entry.queue(b, c.role)
	b.Queue(sql, args...)
	br := c.conn.SendBatch(ctx, b)
	if !enters {
		return br, nil
	}
	if _, err := br.Exec(); err != nil {
		_ = br.Close() // it returns the same error
		return nil, roleError(err)
	}
	return br, nil
}

// Send runs a batch. The batch is a transaction by itself, or a part of the one that it or
// an earlier batch begins.
func (c *TenantConn) Send(ctx context.Context, b *pgx.Batch) error {
	if c.conn.Conn().PgConn().TxStatus() == 'I' {
		c.enter(b)
	}
	return FirstError(roleError(c.conn.SendBatch(ctx, b).Close()), c.replicated())
}

// replicated returns ErrNotReplicated after a commit that may be on no standby.
func (c *TenantConn) replicated() error { return replicated(c.conn.Conn()) }

// Query runs a statement in the open transaction.
func (c *TenantConn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.conn.Query(ctx, sql, args...)
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

// enter puts the statement that a transaction begins with first in a batch, or behind its BEGIN.
func (c *TenantConn) enter(b *pgx.Batch) {
	if len(b.QueuedQueries) == 0 || !c.entry.queue(b, c.role) {
		return
	}
	at := 0
	if strings.HasPrefix(b.QueuedQueries[0].SQL, "BEGIN") {
		at = 1
	}
	last := len(b.QueuedQueries) - 1
	q := b.QueuedQueries[last]
	copy(b.QueuedQueries[at+1:], b.QueuedQueries[at:last])
	b.QueuedQueries[at] = q
}

// tenantTx is a transaction that releases its connection at its end.
type tenantTx struct {
	pgx.Tx
	conn      *TenantConn
	committed bool
}

// CommitWith runs the last statements of a transaction of a TenantDB and commits it, in one round
// trip. Then nothing is left to Commit but to be called.
func CommitWith(ctx context.Context, tx pgx.Tx, last *pgx.Batch) error {
	t := tx.(*tenantTx)
	last.Queue("COMMIT")
	err := FirstError(t.conn.conn.SendBatch(ctx, last).Close(), t.conn.replicated())
	t.committed = err == nil
	return err
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

// tenantRows are rows that at their end also end their batch or transaction.
type tenantRows struct {
	pgx.Rows
	end func() error // nil once called
	err error
}

// Next goes to the next row, and closes the rows after the last one.
func (r *tenantRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close ends the rows, and their batch or transaction.
func (r *tenantRows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.err = r.end()
		r.end = nil
	}
}

// Err returns why there are no more rows; nil if all were read.
func (r *tenantRows) Err() error { return FirstError(r.Rows.Err(), r.err) }

// failedRows are the rows of a statement that failed.
type failedRows struct {
	pgx.Rows // nil
	err      error
}

func (r failedRows) Next() bool { return false }
func (r failedRows) Close()     {}
func (r failedRows) Err() error { return r.err }

// tenantRow is the first row of a query.
type tenantRow struct{ rows pgx.Rows }

// Scan reads the row; pgx.ErrNoRows when there is none.
func (r tenantRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		return FirstError(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
