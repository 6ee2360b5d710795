package store

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Type is a task type as this node knows it: an immutable snapshot.
type Type struct {
	Tenant string
	StoredType
	First, Begin, End int // positions of the oldest, the oldest live, and the open roll

	endpoints map[string][]asyncflow.Endpoint // by stage
	tables    *tables
	suspended bool // its tenant is
}

// Suspended tells whether nothing is to be leased as the tenant is suspended or deleted.
func (t *Type) Suspended() bool { return t.suspended }

// Paused tells whether nothing is to be leased: the type is paused, or its tenant is
// suspended.
func (t *Type) Paused() bool { return t.suspended || t.PauseState.Paused() }

// Room is that of PauseState; none, while the tenant is suspended.
func (t *Type) Room(full int, now time.Time) int {
	if t.suspended {
		return 0
	}
	return t.PauseState.Room(full, now)
}

// Endpoints returns the endpoints of a stage, also those that get no deliveries.
func (t *Type) Endpoints(stage string) []asyncflow.Endpoint { return t.endpoints[stage] }

// Serves tells whether a stage has an endpoint that gets deliveries.
func (t *Type) Serves(stage string) bool { return asyncflow.Serves(t.endpoints[stage]) }

// AllEndpoints returns the endpoints of all stages.
func (t *Type) AllEndpoints() (all []asyncflow.Endpoint) {
	for _, endpoints := range t.endpoints {
		all = append(all, endpoints...)
	}
	return all
}

// ServesSeveral tells whether more than one of the type's endpoints gets deliveries.
func (t *Type) ServesSeveral() bool {
	n := 0
	for _, endpoints := range t.endpoints {
		for i := range endpoints {
			if endpoints[i].Serves() {
				n++
			}
		}
	}
	return n > 1
}

// OtherEndpoint tells whether the type has another endpoint than one that gets deliveries.
func (t *Type) OtherEndpoint(id string) bool {
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.ID != id && e.Serves() {
				return true
			}
		}
	}
	return false
}

// gathering returns how long a task of a stage may wait on its node for others to go with
// it.
func (t *Type) gathering(stage string) (longest time.Duration) {
	for i := range t.endpoints[stage] {
		longest = max(longest, t.endpoints[stage][i].Batch.MaxWait.Std())
	}
	return longest
}

// EndpointURL returns the URL of an endpoint by its id, "" when there is none.
func (t *Type) EndpointURL(id string) string {
	for _, endpoints := range t.endpoints {
		for _, e := range endpoints {
			if e.ID == id {
				return e.URL
			}
		}
	}
	return ""
}

// Catalog holds what every node knows of all tenants' configuration. It is
// about a second old at most; a change made through this node is in it when the
// call that made it returns.
type Catalog struct {
	store *Store

	mu       sync.Mutex // held by the one who refreshes
	versions map[string]int64
	known    atomic.Pointer[knowledge]

	changed []func(tenants map[string]bool) // called after every change

	roleless map[string]bool // tenants that were left out for having no database role
}

// knowledge is immutable.
type knowledge struct {
	types   map[string]map[string]*Type // by tenant and name
	tenants map[string]*Tenant
}

func newCatalog(s *Store) *Catalog {
	c := &Catalog{store: s, versions: map[string]int64{}, roleless: map[string]bool{}}
	c.known.Store(&knowledge{})
	return c
}

// OnChange has f called after every change, with the tenants whose configuration has
// changed. Call it before Run.
func (c *Catalog) OnChange(f func(tenants map[string]bool)) { c.changed = append(c.changed, f) }

// Type returns a task type; CodeNotFound when this node knows of none.
func (c *Catalog) Type(tenant, name string) (*Type, error) {
	if t := c.known.Load().types[tenant][name]; t != nil {
		return t, nil
	}
	return nil, unknownType(name)
}

// Fresh is like Type, but looks into the database before it says that there is
// none: another node may have made it this second.
func (c *Catalog) Fresh(ctx context.Context, tenant, name string) (*Type, error) {
	if t, err := c.Type(tenant, name); err == nil {
		return t, nil
	}
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c.Type(tenant, name)
}

// Tenant returns a tenant, if this node knows of it.
func (c *Catalog) Tenant(slug string) (*Tenant, bool) {
	t, ok := c.known.Load().tenants[slug]
	return t, ok
}

// suspended tells whether nothing is to be begun for a tenant.
func (s *Store) suspended(tenant string) bool {
	t, ok := s.Catalog.Tenant(tenant)
	return ok && t.Suspended
}

// HasTenant tells whether this node knows a tenant.
func (c *Catalog) HasTenant(slug string) bool {
	_, ok := c.Tenant(slug)
	return ok
}

// Types returns all task types of all tenants.
func (c *Catalog) Types() iter.Seq[*Type] {
	return func(yield func(*Type) bool) {
		for _, types := range c.known.Load().types {
			for _, t := range types {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// Tenants returns all tenants, each with its task types by name.
func (c *Catalog) Tenants() map[string]map[string]*Type { return c.known.Load().types }

// Refresh reads the configuration of those tenants again whose version has
// changed.
func (c *Catalog) Refresh(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	versions, err := c.readVersions(ctx)
	if err != nil {
		return wrap(err, "Catalog.Refresh")
	}
	old := c.known.Load()
	next := &knowledge{make(map[string]map[string]*Type, len(versions)), make(map[string]*Tenant, len(versions))}
	changed, tenants := len(old.types) != len(versions), map[string]bool{}
	for tenant, version := range versions {
		if types, ok := old.types[tenant]; ok && c.versions[tenant] == version {
			next.types[tenant], next.tenants[tenant] = types, old.tenants[tenant]
			continue
		}
		changed, tenants[tenant] = true, true
		if err := c.read(ctx, next, tenant); err != nil {
			return wrap(err, "Catalog.Refresh: %q", tenant)
		}
	}
	if !changed {
		return nil
	}
	c.versions = versions
	c.known.Store(next)
	for _, f := range c.changed {
		f(tenants)
	}
	return nil
}

func (c *Catalog) readVersions(ctx context.Context) (map[string]int64, error) {
	rows, err := c.store.base.Query(ctx, `SELECT slug, version, coalesce(role, '') FROM asyncflow.tenants WHERE dropping_at IS NULL`)
	if err != nil {
		return nil, err
	}
	versions, roles := map[string]int64{}, map[string]string{}
	var tenant, role string
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&tenant, &version, &role}, func() error {
		if role == "" && !c.store.roles.off { // made without one while we run
			c.withoutRole(tenant)
			return nil
		}
		delete(c.roleless, tenant)
		versions[tenant], roles[tenant] = version, role
		return nil
	})
	if err == nil {
		c.store.roles.set(roles)
	}
	return versions, err
}

// withoutRole says once of a tenant that it is left out.
func (c *Catalog) withoutRole(tenant string) {
	if !c.roleless[tenant] {
		c.roleless[tenant] = true
		c.store.log.Error("a tenant is left out", "tenant", tenant, "error", noRole(tenant))
	}
}

// read reads a tenant and its task types.
func (c *Catalog) read(ctx context.Context, into *knowledge, slug string) error {
	stored, err := readTenant(ctx, c.store.base, slug, "")
	if err != nil {
		return err
	}
	tenant := c.store.newTenant(stored)
	types, err := c.readTypes(ctx, slug)
	for _, t := range types {
		t.suspended = tenant.Suspended
	}
	into.tenants[slug], into.types[slug] = tenant, types
	return err
}

func (c *Catalog) readTypes(ctx context.Context, tenant string) (map[string]*Type, error) {
	stored, err := c.store.TaskTypes(ctx, tenant)
	if err != nil {
		return nil, err
	}
	types := make(map[string]*Type, len(stored))
	for _, t := range stored {
		types[t.Name] = &Type{Tenant: tenant, StoredType: t,
			endpoints: map[string][]asyncflow.Endpoint{}, tables: newTables(tenant, t.Name)}
	}
	if err := c.readPositions(ctx, tenant, types); err != nil {
		return nil, err
	}
	endpoints, err := c.store.Endpoints(ctx, tenant, "")
	for _, e := range endpoints {
		if t := types[e.Type]; t != nil {
			t.endpoints[e.Stage] = append(t.endpoints[e.Stage], e)
		}
	}
	return types, err
}

func (c *Catalog) readPositions(ctx context.Context, tenant string, types map[string]*Type) error {
	rows, err := c.store.of(tenant).Query(ctx, `SELECT name, first_pos, begin_pos, end_pos FROM `+quote(schemaOf(tenant))+`.task_types`)
	if err != nil {
		return err
	}
	var name string
	var p positions
	_, err = pgx.ForEachRow(rows, []any{&name, &p.first, &p.begin, &p.end}, func() error {
		if t := types[name]; t != nil {
			t.First, t.Begin, t.End = p.first, p.begin, p.end
			t.tables.live = p
		}
		return nil
	})
	return err
}

// TypeKey names a task type among all tenants.
type TypeKey struct{ Tenant, Type string }

// Key returns the type's key.
func (t *Type) Key() TypeKey { return TypeKey{t.Tenant, t.Name} }
