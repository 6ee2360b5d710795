package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// CreateTenant makes a tenant's schema, its role and its row, and reports whether the tenant is
// new. A tenant that was deleted and isn't dropped yet is CodeConflict.
func CreateTenant(
	ctx context.Context,
	url, tenant string,
	opts ...Option,
) (created bool, err error) {
	_, created, err = createTenant(ctx, url, tenant, asyncflow.Quotas{}, with(opts).noRoles)
	return created, err
}

// CreateTenant makes a tenant with quotas of its own; CodeConflict if there is a tenant of that
// name.
func (s *Store) CreateTenant(
	ctx context.Context,
	slug string,
	own asyncflow.Quotas,
) (StoredTenant, error) {
	t, created, err := createTenant(ctx, s.cfg.URL, slug, own, s.cfg.NoRoles)
	switch {
	case err != nil:
		return t, err
	case !created:
		return t, asyncflow.Errorf(asyncflow.CodeConflict, "there is a tenant %s already", slug)
	}
	return t, s.changeBase(ctx, slug, func(pgx.Tx) error { return nil })
}

func createTenant(
	ctx context.Context,
	url, slug string,
	own asyncflow.Quotas,
	noRoles bool,
) (t StoredTenant, created bool, err error) {
	if err := asyncflow.CheckName(slug); err != nil {
		return t, false, asyncflow.InvalidField("tenant", "%v", err)
	}
	if noRoles {
		return createPlain(ctx, url, slug, own)
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
	enter := func(tx pgx.Tx) (err error) {
		t, created, err = enterTenant(ctx, tx, slug, f.RoleOf(slug), own)
		return err
	}
	done, err := f.Create(ctx, slug, enter)
	if err == nil && !done {
		if _, err = f.Migrate(ctx, url, slug); err == nil {
			err = pgx.BeginFunc(ctx, f.Conn(), enter)
		}
	}
	if err == nil && !created {
		err = f.Enter(ctx, slug)
	}
	return t, created, err
}

// createPlain is createTenant without a role.
func createPlain(
	ctx context.Context,
	url, slug string,
	own asyncflow.Quotas,
) (t StoredTenant, created bool, err error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return t, false, postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	if err := checkName(ctx, conn, slug); err != nil {
		return t, false, err
	}
	enter := func(tx pgx.Tx) (err error) {
		t, created, err = enterTenant(ctx, tx, slug, "", own)
		return err
	}
	done, err := schema.Create(ctx, conn, slug, enter)
	if err == nil && !done {
		_, err = schema.MigrateOne(ctx, url, schemaOf(slug), migrations.Tenant(), "")
		if err != nil {
			return t, false, postgres.ConnectErrorOr(err, url)
		}
		err = pgx.BeginFunc(ctx, conn, enter)
	}
	return t, created, err
}

// checkName refuses the name of a deleted tenant that isn't dropped yet, and a database without
// a current schema.
func checkName(ctx context.Context, conn *pgx.Conn, slug string) error {
	t, err := readTenant(ctx, conn, slug, "")
	switch state := sqlState(err); {
	case state == pgerrcode.UndefinedTable || state == pgerrcode.UndefinedColumn:
		return schema.ErrMissing()
	case err == nil && !t.DeletedAt.IsZero():
		return stillThere(t)
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		return nil
	}
	return wrap(err, "CreateTenant(%q)", slug)
}

// enterTenant makes a tenant's row, if there is none, and returns it.
func enterTenant(
	ctx context.Context,
	tx pgx.Tx,
	slug, role string,
	own asyncflow.Quotas,
) (t StoredTenant, created bool, err error) {
	if created, err = insertTenant(ctx, tx, slug, role, own); err == nil {
		t, err = readTenant(ctx, tx, slug, "")
	}
	return t, created, wrap(err, "CreateTenant(%q)", slug)
}

// stillThere returns the error of a deleted tenant's name that isn't free yet.
func stillThere(t StoredTenant) error {
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
	ctx context.Context,
	tx pgx.Tx,
	slug, role string,
	own asyncflow.Quotas,
) (bool, error) {
	quotas, err := json.Marshal(own)
	if err != nil {
		return false, err
	}
	var endPos *int
	err = tx.QueryRow(ctx, `
		INSERT INTO asyncflow.tenants AS t (slug, schema_version, version, quotas, tokens_from, role)
		SELECT $1, $2::bigint, coalesce(r.version, 0) + 1, $3::text::json, CASE WHEN r.slug IS NOT NULL
		  THEN now() END, nullif($4, '')
		FROM (SELECT 1) one LEFT JOIN asyncflow.retired_tenants r ON r.slug = $1
		ON CONFLICT (slug) DO NOTHING
		RETURNING (SELECT end_pos FROM asyncflow.retired_tenants WHERE slug = $1)`,
		slug, schema.LatestTenant(), string(quotas), role).Scan(&endPos)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err == nil:
		err = numberTenant(ctx, tx, slug)
	}
	if err != nil || endPos == nil {
		return err == nil, err
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO `+quote(schemaOf(slug))+`.retired_types (name, end_pos) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET end_pos = excluded.end_pos`, everyType, *endPos)
	return err == nil, err
}

// everyType stands for every type in retired_types: its row has the last position of an earlier
// tenant of that name.
const everyType = "*"
