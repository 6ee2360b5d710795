package schema

import (
	"context"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// RoleFence makes the roles of a database and grants their rights. It has a lock, so that one
// process at a time does so: until it is closed, or until its transaction ends.
type RoleFence struct {
	db     querier
	conn   *pgx.Conn  // nil in a transaction
	own    *tableLock // nil in a transaction
	user   string     // the user of the connection
	prefix string     // of the names of roles, and the base role's name itself
	// logins says that tenants are, or come to be, on workers of Citus: see role_logins.go.
	logins bool
}

// querier is a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// OpenRoleFence connects and waits for the lock. The schema asyncflow must be current.
func OpenRoleFence(ctx context.Context, url string) (*RoleFence, error) {
	return openRoleFence(ctx, url, byHand)
}

func openRoleFence(ctx context.Context, url string, most patience) (*RoleFence, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, postgres.ConnectError(url, err)
	}
	f := &RoleFence{db: conn, conn: conn, own: &tableLock{db: stdlib.OpenDB(*conn.Config())}}
	if err := f.own.lock(ctx, fenceTable, most.others); err != nil {
		f.Close(ctx)
		return nil, missingFence(err)
	}
	if err := f.read(ctx); err != nil {
		f.Close(ctx)
		return nil, err
	}
	return f, nil
}

// RoleFenceIn is OpenRoleFence within a transaction, which gets the user of its connection.
func RoleFenceIn(ctx context.Context, tx pgx.Tx) (*RoleFence, error) {
	f := &RoleFence{db: tx}
	if _, err := tx.Exec(ctx, asUser); err != nil {
		return nil, postgres.Wrap(err, "RoleFenceIn")
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE `+fenceTable+` `+lockMode); err != nil {
		return f, missingFence(err)
	}
	return f, f.read(ctx)
}

// read reads what roles there are to be.
func (f *RoleFence) read(ctx context.Context) error {
	err := f.db.QueryRow(ctx, `SELECT current_user, prefix, `+postgres.DistributedSQL+`
		FROM asyncflow.fence`).Scan(&f.user, &f.prefix, &f.logins)
	if err != nil {
		return missingFence(err)
	}
	if f.logins {
		if _, err := f.db.Exec(ctx, keepNone); err != nil {
			return err
		}
	}
	return RefuseDevelopment(ctx, f.db)
}

// missingFence returns err or, if it says that there is no fence, ErrMissing.
func missingFence(err error) error {
	switch postgres.State(err) {
	case pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName:
		return ErrMissing()
	}
	return err
}

// Close closes the connections, which gives the lock back.
func (f *RoleFence) Close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	_ = f.own.unlock(ctx)
	_ = f.own.db.Close()
	_ = f.conn.Close(ctx)
}

// Conn returns the connection, for what is done under the lock.
func (f *RoleFence) Conn() *pgx.Conn { return f.conn }

// RoleOf returns the name of a tenant's role.
func (f *RoleFence) RoleOf(tenant string) string { return f.prefix + "_" + tenant }

// Create is the function Create, with roles: the tenant's owns the schema. It needs a transaction.
// enter makes the tenant's row. With distributed, PrepareWorkers was called before.
func (f *RoleFence) Create(
	ctx context.Context, tx pgx.Tx, tenant string, distributed bool, enter func() error,
) error {
	f.logins = f.logins || distributed
	n := newTenant{tenant: tenant, role: f.RoleOf(tenant), grants: f.tenantGrants(tenant)}
	if err := f.need(ctx, f.prefix, n.role); err != nil {
		return err
	}
	if err := create(ctx, tx, n); err != nil {
		return err
	}
	if distributed {
		if err := Distribute(ctx, tx, tenant, n.role); err != nil {
			return err
		}
	}
	if err := enter(); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE asyncflow.tenants SET grants = $2 WHERE slug = $1`, tenant,
		f.grantsHash())
	return err
}

// Migrate gives a tenant's schema to its role, brings it to the newest version as that role, grants
// the base role its rights there, and restores the rights of roles that submit by SQL.
func (f *RoleFence) Migrate(ctx context.Context, url, tenant string) (Status, error) {
	return f.migrate(ctx, url, tenant, byHand)
}

func (f *RoleFence) migrate(
	ctx context.Context, url, tenant string, most patience,
) (Status, error) {
	if err := f.giveSchema(ctx, tenant); err != nil {
		return Status{}, err
	}
	status, err := migrateOne(ctx, url, Of(tenant), migrations.Tenant(), f.RoleOf(tenant), most)
	if err != nil {
		return status, postgres.ConnectErrorOr(err, url)
	}
	if err := f.grantTenant(ctx, tenant); err != nil {
		return status, err
	}
	status.Restored, err = RestoreRights(ctx, f.db, tenant, f.RoleOf(tenant))
	return status, err
}

// Enter writes into a tenant's row that its schema and its grants are current, and its role. From
// then on nodes use the role. A schema that a newer program has migrated keeps its version.
func (f *RoleFence) Enter(ctx context.Context, tenant string) error {
	return f.EnterIn(ctx, f.db, tenant)
}

// EnterIn is Enter in a transaction.
func (f *RoleFence) EnterIn(ctx context.Context, q querier, tenant string) error {
	_, err := q.Exec(ctx, `UPDATE asyncflow.tenants
		SET schema_version = greatest(schema_version, $2), role = $3, grants = $4
		WHERE slug = $1`, tenant, LatestTenant(), f.RoleOf(tenant), f.grantsHash())
	return postgres.Wrap(err, "enter the role of %q", tenant)
}

// giveSchema makes a tenant's role and gives it the tenant's schema with everything in it.
// It may be repeated.
func (f *RoleFence) giveSchema(ctx context.Context, tenant string) error {
	role := f.RoleOf(tenant)
	schema := Of(tenant)
	if err := f.need(ctx, role); err != nil {
		return err
	}
	var ours bool
	err := f.db.QueryRow(ctx, `SELECT nspowner = $2::text::regrole FROM pg_namespace
		WHERE nspname = $1`, schema, postgres.Quote(role)).Scan(&ours)
	if err == nil && !ours {
		_, err = f.db.Exec(ctx,
			`ALTER SCHEMA `+postgres.Quote(schema)+` OWNER TO `+postgres.Quote(role))
	}
	if err != nil {
		return postgres.Wrap(err, "give schema %s to %s", schema, role)
	}
	rows, _ := f.db.Query(ctx, `
		SELECT 'TABLE ' || c.oid::regclass FROM pg_depend n JOIN pg_class c ON c.oid = n.objid
		WHERE n.refclassid = 'pg_namespace'::regclass AND n.refobjid = $1::text::regnamespace
		  AND n.classid = 'pg_class'::regclass AND n.objsubid = 0
		  AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relowner <> $2::text::regrole
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid
		    AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND relkind = 'S')
		UNION ALL
		SELECT 'ROUTINE ' || p.oid::regprocedure FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
		WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = $1::text::regnamespace
		  AND d.classid = 'pg_proc'::regclass AND proowner <> $2::text::regrole
		ORDER BY 1`, postgres.Quote(schema), postgres.Quote(role)) // CollectRows returns its error
	objects, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, object := range objects {
		err = postgres.FirstError(err, f.give(ctx, object, role))
	}
	return postgres.Wrap(err, "give what is in %s to %s", schema, role)
}

const (
	// givePatience is how long give waits for the lock of a table. It is short, as all
	// later statements on the table wait too.
	givePatience = "500ms"
	// giveTries is how often give tries, with givePause between two tries.
	giveTries = 60
	givePause = 500 * time.Millisecond
)

// give gives an object, such as "TABLE acme.tallies", to a role. Nodes may be using it.
func (f *RoleFence) give(ctx context.Context, object, role string) (err error) {
	for range giveTries {
		// One by one: Citus passes the whole text that an ALTER is in on to workers.
		err = pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) error {
			return f.run(ctx, tx, `SET LOCAL lock_timeout = '`+givePatience+`'`,
				`ALTER `+object+` OWNER TO `+postgres.Quote(role))
		})
		if postgres.State(err) != pgerrcode.LockNotAvailable {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(givePause):
		}
	}
	return err
}

// run runs statements in a transaction, the settings of which also hold on workers of Citus.
func (f *RoleFence) run(ctx context.Context, tx pgx.Tx, statements ...string) error {
	if f.logins {
		statements = append([]string{propagateLocal}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// need makes missing roles, and makes our user a member of each. Where tenants are on workers of
// Citus, the roles may log in, as members of one more role.
func (f *RoleFence) need(ctx context.Context, names ...string) error {
	if f.logins {
		names = append([]string{f.loginGroup()}, names...)
	}
	missing, err := f.missing(ctx, names)
	if err != nil {
		return postgres.Wrap(err, "look at roles")
	}
	for i, role := range missing {
		err := f.make(ctx, role)
		if postgres.State(err) == pgerrcode.InsufficientPrivilege {
			return f.mayNotMakeRoles(missing[i:], err)
		}
		if err != nil {
			return postgres.Wrap(err, "make role %s", role.name)
		}
	}
	return nil
}
