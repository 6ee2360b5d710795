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

// CreateTenant makes a tenant's schema and its row, and tells whether it is new.
func CreateTenant(ctx context.Context, url, tenant string) (created bool, err error) {
	if err := asyncflow.CheckName(tenant); err != nil {
		return false, asyncflow.InvalidField("tenant", "%v", err)
	}
	if _, err := migrateSchema(ctx, url, schemaOf(tenant), migrations.Tenant()); err != nil {
		return false, connectOr(err, url)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, connectError(url, err)
	}
	defer conn.Close(ctx)
	tag, err := conn.Exec(ctx, `INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		tenant, latestVersion(migrations.Tenant()))
	if sqlState(err) == "42P01" {
		return false, asyncflow.Errorf(asyncflow.CodeUnavailable, "the database has no asyncflow schema yet: run asyncflow migrate up")
	}
	return tag.RowsAffected() == 1, wrap(err, "CreateTenant(%q)", tenant)
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
