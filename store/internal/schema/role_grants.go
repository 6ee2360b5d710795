package schema

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// surveyed are the columns that the base role may read in each tenant's schema. Background
// jobs ask for them in one statement for many tenants, to see when a tenant has something to
// do. They show nothing else of a tenant.
var surveyed = map[string]string{
	"audit":            "id, at",
	"edges":            "status, until, on_id, on_key",
	"fan_outs":         "closed",
	"outbox":           "due",
	"idempotency_keys": "expires_at",
	"lifetimes":        "type, expires_at",
	"operations":       "id, type, state, next_at",
	"schedules":        "paused_at, next_at",
	"signal_waits":     "until, late",
	"tallies":          "at",
}

// grantBase makes the base role and gives it the schema asyncflow as it is now, except for
// the tables that only a migration writes.
func (f *RoleFence) grantBase(ctx context.Context) error {
	if err := f.need(ctx, f.prefix); err != nil {
		return err
	}
	role := postgres.Quote(f.prefix)
	_, err := f.db.Exec(ctx, `
		GRANT USAGE ON SCHEMA asyncflow TO `+role+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA asyncflow TO `+role+`;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA asyncflow TO `+role+`;
		REVOKE INSERT, UPDATE, DELETE ON asyncflow.fence, asyncflow.schema_versions FROM `+role+`;
		REVOKE UPDATE ON asyncflow.audit FROM `+role+`;
		UPDATE asyncflow.fence SET base_role = prefix WHERE base_role IS DISTINCT FROM prefix`)
	return postgres.Wrap(err, "grant the schema asyncflow to %s", f.prefix)
}

// EnsureBase is grantBase for a database that was hardly ever without: it changes nothing if the
// base role may read each table of the schema asyncflow.
func (f *RoleFence) EnsureBase(ctx context.Context) error {
	var granted bool
	// The tables are found by what depends on their schema: pg_class has no index for it.
	err := f.db.QueryRow(ctx, `
		SELECT CASE WHEN base_role = prefix AND EXISTS (SELECT FROM pg_roles WHERE rolname = prefix)
		  THEN (SELECT bool_and(has_table_privilege(prefix, c.oid, 'SELECT'))
		    FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND relkind IN ('r', 'p')
		    WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'asyncflow'::regnamespace
		      AND d.classid = 'pg_class'::regclass)
		  ELSE false END
		FROM asyncflow.fence`).Scan(&granted)
	if err != nil || granted {
		return postgres.Wrap(err, "look at the rights of %s", f.prefix)
	}
	return f.grantBase(ctx)
}

// tenantGrants are the statements by which a tenant's role lets the base role read the surveyed
// columns. They also move the right to delete from the audit from the tenant's role, which serves
// all calls, to the base role, which forgets old entries.
func (f *RoleFence) tenantGrants(tenant string) []string {
	role := postgres.Quote(f.RoleOf(tenant))
	schema := postgres.Quote(Of(tenant))
	base := postgres.Quote(f.prefix)
	grants := []string{`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + base}
	for _, table := range slices.Sorted(maps.Keys(surveyed)) {
		grants = append(grants,
			`GRANT SELECT (`+surveyed[table]+`) ON `+schema+`.`+table+` TO `+base)
	}
	audit := schema + `.audit`
	return append(grants, `GRANT DELETE ON `+audit+` TO `+base,
		`REVOKE UPDATE, DELETE, TRUNCATE ON `+audit+` FROM `+role)
}

// grantTenant runs tenantGrants.
func (f *RoleFence) grantTenant(ctx context.Context, tenant string) error {
	statements := append([]string{`SET LOCAL ROLE ` + postgres.Quote(f.RoleOf(tenant))},
		f.tenantGrants(tenant)...)
	if f.logins {
		statements = append(statements, workerRevokes(tenant, f.RoleOf(tenant))...)
	}
	err := pgx.BeginFunc(ctx, f.conn, func(tx pgx.Tx) error {
		return f.run(ctx, tx, statements...)
	})
	return postgres.Wrap(err, "grant the base role's rights in the schema of %q", tenant)
}
