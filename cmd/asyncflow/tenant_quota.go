package main

import (
	"context"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

type tenantsSetQuotaCmd struct {
	tenantArg `embed:""`
	Quotas    []string `arg:"" name:"quota=limit"`
}

// Help is shown by asyncflow tenants set-quota --help.
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
