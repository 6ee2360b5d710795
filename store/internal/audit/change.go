package audit

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// Change runs do in a transaction that also marks the tenant's configuration as changed and writes
// the audited call of the context. Then it reads the configuration again on this node and notifies
// the other nodes. What makes a background job due earlier belongs here, too: jobs look at the
// tenants with a changed configuration.
func Change(ctx context.Context, core *catalog.Core, tenant string, do func(pgx.Tx) error) error {
	return changeBy(ctx, core, tenant, tenant, do)
}

// ChangeBase is change for tables in the schema asyncflow.
func ChangeBase(
	ctx context.Context, core *catalog.Core, tenant string, do func(pgx.Tx) error,
) error {
	return changeBy(ctx, core, "", tenant, do)
}

// nextVersion is the next version of a tenant's configuration. It is a time: so a database that
// was restored never gives a version that a node knows to another content.
const nextVersion = `greatest(version + 1,
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`

// changeBy is change in a transaction under the role of a tenant, owner, or ("") the base role.
func changeBy(
	ctx context.Context, core *catalog.Core, owner, tenant string, do func(pgx.Tx) error,
) error {
	err := doThen(ctx, core, owner, do, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`UPDATE asyncflow.tenants SET version = `+nextVersion+` WHERE slug = $1`,
			tenant); err != nil {
			return err
		}
		if !core.Config.Notify {
			return nil
		}
		_, err := tx.Exec(ctx, `SELECT pg_notify($1,
			coalesce(to_regnamespace(quote_ident('tenant_' || $2::text))::oid::text, ''))`,
			catalog.ConfigChannel, tenant)
		return err
	})
	if err != nil {
		return err
	}
	// On an error the change is made all the same, and this node sees it a second later.
	if err := core.Catalog.RefreshTenant(ctx, tenant); err != nil {
		core.Log.Warn("can't refresh the catalog", "error", err)
	}
	return nil
}
