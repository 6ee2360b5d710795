package main

import (
	"context"
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

// Help is shown by asyncflow tenants delete --help.
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
