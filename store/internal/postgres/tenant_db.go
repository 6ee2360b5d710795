package postgres

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TenantDB is the database as a tenant may use it. Each statement and transaction takes
// the tenant's role in its own transaction, in the same round trip as its own statement.
// Postgres takes the role back when the transaction ends, however it does. So no
// connection ever keeps a role, and nothing is remembered about a connection.
type TenantDB struct {
	acquire Acquire
	roles   *Roles
	tenant  string
	placed  *PlacedTables // where the connections lead; nil: statements stay as they are
	// patience is how long a transaction waits for the tenant's place; "": as for any lock.
	patience string
}

// Acquire takes a connection from a pool. The caller calls released after it released the
// connection.
type Acquire func(context.Context) (conn *pgxpool.Conn, released func(), err error)

// NewTenantDB returns the database for a tenant's work, over connections from acquire. Work
// that belongs to no tenant ("") keeps the connection's role.
func NewTenantDB(acquire Acquire, roles *Roles, tenant string) TenantDB {
	return TenantDB{acquire: acquire, roles: roles, tenant: tenant}
}

// WithPlaced returns the database in which statements name the tenant's placed tables.
func (db TenantDB) WithPlaced(placed *PlacedTables) TenantDB {
	db.placed = placed
	return db
}

// WithPatience returns the database in which a transaction waits for the tenant's place for a time,
// and for locks as long as its connections say. While the tenant moves, it can't have the place.
func (db TenantDB) WithPatience(place string) TenantDB {
	db.patience = place
	return db
}

// Begin begins a transaction.
func (db TenantDB) Begin(ctx context.Context) (pgx.Tx, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: conn.entry.begin(conn.role)})
	if err != nil {
		conn.Release()
		return nil, roleError(err)
	}
	if err := conn.keepPlace(ctx, tx); err != nil {
		_ = tx.Rollback(ctx)
		conn.Release()
		return nil, err
	}
	return &tenantTx{Tx: tx, conn: conn}, nil
}

// Query runs one statement. With a pgx.QueryExecMode it takes two more round trips. As with pgx,
// the rows may be read after an error, which they return.
func (db TenantDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if len(args) > 0 {
		if _, ok := args[0].(pgx.QueryExecMode); ok { // a batch can't take one
			return db.queryAlone(ctx, sql, args...)
		}
	}
	conn, err := db.Acquire(ctx)
	if err != nil {
		return failedRows{err: err}, err
	}
	br, err := conn.sendOne(ctx, sql, args)
	if err != nil {
		conn.Release()
		return failedRows{err: err}, err
	}
	rows, err := br.Query()
	end := func() error {
		defer conn.Release()
		return conn.note(FirstError(br.Close(), conn.replicated()))
	}
	if err != nil {
		_ = end() // it returns the same error
		return failedRows{err: err}, err
	}
	return &tenantRows{Rows: rows, end: end}, nil
}

// queryAlone runs one statement in a transaction that is begun by itself.
func (db TenantDB) queryAlone(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return failedRows{err: err}, err
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		_ = tx.Rollback(ctx)
		return failedRows{err: err}, err
	}
	return &tenantRows{Rows: rows, end: func() error { return tx.Commit(ctx) }}, nil
}

// QueryRow runs a statement that returns one row.
func (db TenantDB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := db.Query(ctx, sql, args...) // Scan returns its error
	return tenantRow{rows}
}

// Exec runs a statement that returns no rows.
func (db TenantDB) Exec(
	ctx context.Context, sql string, args ...any,
) (tag pgconn.CommandTag, err error) {
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
	// The transaction commits with Close.
	return tag, conn.note(FirstError(err, br.Close(), conn.replicated()))
}

// QueryWithin runs a query that the database ends after a time. It is planned like the hot
// statements.
func (db TenantDB) QueryWithin(
	ctx context.Context, most time.Duration, collect func(pgx.Rows) error,
	sql string, args ...any,
) error {
	settings := maps.Clone(HotSettings)
	most = max(most, time.Millisecond)
	settings["statement_timeout"] = strconv.FormatInt(most.Milliseconds(), 10)
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	QueueSettings(b, settings)
	b.Queue(sql, args...).Query(collect)
	b.Queue("COMMIT")
	return db.Send(ctx, b)
}

// Send runs a batch in one transaction.
func (db TenantDB) Send(ctx context.Context, b *pgx.Batch) error {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return conn.Send(ctx, b)
}

// Acquire returns a connection for transactions of several batches.
func (db TenantDB) Acquire(ctx context.Context) (*TenantConn, error) {
	role, err := db.role(ctx)
	if err != nil {
		return nil, err
	}
	conn, released, err := db.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &TenantConn{conn: conn, role: role, entry: entryOf(conn), placed: db.placed,
		patience: db.patience, released: released}, nil
}

// role returns the tenant's role. For work that belongs to no tenant it is "": it keeps the
// connection's role.
func (db TenantDB) role(ctx context.Context) (string, error) {
	if db.tenant == "" {
		return "", nil
	}
	return db.roles.Of(ctx, db.tenant)
}

// Outside runs a statement that can't be in a transaction, over a direct connection.
func (db TenantDB) Outside(ctx context.Context, sql string) error {
	ctx = Direct(Patient(ctx))
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
	if _, err := conn.Exec(ctx, `SET ROLE `+Quote(c.role)); err != nil {
		return roleError(err)
	}
	_, err = conn.Exec(ctx, sql)
	if _, back := conn.Exec(ctx, `SET ROLE `+Quote(db.roles.base)); back != nil {
		_ = conn.Conn().Close(ctx) // no other caller may get it with that role
	}
	return err
}
