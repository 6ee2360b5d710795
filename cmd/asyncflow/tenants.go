package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow/store"
)

// tenantsCmd makes and lists tenants, straight in the database.
type tenantsCmd struct {
	Create tenantsCreateCmd `cmd:"" help:"Make a tenant, if there is none of that name."`
	List   tenantsListCmd   `cmd:"" help:"List the tenants."`
}

type tenantsCreateCmd struct {
	databaseFlag
	Tenant string `arg:"" help:"Its name: a lower-case letter, then lower-case letters, digits, - and _; 40 at most."`
}

// Run makes the tenant.
func (c *tenantsCreateCmd) Run(ctx context.Context, g *globals) error {
	created, err := createTenant(ctx, c.DatabaseURL, c.Tenant, c.option())
	if err != nil {
		return err
	}
	if created {
		fmt.Fprintf(g.stdout, "tenant %s created; asyncflow token create --tenant %s makes a token for it\n", c.Tenant, c.Tenant)
	} else {
		fmt.Fprintf(g.stdout, "tenant %s is there already\n", c.Tenant)
	}
	return nil
}

// createTenant makes a tenant, if there is none of that name.
func createTenant(ctx context.Context, url, tenant string, roles store.Option) (created bool, err error) {
	b := byHand{url: url, action: "tenant.create", objectType: "tenant", object: tenant, detail: map[string]any{}}
	err = b.do(ctx, func() error {
		created, err = store.CreateTenant(ctx, url, tenant, roles)
		b.detail["created"] = created
		return err
	})
	return created, err
}

type tenantsListCmd struct{ databaseFlag }

// Run lists the tenants.
func (c *tenantsListCmd) Run(ctx context.Context, g *globals) error {
	tenants, err := store.Tenants(ctx, c.DatabaseURL)
	for _, tenant := range tenants {
		fmt.Fprintln(g.stdout, tenant)
	}
	return err
}
