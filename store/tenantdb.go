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
	// acquire takes a connection; released is to be called once that was released.
	acquire func(context.Context) (conn *pgxpool.Conn, released func(), err error)
	roles   *roles
	tenant  string
}

// of returns the database for a tenant's work, or ("") for what belongs to none.
func (s *Store) of(tenant string) tenantDB {
	return tenantDB{func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		return s.shares.acquire(ctx, tenant)
	}, s.roles, tenant}
}

// hot is of over the connections that submit, lease and settle, for the work of a type.
func (s *Store) hot(key TypeKey) tenantDB {
	return tenantDB{func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		return s.hotPool.acquire(ctx, key)
	}, s.roles, key.Tenant}
}

// Begin begins a transaction.
func (db tenantDB) Begin(ctx context.Context) (pgx.Tx, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var options pgx.TxOptions
	if conn.role != "" {
		options.BeginQuery = `BEGIN; SET LOCAL ROLE ` + quote(conn.role)
	}
	tx, err := conn.conn.BeginTx(ctx, options)
	if err != nil {
		conn.Release()
		return nil, roleError(err)
	}
	return &tenantTx{tx, conn}, nil
}

// Query runs one statement. With a pgx.QueryExecMode it takes two more round trips.
func (db tenantDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(args) > 0 {
		if _, ok := args[0].(pgx.QueryExecMode); ok { // which a batch knows nothing of
			return db.queryAlone(ctx, sql, args...)
		}
	}
	conn, err := db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	br, err := conn.sendOne(ctx, sql, args)
	if err != nil {
		conn.Release()
		return nil, err
	}
	rows, err := br.Query()
	end := func() error {
		defer conn.Release()
		return firstError(br.Close(), conn.replicated())
	}
	if err != nil {
		_ = end() // says the same
		return nil, err
	}
	return &tenantRows{Rows: rows, end: end}, nil
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
	conn, err := db.Acquire(ctx)
	if err != nil {
		return tag, err
	}
	defer conn.Release()
	br, err := conn.sendOne(ctx, sql, args)
	if err != nil {
		return tag, err
	}
	tag, err = br.Exec()
	return tag, firstError(err, br.Close(), conn.replicated()) // its transaction commits with Close
}

// Send runs a batch, in one transaction.
func (db tenantDB) Send(ctx context.Context, b *pgx.Batch) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return conn.Send(ctx, b)
}

// Acquire returns a connection for transactions of several batches.
func (db tenantDB) Acquire(ctx context.Context) (*tenantConn, error) {
	role, err := db.role(ctx)
	if err != nil {
		return nil, err
	}
	conn, released, err := db.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &tenantConn{conn, role, released}, nil
}

// role returns the role of the tenant; "", to keep the connection's, for what belongs to none.
func (db tenantDB) role(ctx context.Context) (string, error) {
	if db.tenant == "" {
		return "", nil
	}
	return db.roles.of(ctx, db.tenant)
}

// outside runs a statement that can't be in a transaction.
func (db tenantDB) outside(ctx context.Context, sql string) error {
	ctx = patient(ctx)
	c, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	conn := c.conn
	if c.role == "" {
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if _, err := conn.Exec(ctx, `SET ROLE `+quote(c.role)); err != nil {
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
	conn     *pgxpool.Conn
	role     string
	released func() // nil once it is
}

// sendOne sends one statement in a transaction of its own. The next result is the
// statement's.
func (c *tenantConn) sendOne(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	if c.role != "" {
		b.Queue(setRole, c.role)
	}
	b.Queue(sql, args...)
	br := c.conn.SendBatch(ctx, b)
	if c.role == "" {
		return br, nil
	}
	if _, err := br.Exec(); err != nil {
		_ = br.Close() // says the same
		return nil, roleError(err)
	}
	return br, nil
}

// Send runs a batch: on its own, or in the transaction that it or an earlier one begins.
func (c *tenantConn) Send(ctx context.Context, b *pgx.Batch) error {
	if c.conn.Conn().PgConn().TxStatus() == 'I' {
		queueRole(b, c.role)
	}
	return firstError(roleError(c.conn.SendBatch(ctx, b).Close()), c.replicated())
}

// replicated returns errNotReplicated after a commit that no standby may have.
func (c *tenantConn) replicated() error { return replicated(c.conn.Conn()) }

// Query runs a statement in the transaction that is open.
func (c *tenantConn) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.conn.Query(ctx, sql, args...)
}

// Release gives the connection back. It is ended if its transaction is still open. Nothing
// happens the second time.
func (c *tenantConn) Release() {
	if c.released != nil {
		c.conn.Release()
		c.released()
		c.released = nil
	}
}

// tenantTx is a transaction that gives its connection back at its end.
type tenantTx struct {
	pgx.Tx
	conn *tenantConn
}

// Commit commits the transaction.
func (tx *tenantTx) Commit(ctx context.Context) error {
	defer tx.conn.Release()
	return firstError(tx.Tx.Commit(ctx), tx.conn.replicated())
}

// Rollback rolls the transaction back, unless it has ended.
func (tx *tenantTx) Rollback(ctx context.Context) error {
	defer tx.conn.Release()
	return tx.Tx.Rollback(ctx)
}

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
