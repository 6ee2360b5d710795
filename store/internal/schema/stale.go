package schema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// MigrateStale is Migrate only for the tenants that need it. One statement finds them: the row of a
// tenant names an older version, or another role or other grants than this program's, or its schema
// or a table doesn't belong to its role. So the start of a node hardly grows with the number of
// tenants. It misses what was altered by hand within a schema, and leaves tenants of a newer
// version alone.
func MigrateStale(ctx context.Context, url string, noRoles bool) ([]Status, error) {
	if err := refuseDevelopmentAt(ctx, url); err != nil {
		return nil, err
	}
	if noRoles {
		return eachSchema(ctx, url, staleSQL, migratePlain(ctx, url))
	}
	return migrateWithRoles(ctx, url, (*RoleFence).stale)
}

// staleSQL selects the tenants with a row that says an older version than $1.
const staleSQL = `SELECT slug FROM asyncflow.tenants t
	WHERE ` + notDropping + ` AND schema_version < $1 ORDER BY slug`

// stale returns the tenants that need a migration or grants.
func (f *RoleFence) stale(ctx context.Context) ([]string, error) {
	rows, _ := f.db.Query(ctx, `
		SELECT slug FROM asyncflow.tenants t
		LEFT JOIN pg_roles r ON r.rolname = $2::text || '_' || slug
		LEFT JOIN pg_namespace n ON n.nspname = 'tenant_' || slug
		LEFT JOIN (
		  SELECT DISTINCT relnamespace FROM pg_class c JOIN pg_namespace o ON o.oid = relnamespace
		  WHERE relkind IN ('r', 'p', 'v', 'S') AND relowner <> nspowner) others
		  ON others.relnamespace = n.oid
		WHERE `+notDropping+` AND schema_version <= $1 AND (schema_version < $1
		  OR role IS DISTINCT FROM r.rolname::text OR n.nspowner IS DISTINCT FROM r.oid
		  OR grants IS DISTINCT FROM $3 OR others.relnamespace IS NOT NULL
		  OR NOT coalesce((SELECT has_schema_privilege(b.oid, n.oid, 'USAGE') FROM pg_roles b
		    WHERE b.rolname = $2::text), false))
		ORDER BY slug`, LatestTenant(), f.prefix, f.grantsHash())
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return tenants, postgres.Wrap(err, "look for tenants to migrate")
}

// grantsHash stands for what tenantGrants grants for any tenant.
func (f *RoleFence) grantsHash() string {
	sum := sha256.Sum256([]byte(strings.Join(f.tenantGrants("any"), ";")))
	return hex.EncodeToString(sum[:8])
}
