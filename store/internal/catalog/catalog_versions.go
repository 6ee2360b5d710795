package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// look finds out which tenants changed, among all or only one, and begins to read their types. With
// asked it also tries reads again that failed a moment ago.
func (c *Catalog) look(ctx context.Context, only string, asked bool) ([]*catalogRead, error) {
	var sum int64
	if only == "" {
		var err error
		if sum, err = c.sumVersions(ctx); err != nil || !asked && c.hasAll(sum) {
			return nil, err
		}
	}
	c.mu.Lock()
	c.looks++
	look := c.looks
	c.mu.Unlock()
	found, err := c.readVersions(ctx, only)
	if err != nil {
		return nil, err
	}
	rows, err := c.readTenants(ctx, c.otherVersions(found.versions))
	if err != nil {
		return nil, err
	}
	others := c.enter(look, only, found, rows)
	if only == "" {
		c.noteSum(sum, len(others) == 0)
	}
	return c.begin(others, asked), nil
}

// sumVersions returns a number that stands for the versions and the roles of all tenants: a node
// that has them needs no list.
func (c *Catalog) sumVersions(ctx context.Context) (sum int64, err error) {
	err = c.store.Base.QueryRow(ctx, `
		SELECT coalesce(bit_xor(hashtextextended(slug || ' ' || coalesce(role, ''), version)), 0)
		FROM asyncflow.tenants WHERE dropping_at IS NULL`).Scan(&sum)
	return sum, err
}

// hasAll reports whether the node has read all that a sum of versions stands for.
func (c *Catalog) hasAll(sum int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sum != nil && *c.sum == sum
}

// noteSum notes the sum from before a look, and whether the node had read everything by then.
func (c *Catalog) noteSum(sum int64, complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum = nil; complete {
		c.sum = &sum
	}
}

// tenantVersions is what a look finds of each tenant, by slug.
type tenantVersions struct {
	versions map[string]int64
	roles    map[string]string
	numbers  map[string]uint32 // see tenantNumbers
	behind   map[string]bool   // true: the tenant's schema is older than this program's
}

// readVersions reads the versions, the roles and the numbers of tenants, and which are behind.
func (c *Catalog) readVersions(ctx context.Context, only string) (tenantVersions, error) {
	found := tenantVersions{map[string]int64{}, map[string]string{}, map[string]uint32{},
		map[string]bool{}}
	sql := `SELECT slug, version, coalesce(role, ''),
		coalesce(to_regnamespace(quote_ident('tenant_' || slug))::oid, 0::oid), schema_version < $1
		FROM asyncflow.tenants WHERE dropping_at IS NULL`
	args := []any{schema.LatestTenant()}
	if only != "" {
		sql += ` AND slug = $2`
		args = append(args, only)
	}
	rows, _ := c.store.Base.Query(ctx, sql, args...)
	var tenant, role string
	var version int64
	var number uint32
	var behind bool
	_, err := pgx.ForEachRow(rows, []any{&tenant, &version, &role, &number, &behind}, func() error {
		found.versions[tenant] = version
		found.roles[tenant] = role
		found.numbers[tenant] = number
		if behind {
			found.behind[tenant] = true
		}
		return nil
	})
	return found, err
}

// Versions returns the versions of the tenants' configurations as this node has read them. A
// version changes with each change of a tenant's task types, endpoints, rolls, schedules, alerts or
// state, and when an operation starts.
func (c *Catalog) Versions() map[string]int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make(map[string]int64, len(c.tenants))
	for slug, k := range c.tenants {
		all[slug] = k.version
	}
	return all
}

// otherVersions returns the tenants that the node knows with another version, or not at all.
func (c *Catalog) otherVersions(versions map[string]int64) (others []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for slug, version := range versions {
		if k := c.tenants[slug]; k == nil || k.wanted != version {
			others = append(others, slug)
		}
	}
	return others
}

// readTenants reads the rows of some tenants.
func (c *Catalog) readTenants(ctx context.Context, slugs []string) ([]config.StoredTenant, error) {
	if len(slugs) == 0 {
		return nil, nil
	}
	rows, _ := c.store.Base.Query(ctx,
		`SELECT `+config.TenantColumns+` FROM asyncflow.tenants WHERE slug = ANY ($1)`, slugs)
	return pgx.CollectRows(rows, config.ScanTenant)
}

// enter takes over the findings of a look, and returns the tenants with types of another version.
// It keeps the findings of later looks.
func (c *Catalog) enter(
	look uint64, only string, found tenantVersions, rows []config.StoredTenant,
) (others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	versions := found.versions
	c.leaveOut(versions, found.roles)
	c.store.Roles.Put(found.roles, only == "")
	for _, row := range rows {
		version, ok := versions[row.Slug]
		old := c.tenants[row.Slug]
		if !ok || old != nil && old.look > look {
			continue
		}
		next := &tenantConfig{tenant: c.store.newTenant(row), wanted: version, look: look,
			behind: found.behind[row.Slug]}
		if old != nil {
			next.types = suspendedAs(next.tenant, old)
			next.version = old.version
			next.sets = old.sets
			next.names = old.names
		}
		c.tenants[row.Slug] = next
	}
	for slug, k := range c.tenants {
		_, ok := versions[slug]
		switch {
		case only != "" && slug != only:
		case !ok && k.look < look:
			delete(c.tenants, slug)
			delete(c.failed, slug)
			c.numbers.forget(slug)
		case ok && k.version != k.wanted:
			others = append(others, slug)
		}
		if _, known := c.tenants[slug]; ok && known {
			c.numbers.put(slug, found.numbers[slug])
		}
	}
	return others
}

// leaveOut removes tenants that were made without a role while the node runs, and logs each once.
// The caller holds mu.
func (c *Catalog) leaveOut(versions map[string]int64, roles map[string]string) {
	for slug, role := range roles {
		if role != "" || c.store.Roles.Off() {
			delete(c.roleless, slug)
			continue
		}
		delete(versions, slug)
		delete(roles, slug)
		if !c.roleless[slug] {
			c.roleless[slug] = true
			c.store.Log.Error("a tenant is left out", "tenant", slug, "error",
				postgres.ErrNoRole(slug))
		}
	}
}

// suspendedAs returns the known types of a tenant. It may be suspended or resumed since they were
// read.
func suspendedAs(tenant *config.Tenant, old *tenantConfig) map[string]*config.Type {
	if tenant.Suspended == old.tenant.Suspended {
		return old.types
	}
	types := make(map[string]*config.Type, len(old.types))
	for name, t := range old.types {
		types[name] = config.WithSuspended(t, tenant.Suspended)
	}
	return types
}
