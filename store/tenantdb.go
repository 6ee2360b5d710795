package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tenantDB is the database as a tenant may use it: each statement and transaction takes
// the tenant's role in its own transaction, in the same round trip as what it is for, and
// Postgres takes the role back when the transaction ends, however it does. So no
// connection ever keeps one, and nothing is remembered of a connection.
type tenantDB struct {
	pool   *pgxpool.Pool
	roles  *roles
	tenant string
}

// of returns the database for a tenant's work.
func (s *Store) of(tenant string) tenantDB { return tenantDB{s.base, s.roles, tenant} }

// hot is of over the connections that submit, lease and settle.
func (s *Store) hot(tenant string) tenantDB { return tenantDB{s.hotPool, s.roles, tenant} }

// database is the database for the work of a tenant, or for what belongs to none.
type database interface {
	querier
	execer
	Begin(ctx context.Context) (pgx.Tx, error)
}

// anyOf returns the database for a tenant's work, or ("") for what belongs to none.
func (s *Store) anyOf(tenant string) database {
	if tenant == "" {
		return s.base
	}
	return s.of(tenant)
}

// Begin begins a transaction.
func (db tenantDB) Begin(ctx context.Context) (pgx.Tx, error) {
	role, err := db.roles.of(ctx, db.tenant)
	switch {
	case err != nil:
		return nil, err
	case role == "":
		return db.pool.Begin(ctx)
	}
	tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: `BEGIN; SET LOCAL ROLE ` + quote(role)})
	return tx, roleError(err)
}

// Query runs one statement. With a pgx.QueryExecMode it takes two more round trips.
func (db tenantDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	role, err := db.roles.of(ctx, db.tenant)
	switch {
	case err != nil:
		return nil, err
	case role == "":
		return db.pool.Query(ctx, sql, args...)
	}
	if len(args) > 0 {
		if _, ok := args[0].(pgx.QueryExecMode); ok { // which a batch knows nothing of
			return db.queryAlone(ctx, sql, args...)
		}
	}
	br, err := db.sendOne(ctx, role, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := br.Query()
	if err != nil {
		_ = br.Close() // says the same
		return nil, err
	}
	return &tenantRows{Rows: rows, end: br.Close}, nil
}

// sendOne sends one statement under a role; the first result is taken already.
func (db tenantDB) sendOne(ctx context.Context, role, sql string, args []any) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	b.Queue(setRole, role)
	b.Queue(sql, args...)
	br := db.pool.SendBatch(ctx, b)
	if _, err := br.Exec(); err != nil {
		_ = br.Close() // says the same
		return nil, roleError(err)
	}
	return br, nil
}

func (db tenantDB) queryAlone(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return &tenantRows{Rows: rows, end: func() error { return tx.Commit(ctx) }}, nil
}

// QueryRow runs a statement that returns one row.
func (db tenantDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := db.Query(ctx, sql, args...)
	return tenantRow{rows, err}
}

// Exec runs a statement that returns no rows.
func (db tenantDB) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	role, err := db.roles.of(ctx, db.tenant)
	switch {
	case err != nil:
		return tag, err
	case role == "":
		return db.pool.Exec(ctx, sql, args...)
	}
	br, err := db.sendOne(ctx, role, sql, args)
	if err != nil {
		return tag, err
	}
	tag, err = br.Exec()
	return tag, firstError(err, br.Close()) // its transaction commits with Close
}

// Send runs a batch, in one transaction.
func (db tenantDB) Send(ctx context.Context, b *pgx.Batch) error {
	role, err := db.roles.of(ctx, db.tenant)
	if err != nil {
		return err
	}
	queueRole(b, role)
	return roleError(db.pool.SendBatch(ctx, b).Close())
}

// Acquire returns a connection for transactions of several batches.
func (db tenantDB) Acquire(ctx context.Context) (*tenantConn, error) {
	role, err := db.roles.of(ctx, db.tenant)
	if err != nil {
		return nil, err
	}
	conn, err := db.pool.Acquire(ctx)
	return &tenantConn{conn, role}, err
}

// outside runs a statement that can't be in a transaction.
func (db tenantDB) outside(ctx context.Context, sql string) error {
	role, err := db.roles.of(ctx, db.tenant)
	if err != nil {
		return err
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if role == "" {
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if _, err := conn.Exec(ctx, `SET ROLE `+quote(role)); err != nil {
		return roleError(err)
	}
	_, err = conn.Exec(ctx, sql)
	if _, back := conn.Exec(ctx, `SET ROLE `+quote(db.roles.base)); back != nil {
		_ = conn.Conn().Close(ctx) // nobody gets it with that role
	}
	return err
}

// tenantConn is a connection that batches of a tenant are sent over.
type tenantConn struct {
	conn *pgxpool.Conn
	role string
}

// Send runs a batch: on its own, or in the transaction that it or an earlier one begins.
func (c *tenantConn) Send(ctx context.Context, b *pgx.Batch) error {
	if c.conn.Conn().PgConn().TxStatus() == 'I' {
		queueRole(b, c.role)
	}
	return roleError(c.conn.SendBatch(ctx, b).Close())
}

// Query runs a statement in the transaction that is open.
func (c *tenantConn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.conn.Query(ctx, sql, args...)
}

// Release gives the connection back. It is ended if its transaction is still open.
func (c *tenantConn) Release() { c.conn.Release() }

// queueRole has a batch take a role first of all, or after its BEGIN.
func queueRole(b *pgx.Batch, role string) {
	if role == "" || len(b.QueuedQueries) == 0 {
		return
	}
	at := 0
	if strings.HasPrefix(b.QueuedQueries[0].SQL, "BEGIN") {
		at = 1
	}
	b.Queue(setRole, role)
	last := len(b.QueuedQueries) - 1
	q := b.QueuedQueries[last]
	copy(b.QueuedQueries[at+1:], b.QueuedQueries[at:last])
	b.QueuedQueries[at] = q
}

// tenantRows are rows at whose end something else ends: a batch, or a transaction.
type tenantRows struct {
	pgx.Rows
	end func() error
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

// Close ends the rows, and what they came from.
func (r *tenantRows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.err, r.end = r.end(), nil
	}
}

// Err returns why there are no more rows; nil if all were read.
func (r *tenantRows) Err() error { return firstError(r.Rows.Err(), r.err) }

// tenantRow is the first of some rows.
type tenantRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row; pgx.ErrNoRows when there is none.
func (r tenantRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		return firstError(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
