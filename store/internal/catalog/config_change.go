package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Change runs do in a transaction that also marks the tenant's configuration as changed and writes
// the audited call of the context. Then it reads the configuration again on this node and notifies
// the other nodes. What makes a background job due earlier belongs here, too: jobs look at the
// tenants with a changed configuration.
func (s *Core) Change(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.changeBy(ctx, tenant, tenant, do)
}

// ChangeBase is change for tables in the schema asyncflow.
func (s *Core) ChangeBase(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.changeBy(ctx, "", tenant, do)
}

// nextVersion is the next version of a tenant's configuration. It is a time: so a database that
// was restored never gives a version that a node knows to another content.
const nextVersion = `greatest(version + 1,
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`

// changeBy is change in a transaction under the role of a tenant, owner, or ("") the base role.
func (s *Core) changeBy(ctx context.Context, owner, tenant string, do func(pgx.Tx) error) error {
	err := s.auditedThen(ctx, owner, do, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`UPDATE asyncflow.tenants SET version = `+nextVersion+` WHERE slug = $1`, tenant); err != nil {
			return err
		}
		if !s.Config.Notify {
			return nil
		}
		_, err := tx.Exec(ctx, `SELECT pg_notify($1,
			coalesce(to_regnamespace(quote_ident('tenant_' || $2::text))::oid::text, ''))`, configChannel,
			tenant)
		return err
	})
	if err != nil {
		return err
	}
	// On an error the change is made all the same, and this node sees it a second later.
	if err := s.Catalog.RefreshTenant(ctx, tenant); err != nil {
		s.Log.Warn("can't refresh the catalog", "error", err)
	}
	return nil
}
