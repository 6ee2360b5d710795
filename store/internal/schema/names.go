package schema

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Base is the schema of everything that belongs to no tenant.
const Base = "asyncflow"

// Of returns the schema of a tenant.
func Of(tenant string) string { return "tenant_" + tenant }

// notDropping leaves out tenants that are being dropped, also in a database that has no
// such column yet.
const notDropping = `to_jsonb(t) ->> 'dropping_at' IS NULL`

// allSQL selects all tenants that aren't being dropped. Like each query of tenantsOf, it may use
// the newest version of a tenant's schema, $1.
const allSQL = `SELECT slug FROM asyncflow.tenants t
	WHERE ` + notDropping + ` AND $1::bigint > 0 ORDER BY slug`

// tenantsOf returns the tenants of the database at url that a query selects; none where the base
// schema is missing.
func tenantsOf(ctx context.Context, url, query string) ([]string, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, query, LatestTenant()) // CollectRows returns its error
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if postgres.State(err) == pgerrcode.UndefinedTable {
		return nil, nil
	}
	return tenants, postgres.Wrap(err, "Tenants")
}

// ErrMissing returns the error of a database without a current schema.
func ErrMissing() error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the database has no asyncflow schema yet, or an old one: run asyncflow migrate up")
}
