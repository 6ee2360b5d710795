package store

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
)

// The second fence. Which tenant a request is for comes from its verified token; that
// is the first one. Should the store ever name another tenant's schema, Postgres refuses
// the statement: each tenant's schema belongs to a role of its own, and all work of the
// tenant is done in transactions under that role (see of and hot). Between them, and for
// what belongs to no tenant, a connection's role is the base role, which has the schema
// asyncflow, and of the tenants' tables only what surveyed names.

// roles are the database roles of a database, as they are in asyncflow.tenants and
// asyncflow.fence.
type roles struct {
	off  bool   // everything is done as whoever logs in
	base string // "" when off
	db   *pgxpool.Pool

	tenants atomic.Pointer[map[string]string] // as last read
}

// newRoles reads the base role.
func newRoles(ctx context.Context, db *pgxpool.Pool, off bool) (*roles, error) {
	r := &roles{off: off, db: db}
	r.tenants.Store(&map[string]string{})
	if off {
		return r, nil
	}
	var roleless string
	err := db.QueryRow(ctx, `SELECT coalesce(base_role, ''), coalesce((SELECT min(slug) FROM asyncflow.tenants WHERE role IS NULL), '')
		FROM asyncflow.fence`).Scan(&r.base, &roleless)
	switch {
	case err != nil:
		return nil, wrap(err, "newRoles")
	case r.base == "":
		return nil, asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database has no roles that keep tenants apart yet: run asyncflow migrate up, or do without: --database-roles=off")
	case roleless != "":
		return nil, noRole(roleless)
	}
	return r, nil
}

// put takes over the roles of all tenants, or of some. One call at a time.
func (r *roles) put(tenants map[string]string, all bool) {
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

// of returns the role of a tenant, "" when off. One that was made a moment ago is looked
// up.
func (r *roles) of(ctx context.Context, tenant string) (string, error) {
	if r.off {
		return "", nil
	}
	if role := (*r.tenants.Load())[tenant]; role != "" {
		return role, nil
	}
	var role string
	err := r.db.QueryRow(ctx, `SELECT coalesce(role, '') FROM asyncflow.tenants WHERE slug = $1`, tenant).Scan(&role)
	switch {
	case err == pgx.ErrNoRows:
		return "", asyncflow.Errorf(asyncflow.CodeNotFound, "there is no tenant %q", tenant)
	case err == nil && role == "":
		return "", noRole(tenant)
	}
	return role, wrap(err, "roles.of(%q)", tenant)
}

// noRole says that a tenant was made without a role.
func noRole(tenant string) error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable, "tenant %s has no database role yet: run asyncflow migrate up", tenant)
}

// setRole takes a role until the end of the transaction.
const setRole = `SELECT set_config('role', $1, true)`

// connectAsBase has a connection take the base role when it is made. A database without one
// is refused by checkSchema.
func connectAsBase(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := conn.Exec(ctx, `SELECT set_config('role', base_role, false) FROM asyncflow.fence WHERE base_role IS NOT NULL`).ReadAll()
	if sqlState(err) == "42P01" {
		return nil
	}
	return roleError(err)
}

// asBase gives the rest of a tenant's transaction the base role, for what is written in
// the schema asyncflow along with it.
func (r *roles) asBase(ctx context.Context, tx pgx.Tx) error {
	if r.off {
		return nil
	}
	_, err := tx.Exec(ctx, setRole, r.base)
	return err
}

// asTenant gives the rest of a transaction a tenant's role.
func (r *roles) asTenant(ctx context.Context, tx pgx.Tx, tenant string) error {
	role, err := r.of(ctx, tenant)
	if err != nil || role == "" {
		return err
	}
	_, err = tx.Exec(ctx, setRole, role)
	return roleError(err)
}

// asAny is asTenant or, without a tenant, asBase.
func (r *roles) asAny(ctx context.Context, tx pgx.Tx, tenant string) error {
	if tenant == "" {
		return r.asBase(ctx, tx)
	}
	return r.asTenant(ctx, tx, tenant)
}

// roleError says what is wrong where a role could not be taken.
func roleError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Routine != "call_string_check_hook" {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
		Message: "the database user can't take a role of asyncflow (" + pg.Message + "): run asyncflow migrate up as that user"}
}
