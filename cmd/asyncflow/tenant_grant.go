package main

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// submitRole names a role of the database that submits tasks of a tenant by SQL.
type submitRole struct {
	tenantArg `embed:""`
	Role      string `arg:"" help:"The role of the database that the application connects as."`
}

// permit grants or revokes the right to submit, and prints the result.
func (c *submitRole) permit(
	ctx context.Context, g *globals, action, said string, do func(*store.Store) error,
) error {
	b := auditedCommand{url: c.DatabaseURL, action: action, objectType: "tenant", object: c.Tenant,
		detail: map[string]any{"role": c.Role}}
	err := b.do(ctx, func() error {
		return withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, do)
	})
	if err != nil {
		return err
	}
	return printNote(g, said, c.Role, c.Tenant)
}

type tenantsGrantSubmitCmd struct {
	submitRole `embed:""`
}

// Help is shown by asyncflow tenants grant-submit --help.
func (c *tenantsGrantSubmitCmd) Help() string {
	return `The role may then call the function submit_task in the tenant's schema, in its own
transactions, and may do nothing else there: see docs/sql-submit.md. Update all nodes to this
version first.

Example:

    asyncflow tenants grant-submit acme shop
    psql -c "SELECT tenant_acme.submit_task('thumbnails', '{\"image\": 7}')"    # as shop`
}

// Run grants it.
func (c *tenantsGrantSubmitCmd) Run(ctx context.Context, g *globals) error {
	return c.permit(ctx, g, "tenant.grant_submit", "role %s may submit tasks of tenant %s by SQL\n",
		func(s *store.Store) error { return s.GrantSubmit(ctx, c.Tenant, c.Role) })
}

type tenantsRevokeSubmitCmd struct {
	submitRole `embed:""`
}

// Run revokes it.
func (c *tenantsRevokeSubmitCmd) Run(ctx context.Context, g *globals) error {
	return c.permit(ctx, g, "tenant.revoke_submit",
		"role %s may not submit tasks of tenant %s by SQL any more\n",
		func(s *store.Store) error { return s.RevokeSubmit(ctx, c.Tenant, c.Role) })
}
