package postgres

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
)

// The role fence is the second fence between tenants. The first one is the verified token, which
// says what schema a request uses. Should the store ever name another tenant's schema, Postgres
// refuses the statement: each tenant's schema belongs to a role of its own, and all work of the
// tenant runs in transactions under that role (see TenantDB). At other times, and for work that
// belongs to no tenant, a connection keeps the base role. That role owns the rights to the schema
// asyncflow, and may read the columns of tenants' tables that package schema names (surveyed).

// Roles are the roles of a database, as asyncflow.tenants and asyncflow.fence name them.
// It is safe for concurrent use.
type Roles struct {
	off  bool   // the user of the URL does everything
	base string // "" when off
	db   *pgxpool.Pool

	tenants atomic.Pointer[map[string]string] // role by slug, as last read
}

// NewRoles reads the base role. With off there are no roles: the user of the URL does
// everything.
func NewRoles(ctx context.Context, db *pgxpool.Pool, off bool) (*Roles, error) {
	r := &Roles{off: off, db: db}
	r.tenants.Store(&map[string]string{})
	if off {
		return r, nil
	}
	var roleless string
	err := db.QueryRow(ctx, `SELECT coalesce(base_role, ''),
		coalesce((SELECT min(slug) FROM asyncflow.tenants WHERE role IS NULL), '')
		FROM asyncflow.fence`).Scan(&r.base, &roleless)
	switch {
	case err != nil:
		return nil, Wrap(err, "postgres.NewRoles")
	case r.base == "":
		return nil, asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database has no roles that keep tenants apart yet: "+
				"run asyncflow migrate up, or do without: --database-roles=off")
	case roleless != "":
		return nil, ErrNoRole(roleless)
	}
	return r, nil
}

// Off reports whether there are no roles.
func (r *Roles) Off() bool { return r.off }

// Base returns the base role, "" when off.
func (r *Roles) Base() string { return r.base }

// Put takes over the roles of some tenants, or of all tenants there are. Only one call may
// be under way at a time.
func (r *Roles) Put(tenants map[string]string, all bool) {
	known := *r.tenants.Load()
	if !all {
		all := maps.Clone(known)
		maps.Copy(all, tenants)
		tenants = all
	}
	if !maps.Equal(known, tenants) {
		r.tenants.Store(&tenants)
	}
}

// Of returns the role of a tenant, "" when off. It reads the role of a tenant that was
// made a moment ago.
func (r *Roles) Of(ctx context.Context, tenant string) (string, error) {
	if r.off {
		return "", nil
	}
	if role := (*r.tenants.Load())[tenant]; role != "" {
		return role, nil
	}
	var role string
	err := r.db.QueryRow(ctx, `SELECT coalesce(role, '') FROM asyncflow.tenants WHERE slug = $1`,
		tenant).Scan(&role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", asyncflow.Errorf(asyncflow.CodeNotFound, "there is no tenant %q", tenant)
	case err == nil && role == "":
		return "", ErrNoRole(tenant)
	}
	return role, Wrap(err, "Roles.Of(%q)", tenant)
}

// ErrNoRole returns the error of a tenant that was made without a role.
func ErrNoRole(tenant string) error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"tenant %s has no database role yet: run asyncflow migrate up", tenant)
}

// setRole takes a role until the end of the transaction.
const setRole = `SELECT set_config('role', $1, true)`

// assumeBaseRole gives a new connection the base role, by its name or ("") as the database says. It
// accepts a database without one: schema.Check refuses that.
func assumeBaseRole(ctx context.Context, conn *pgconn.PgConn, base string) error {
	if base != "" {
		_, err := conn.Exec(ctx, `SET ROLE `+Quote(base)).ReadAll()
		return roleError(err)
	}
	_, err := conn.Exec(ctx, `SELECT set_config('role', base_role, false)
		FROM asyncflow.fence WHERE base_role IS NOT NULL`).ReadAll()
	if State(err) == pgerrcode.UndefinedTable {
		return nil
	}
	return roleError(err)
}

// AsBase gives the rest of a tenant's transaction the base role, which may write in the
// schema asyncflow.
func (r *Roles) AsBase(ctx context.Context, tx pgx.Tx) error {
	if r.off {
		return nil
	}
	_, err := tx.Exec(ctx, setRole, r.base)
	return roleError(err)
}

// AsTenant gives the rest of a transaction a tenant's role.
func (r *Roles) AsTenant(ctx context.Context, tx pgx.Tx, tenant string) error {
	role, err := r.Of(ctx, tenant)
	if err != nil || role == "" {
		return err
	}
	_, err = tx.Exec(ctx, setRole, role)
	return roleError(err)
}

// QueueTenant queues the statement that gives the rest of a batch's transaction a tenant's role.
func (r *Roles) QueueTenant(ctx context.Context, b *pgx.Batch, tenant string) error {
	role, err := r.Of(ctx, tenant)
	if err == nil && role != "" {
		b.Queue(setRole, role)
	}
	return err
}

// AsAny is AsTenant or, without a tenant (""), AsBase.
func (r *Roles) AsAny(ctx context.Context, tx pgx.Tx, tenant string) error {
	if tenant == "" {
		return r.AsBase(ctx, tx)
	}
	return r.AsTenant(ctx, tx, tenant)
}

// roleError explains the error of a role that could not be taken, and returns any other
// err as it is.
func roleError(err error) error {
	if !isRoleRefused(err) {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
		Message: "the database user can't take a role of asyncflow (" + message(err) +
			"): run asyncflow migrate up as that user"}
}

// isRoleRefused reports whether Postgres refused to give a connection a role: there is none of that
// name, or the user may not take it. The SQLSTATE is one of bad data, or of a statement's missing
// right, but what was asked isn't to blame. The only text that asyncflow sets after a connection's
// settings is a role.
func isRoleRefused(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Routine == "call_string_check_hook"
}
