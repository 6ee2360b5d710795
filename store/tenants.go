package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
)

// baseSchema is the schema of what belongs to no tenant.
const baseSchema = "asyncflow"

// schemaOf returns the schema of a tenant.
func schemaOf(tenant string) string { return "tenant_" + tenant }

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

// CreateTenant makes a tenant's schema, its role and its row, and tells whether it is
// new.
func CreateTenant(ctx context.Context, url, tenant string, opts ...Option) (created bool, err error) {
	if err := asyncflow.CheckName(tenant); err != nil {
		return false, asyncflow.InvalidField("tenant", "%v", err)
	}
	if !with(opts).noRoles {
		return createFenced(ctx, url, tenant)
	}
	if _, err := migrateSchema(ctx, url, schemaOf(tenant), migrations.Tenant(), ""); err != nil {
		return false, connectOr(err, url)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, connectError(url, err)
	}
	defer conn.Close(ctx)
	return insertTenant(ctx, conn, tenant, "")
}

// createFenced is CreateTenant with a role.
func createFenced(ctx context.Context, url, tenant string) (created bool, err error) {
	f, err := openFence(ctx, url)
	if err != nil {
		return false, connectOr(err, url)
	}
	defer f.close(ctx)
	if err := f.base(ctx); err != nil {
		return false, err
	}
	if _, err := f.conn.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+quote(schemaOf(tenant))); err != nil && sqlState(err) != "23505" {
		return false, wrap(err, "CreateTenant(%q)", tenant)
	}
	if _, err := f.migrate(ctx, url, tenant); err != nil {
		return false, err
	}
	if created, err = insertTenant(ctx, f.conn, tenant, f.roleOf(tenant)); err != nil || created {
		return created, err
	}
	return false, f.enter(ctx, tenant)
}

func insertTenant(ctx context.Context, conn *pgx.Conn, tenant, role string) (created bool, err error) {
	tag, err := conn.Exec(ctx, `INSERT INTO asyncflow.tenants (slug, schema_version, role) VALUES ($1, $2, nullif($3, '')) ON CONFLICT DO NOTHING`,
		tenant, latestVersion(migrations.Tenant()), role)
	if sqlState(err) == "42P01" {
		return false, noSchema()
	}
	return tag.RowsAffected() == 1, wrap(err, "CreateTenant(%q)", tenant)
}

func noSchema() error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable, "the database has no asyncflow schema yet, or an old one: run asyncflow migrate up")
}

// Tenants returns the tenants of the database at url by name; none where the
// base schema is missing.
func Tenants(ctx context.Context, url string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, connectError(url, err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, `SELECT slug FROM asyncflow.tenants ORDER BY slug`) // CollectRows tells of its error
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if sqlState(err) == "42P01" {
		return nil, nil
	}
	return tenants, wrap(err, "Tenants")
}
