package main

import (
	"context"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

type tenantsSuspendCmd struct {
	tenantArg `embed:""`
	Reason    string `help:"Why. The tenant's callers are told."`
}

// Run suspends the tenant.
func (c *tenantsSuspendCmd) Run(ctx context.Context, g *globals) error {
	suspend := true
	return c.change(ctx, g, func(s *store.Store) (store.StoredTenant, error) {
		return s.PatchTenant(ctx, c.Tenant, store.TenantPatch{Suspend: &suspend,
			Reason: callbacks.Clean(c.Reason, asyncflow.MaxReasonLength)})
	})
}

type tenantsResumeCmd struct {
	tenantArg `embed:""`
}

// Run resumes the tenant.
func (c *tenantsResumeCmd) Run(ctx context.Context, g *globals) error {
	return c.change(ctx, g, func(s *store.Store) (store.StoredTenant, error) {
		return s.PatchTenant(ctx, c.Tenant, store.TenantPatch{Suspend: new(bool)})
	})
}

type tenantsDeleteCmd struct {
	tenantArg `embed:""`
	Grace     time.Duration `default:"168h" help:"Grace period, in which the tenant can be restored."`
	Now       bool          `help:"Drop it at once, without a grace period."`
}

func (c *tenantsDeleteCmd) Help() string {
	return `When the grace period is over, the background job drop-tenants of some node drops the
tenant. Its name is free again once it is gone.

Example:

    asyncflow tenants delete acme --grace 48h`
}

// Run deletes the tenant.
func (c *tenantsDeleteCmd) Run(ctx context.Context, g *globals) error {
	if c.Now {
		c.Grace = 0
	}
	if err := asyncflow.CheckGrace(c.Grace); err != nil {
		return usageError(err)
	}
	return c.change(ctx, g, func(s *store.Store) (store.StoredTenant,
		error) {
		return s.DeleteTenant(ctx, c.Tenant, &c.Grace)
	})
}

type tenantsRestoreCmd struct {
	tenantArg `embed:""`
}

// Run restores the tenant.
func (c *tenantsRestoreCmd) Run(ctx context.Context, g *globals) error {
	return c.change(ctx, g, func(s *store.Store) (store.StoredTenant,
		error) {
		return s.RestoreTenant(ctx, c.Tenant)
	})
}

type tenantsSetQuotaCmd struct {
	tenantArg `embed:""`
	Quotas    []string `arg:"" name:"quota=limit"`
}

func (c *tenantsSetQuotaCmd) Help() string {
	return `Quotas that aren't named stay. "none" removes a limit even if the operator has set a
default; "default" returns to that default.

Example:

    asyncflow tenants set-quota acme pending_tasks=100000 submits_per_second=50 task_types=default`
}

// Run sets the quotas.
func (c *tenantsSetQuotaCmd) Run(ctx context.Context, g *globals) error {
	words := strings.NewReplacer("=none", "=-1", "=default", "=0")
	items := make([]string, len(c.Quotas))
	for i, item := range c.Quotas {
		items[i] = words.Replace(item)
	}
	changes, err := asyncflow.ParseQuotas(items)
	if err != nil {
		return usageError(err)
	}
	return c.change(ctx, g, func(s *store.Store) (store.StoredTenant, error) {
		return s.PatchTenant(ctx, c.Tenant, store.TenantPatch{Quotas: changes})
	})
}

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
