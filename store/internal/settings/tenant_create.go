package settings

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// CreateTenant makes a tenant's schema, its role and its row, and reports whether the tenant is
// new. A tenant that was deleted and isn't dropped yet is CodeConflict.
func CreateTenant(
	ctx context.Context, url, tenant string, opts ...Option,
) (created bool, err error) {
	if err := checkSlug(tenant); err != nil {
		return false, err
	}
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return false, postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	how := with(opts)
	if err := how.prepare(ctx, conn, url, tenant); err != nil {
		return false, postgres.Wrap(err, "CreateTenant(%q)", tenant)
	}
	err = postgres.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		_, created, err = makeTenant(ctx, tx, tenant, asyncflow.Quotas{}, how)
		return err
	})
	if errors.Is(err, schema.ErrThere) {
		_, created, err = adoptTenant(ctx, url, tenant, asyncflow.Quotas{}, how)
	}
	return created && err == nil, postgres.Wrap(err, "CreateTenant(%q)", tenant)
}

// CreateTenant makes a tenant with quotas of its own; CodeConflict if there is a tenant of that
// name.
func (s *tenants) CreateTenant(
	ctx context.Context, slug string, own asyncflow.Quotas,
) (t config.StoredTenant, err error) {
	if err := checkSlug(slug); err != nil {
		return t, err
	}
	// One at a time: the database makes no more, and other calls would keep connections waiting.
	if err := s.creating.Acquire(ctx, 1); err != nil {
		return t, postgres.Wrap(err, "CreateTenant(%q)", slug)
	}
	defer s.creating.Release(1)
	if err := s.options().prepare(ctx, s.core.Base, s.core.Config.URL, slug); err != nil {
		return t, postgres.Wrap(err, "CreateTenant(%q)", slug)
	}
	var created bool
	whole := func(tx pgx.Tx) (err error) {
		if t, created, err = makeTenant(ctx, tx, slug, own, s.options()); err != nil {
			return err
		}
		if !created {
			return asyncflow.Errorf(asyncflow.CodeConflict, "there is a tenant %s already", slug)
		}
		return s.core.Roles.AsBase(ctx, tx)
	}
	ctx = postgres.Patient(ctx) // another process may be making one
	err = audit.ChangeBase(ctx, s.core, slug, whole)
	if errors.Is(err, schema.ErrThere) {
		t, err = s.adopt(ctx, slug, own)
	}
	return t, postgres.Wrap(err, "CreateTenant(%q)", slug)
}

// options returns how this node makes tenants.
func (s *tenants) options() options {
	return options{noRoles: s.core.Config.NoRoles, notDistributed: s.core.Config.NotDistributed}
}

// distributes reports whether a new tenant is distributed.
func (o options) distributes(ctx context.Context, q postgres.Querier) (bool, error) {
	if o.notDistributed {
		return false, nil
	}
	return schema.Distributes(ctx, q)
}

// prepare makes ready what a new tenant needs on the workers of Citus, if it is to be on one of
// them.
func (o options) prepare(ctx context.Context, q postgres.Querier, url, slug string) error {
	distributed, err := o.distributes(ctx, q)
	if err != nil || !distributed {
		return err
	}
	if there, err := isThere(ctx, q, slug); err != nil || there { // it stays where it is
		return err
	}
	return schema.PrepareWorkers(ctx, url, slug, o.noRoles)
}

// adopt is CreateTenant for a tenant with a schema that is there already.
func (s *tenants) adopt(
	ctx context.Context, slug string, own asyncflow.Quotas,
) (config.StoredTenant, error) {
	t, created, err := adoptTenant(ctx, s.core.Config.URL, slug, own, s.options())
	if err != nil {
		return t, err
	}
	if !created {
		return t, asyncflow.Errorf(asyncflow.CodeConflict, "there is a tenant %s already", slug)
	}
	return t, audit.ChangeBase(ctx, s.core, slug, func(pgx.Tx) error { return nil })
}

func checkSlug(slug string) error {
	if err := asyncflow.CheckName(slug); err != nil {
		return asyncflow.InvalidField("tenant", "%v", err)
	}
	return nil
}

// makeTenant makes all of a new tenant in a transaction: its role, its schema and, unless it is
// there, its row. It reports whether it has made the row. If there is such a schema, it returns
// schema.ErrThere.
func makeTenant(
	ctx context.Context, tx pgx.Tx, slug string, own asyncflow.Quotas, how options,
) (t config.StoredTenant, created bool, err error) {
	if how.noRoles {
		return makePlain(ctx, tx, slug, own, how)
	}
	f, err := schema.RoleFenceIn(ctx, tx)
	if err != nil {
		return t, false, err
	}
	if err := checkNew(ctx, tx, slug); err != nil {
		return t, false, err
	}
	distributed, err := how.distributes(ctx, tx)
	if err != nil {
		return t, false, err
	}
	if err := f.EnsureBase(ctx); err != nil {
		return t, false, err
	}
	err = f.Create(ctx, tx, slug, distributed, func() (err error) {
		t, created, err = enterTenant(ctx, tx, slug, f.RoleOf(slug), own)
		return err
	})
	return t, created, err
}

// makePlain is makeTenant without a role.
func makePlain(
	ctx context.Context, tx pgx.Tx, slug string, own asyncflow.Quotas, how options,
) (t config.StoredTenant, created bool, err error) {
	if err := schema.RefuseDevelopment(ctx, tx); err != nil {
		return t, false, err
	}
	if err := checkNew(ctx, tx, slug); err != nil {
		return t, false, err
	}
	distributed, err := how.distributes(ctx, tx)
	if err != nil {
		return t, false, err
	}
	if err := schema.Create(ctx, tx, slug, distributed); err != nil {
		return t, false, err
	}
	return enterTenant(ctx, tx, slug, "", own)
}

// checkNew is checkName that returns schema.ErrThere if there is a schema of that name.
func checkNew(ctx context.Context, tx pgx.Tx, slug string) error {
	if err := checkName(ctx, tx, slug); err != nil {
		return err
	}
	there, err := isThere(ctx, tx, slug)
	if err == nil && there {
		err = schema.ErrThere
	}
	return err
}

// isThere reports whether there is a schema of a tenant's name.
func isThere(ctx context.Context, q postgres.Querier, slug string) (there bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`,
		schema.Of(slug)).Scan(&there)
	return there, err
}

// adoptTenant completes a tenant that is there in part, and reports whether its row was missing. If
// it fails, there is no row, so that another call goes on.
func adoptTenant(
	ctx context.Context, url, slug string, own asyncflow.Quotas, how options,
) (t config.StoredTenant, created bool, err error) {
	if how.noRoles {
		return adoptPlain(ctx, url, slug, own, how)
	}
	f, err := schema.OpenRoleFence(ctx, url)
	if err != nil {
		return t, false, postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	if err := checkName(ctx, f.Conn(), slug); err != nil {
		return t, false, err
	}
	if err := f.EnsureBase(ctx); err != nil {
		return t, false, err
	}
	if _, err = f.Migrate(ctx, url, slug); err != nil {
		return t, false, err
	}
	err = postgres.BeginFunc(ctx, f.Conn(), func(tx pgx.Tx) (err error) {
		if t, created, err = enterTenant(ctx, tx, slug, f.RoleOf(slug), own); err != nil {
			return err
		}
		if err := f.EnterIn(ctx, tx, slug); err != nil {
			return err
		}
		_, err = schema.RestoreRights(ctx, tx, slug, f.RoleOf(slug)) // now that there is a row
		return err
	})
	return t, created, err
}

// adoptPlain is adoptTenant without a role.
func adoptPlain(
	ctx context.Context, url, slug string, own asyncflow.Quotas, how options,
) (t config.StoredTenant, created bool, err error) {
	_, err = schema.MigrateOne(ctx, url, schema.Of(slug), migrations.Tenant(), "")
	if err != nil {
		return t, false, postgres.ConnectErrorOr(err, url)
	}
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return t, false, postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	err = postgres.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if t, created, err = enterTenant(ctx, tx, slug, "", own); err != nil {
			return err
		}
		if _, err = schema.RestoreRights(ctx, tx, slug, ""); err != nil || !created {
			return err // a tenant that was there stays where it is
		}
		distributed, err := how.distributes(ctx, tx)
		if err != nil || !distributed {
			return err
		}
		return schema.Distribute(ctx, tx, slug, "")
	})
	return t, created, err
}

// checkName refuses the name of a deleted tenant that isn't dropped yet, and a database without
// a current schema.
func checkName(ctx context.Context, q postgres.Querier, slug string) error {
	t, err := config.ReadTenant(ctx, q, slug, "")
	switch state := postgres.State(err); {
	case state == pgerrcode.UndefinedTable || state == pgerrcode.UndefinedColumn:
		return schema.ErrMissing()
	case err == nil && !t.DeletedAt.IsZero():
		return stillThere(t)
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		return nil
	}
	return postgres.Wrap(err, "CreateTenant(%q)", slug)
}

// enterTenant makes a tenant's row, if there is none, and returns it.
func enterTenant(
	ctx context.Context, tx pgx.Tx, slug, role string, own asyncflow.Quotas,
) (t config.StoredTenant, created bool, err error) {
	created, err = insertTenant(ctx, tx, slug, role, own)
	if err != nil {
		return t, created, postgres.Wrap(err, "CreateTenant(%q)", slug)
	}
	t, err = config.ReadTenant(ctx, tx, slug, "")
	return t, created, postgres.Wrap(err, "CreateTenant(%q)", slug)
}

// stillThere returns the error of a deleted tenant's name that isn't free yet.
func stillThere(t config.StoredTenant) error {
	if t.State() == asyncflow.TenantDropping {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"the tenant %s is being dropped; its name is free when it is gone", t.Slug)
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"the tenant %s was deleted and is kept until %s: restore it, or delete it now",
		t.Slug, t.DropAt.UTC().Format(time.RFC3339))
}

// insertTenant makes a tenant's row, if there is none. If there was a tenant of that name
// before, the task types begin after all positions that the earlier tenant used.
func insertTenant(
	ctx context.Context, tx pgx.Tx, slug, role string, own asyncflow.Quotas,
) (bool, error) {
	quotas, err := json.Marshal(own)
	if err != nil {
		return false, err
	}
	var endPos *int
	err = tx.QueryRow(ctx, `
		INSERT INTO asyncflow.tenants AS t (slug, schema_version, version, quotas, tokens_from,
		  role)
		SELECT $1, $2::bigint, coalesce(r.version, 0) + 1, $3::text::json,
		  CASE WHEN r.slug IS NOT NULL
		  THEN now() END, nullif($4, '')
		FROM (SELECT 1) one LEFT JOIN asyncflow.retired_tenants r ON r.slug = $1
		ON CONFLICT (slug) DO NOTHING
		RETURNING (SELECT end_pos FROM asyncflow.retired_tenants WHERE slug = $1)`,
		slug, schema.LatestTenant(), string(quotas), role).Scan(&endPos)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil:
		err = hot.NumberTenant(ctx, tx, slug)
	}
	if err != nil || endPos == nil {
		return err == nil, err
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO `+postgres.Quote(schema.Of(slug))+`.retired_types (name, end_pos)
			VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET end_pos = excluded.end_pos`, everyType, *endPos)
	return err == nil, err
}

// everyType stands for every type in retired_types: its row has the last position of an earlier
// tenant of that name.
const everyType = "*"
