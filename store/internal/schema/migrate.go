package schema

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Status says how far a schema is behind this program.
type Status struct {
	Schema  string
	Version int64 // the newest migration that was applied
	Latest  int64 // the newest migration that this program has
}

// Migrate brings the schema asyncflow and every tenant's schema of the database at url to the
// newest version, and returns their status before. It also makes and grants the roles, unless
// noRoles is set. Concurrent calls wait for each other.
func Migrate(ctx context.Context, url string, noRoles bool) ([]Status, error) {
	if err := refuseDevelopmentAt(ctx, url); err != nil {
		return nil, err
	}
	if noRoles {
		return eachSchema(ctx, url, allSQL, migratePlain(ctx, url))
	}
	return migrateWithRoles(ctx, url, func(_ *RoleFence, ctx context.Context) ([]string, error) {
		return tenantsOf(ctx, url, allSQL)
	})
}

// migratePlain migrates a schema without roles.
func migratePlain(ctx context.Context, url string) func(string, fs.FS) (Status, error) {
	return func(schema string, set fs.FS) (Status, error) {
		return MigrateOne(ctx, url, schema, set, "")
	}
}

// migrateWithRoles is Migrate with roles, for the tenants that choose returns.
func migrateWithRoles(
	ctx context.Context, url string, choose func(*RoleFence, context.Context) ([]string, error),
) ([]Status, error) {
	first, err := MigrateOne(ctx, url, Base, migrations.Asyncflow(), "")
	if err != nil {
		return nil, postgres.ConnectErrorOr(err, url)
	}
	f, err := OpenRoleFence(ctx, url)
	if err != nil {
		return nil, postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	tenants, err := choose(f, ctx)
	if err != nil {
		return nil, err
	}
	names := []string{f.prefix}
	for _, tenant := range tenants {
		names = append(names, f.RoleOf(tenant))
	}
	if err := f.need(ctx, names...); err != nil { // all at once, so that the error names all
		return nil, err
	}
	if err := f.GrantBase(ctx); err != nil {
		return nil, err
	}
	all := []Status{first}
	for _, tenant := range tenants {
		status, err := f.Migrate(ctx, url, tenant)
		if err != nil {
			return nil, err
		}
		if err := f.Enter(ctx, tenant); err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// Statuses returns the migration status of every schema and changes nothing.
func Statuses(ctx context.Context, url string) ([]Status, error) {
	if err := refuseDevelopmentAt(ctx, url); err != nil {
		return nil, err
	}
	return eachSchema(ctx, url, allSQL, func(schema string, set fs.FS) (Status, error) {
		return statusOf(ctx, url, schema, set)
	})
}

// eachSchema calls do for the schema asyncflow and for the schema of each tenant that a query
// selects, and returns all results.
func eachSchema(
	ctx context.Context, url, query string, do func(schema string, set fs.FS) (Status, error),
) ([]Status, error) {
	first, err := do(Base, migrations.Asyncflow())
	if err != nil {
		return nil, postgres.ConnectErrorOr(err, url)
	}
	all := []Status{first}
	tenants, err := tenantsOf(ctx, url, query)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		status, err := do(Of(tenant), migrations.Tenant())
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// developmentTable is where programs from before 0.1 wrote which migrations they had applied. Its
// name differs from versionTable, so the two kinds of databases differ at any version. A database
// that has both is a new one: an application of the same user may have made a table of that name.
const developmentTable = "asyncflow.migrations"

// RefuseDevelopment refuses a database with a schema from before 0.1: no migration leads on from
// there. It changes nothing.
func RefuseDevelopment(ctx context.Context, db querier) error {
	var exists bool
	err := db.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NULL`,
		developmentTable, Base+"."+versionTable).Scan(&exists)
	if err != nil || !exists {
		return postgres.Wrap(err, "look for %s", developmentTable)
	}
	var version int64
	err = db.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+developmentTable).Scan(&version)
	if err != nil {
		return postgres.Wrap(err, "read %s", developmentTable)
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the database has a schema of a development version before 0.1 (%s is at %d), which this "+
			"program can't migrate: make a new database; before that, finish or export the tasks "+
			"with the old program", developmentTable, version)
}

// refuseDevelopmentAt is RefuseDevelopment for the database at url.
func refuseDevelopmentAt(ctx context.Context, url string) error {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return postgres.ConnectError(url, err)
	}
	defer conn.Close(ctx)
	return postgres.ConnectErrorOr(RefuseDevelopment(ctx, conn), url)
}

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

// Check refuses a database with a schema that is behind this program, or that a development version
// made. url is for the error of a database that can't be reached.
func Check(ctx context.Context, db *pgxpool.Pool, url string) error {
	var base, tenants int64
	latest := latestVersion(migrations.Asyncflow())
	latestTenant := LatestTenant()
	err := db.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(version_id), 0) FROM asyncflow.schema_versions),
		  (SELECT coalesce(min(schema_version), $1) FROM asyncflow.tenants t WHERE `+notDropping+`)`,
		latestTenant).Scan(&base, &tenants)
	if err != nil && postgres.State(err) != pgerrcode.UndefinedTable {
		return postgres.ConnectError(url, err)
	}
	if err != nil {
		if err := RefuseDevelopment(ctx, db); err != nil {
			return postgres.ConnectErrorOr(err, url)
		}
	}
	switch {
	case err != nil || base < latest:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"the database's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", base, latest)
	case tenants < latestTenant:
		return asyncflow.Errorf(asyncflow.CodeUnavailable,
			"a tenant's schema is at version %d and this program needs %d: "+
				"run asyncflow migrate up", tenants, latestTenant)
	}
	return nil
}
