package catalog

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// A node of an older version may make a tenant beside this one. Then this node's statements don't
// fit the tenant's schema. So the first read of such a tenant migrates it. Until that is done, this
// node does nothing for the tenant: it knows none of its types, its jobs leave the tenant out, and
// calls are CodeUnavailable.

const (
	// behindTime bounds one migration.
	behindTime = 5 * time.Minute
	// behindRetry is the pause after a migration that failed, even if calls ask for the tenant.
	behindRetry = 10 * time.Second
)

// bringUp migrates a tenant that is behind this program, one tenant at a time. Other nodes may try
// at the same time: then one of them migrates, and this one finds nothing to do.
func (c *Catalog) bringUp(tenant string) error {
	if !c.IsBehind(tenant) {
		return nil
	}
	if err := c.migrating.Acquire(c.reading, 1); err != nil {
		return err
	}
	defer c.migrating.Release(1)
	ctx, cancel := context.WithTimeout(c.reading, behindTime)
	defer cancel()
	cfg := c.store.Config
	before, err := schema.MigrateTenant(ctx, cfg.URL, tenant, cfg.NoRoles)
	for _, statement := range before.Restored {
		c.store.Log.Warn("a tenant lacked a right; it is given back", "tenant", tenant,
			"statement", statement)
	}
	if err != nil {
		return err
	}
	if before.Version < before.Latest {
		c.store.Log.Info("the schema of a tenant was behind; it is migrated", "tenant", tenant,
			"from", before.Version, "to", before.Latest)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.tenants[tenant]; k != nil {
		next := *k
		next.behind = false
		c.tenants[tenant] = &next
	}
	return nil
}

// IsBehind reports whether a tenant's schema is older than this program's.
func (c *Catalog) IsBehind(tenant string) bool {
	k := c.known(tenant)
	return k != nil && k.behind
}

// refuseBehind returns the error of work for a tenant that is behind.
func (c *Catalog) refuseBehind(tenant string) error {
	if tenant == "" || !c.IsBehind(tenant) {
		return nil
	}
	return &asyncflow.Error{
		Code:       asyncflow.CodeUnavailable,
		Message:    "the tenant's tables are being migrated to this node's version; try again",
		RetryAfter: CatalogRetry,
	}
}
