package schema

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// surveyed are the columns that the base role may read in each tenant's schema. Background
// jobs ask for them in one statement for many tenants, to see when a tenant has something to
// do. They show nothing else of a tenant.
var surveyed = map[string]string{
	"audit":            "id, at",
	"idempotency_keys": "expires_at",
	"operations":       "id, type, state, next_at",
	"schedules":        "paused_at, next_at",
	"tallies":          "at",
}

// GrantBase makes the base role and gives it the schema asyncflow as it is now, except for
// the tables that only a migration writes.
func (f *RoleFence) GrantBase(ctx context.Context) error {
	if err := f.need(ctx, f.prefix); err != nil {
		return err
	}
	role := postgres.Quote(f.prefix)
	_, err := f.conn.Exec(ctx, `
		GRANT USAGE ON SCHEMA asyncflow TO `+role+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA asyncflow TO `+role+`;
		GRANT USAGE ON ALL SEQUENCES IN SCHEMA asyncflow TO `+role+`;
		REVOKE INSERT, UPDATE, DELETE ON asyncflow.fence, asyncflow.migrations FROM `+role+`;
		REVOKE UPDATE ON asyncflow.audit FROM `+role+`;
		UPDATE asyncflow.fence SET base_role = prefix WHERE base_role IS DISTINCT FROM prefix`)
	return postgres.Wrap(err, "grant the schema asyncflow to %s", f.prefix)
}

// grantTenant lets the base role read the surveyed columns of a tenant. It also moves the
// right to delete from the audit from the tenant's role, which serves all calls, to the base
// role, which forgets old entries.
func (f *RoleFence) grantTenant(ctx context.Context, tenant string) error {
	role, schema := postgres.Quote(f.RoleOf(tenant)), postgres.Quote(Of(tenant))
	base := postgres.Quote(f.prefix)
	grants := []string{`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + base}
	for _, table := range slices.Sorted(maps.Keys(surveyed)) {
		grants = append(grants,
			`GRANT SELECT (`+surveyed[table]+`) ON `+schema+`.`+table+` TO `+base)
	}
	audit := schema + `.audit`
	grants = append(grants, `GRANT DELETE ON `+audit+` TO `+base,
		`REVOKE UPDATE, DELETE, TRUNCATE ON `+audit+` FROM `+role)
	_, err := f.conn.Exec(ctx,
		`BEGIN; SET LOCAL ROLE `+role+`; `+strings.Join(grants, "; ")+`; COMMIT`)
	return postgres.Wrap(err, "grant the base role's rights in %s", schema)
}
