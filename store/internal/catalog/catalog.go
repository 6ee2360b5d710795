package catalog

import (
	"context"
	"iter"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Catalog has the configuration of all tenants as this node knows it. It is at most about a
// second old; a change made through this node is in it when the call that made it returns.
// Each tenant is read by itself: one that can't be read keeps its last known configuration
// and delays no other.
type Catalog struct {
	store *Core

	reading context.Context // ends with the store
	stop    context.CancelFunc
	reads   sync.WaitGroup
	slots   *semaphore.Weighted // for concurrent reads

	migrating *semaphore.Weighted // for one migration at a time, see bringUp

	mu       sync.RWMutex // guards the fields below; no query runs under it
	tenants  map[string]*tenantConfig
	looks    uint64 // how many looks have begun, see look
	sum      *int64 // of the versions that were all read; nil: some weren't
	underway map[string]*catalogRead
	failed   map[string]failedRead
	numbers  tenantNumbers
	roleless map[string]bool // tenants that are left out as they have no database role
}

// tenantConfig is the known configuration of a tenant. It is immutable.
type tenantConfig struct {
	tenant  *config.Tenant
	wanted  int64                       // the version of the tenant's configuration
	look    uint64                      // the look that found this version
	behind  bool                        // its schema is older than this program's
	types   map[string]*config.Type     // by name
	sets    map[string]*config.TableSet // by name
	names   map[int32]string            // of the types, by number
	version int64                       // of all three; 0: they were never read
}

func newCatalog(s *Core) *Catalog {
	c := &Catalog{store: s, tenants: map[string]*tenantConfig{},
		underway: map[string]*catalogRead{}, failed: map[string]failedRead{},
		roleless:  map[string]bool{},
		numbers:   tenantNumbers{map[uint32]string{}, map[string]uint32{}},
		slots:     semaphore.NewWeighted(int64(max(1, s.Config.Pool/2))),
		migrating: semaphore.NewWeighted(1)}
	c.reading, c.stop = context.WithCancel(context.Background())
	return c
}

// close ends the reads under way.
func (c *Catalog) close() {
	c.mu.Lock() // so that no read begins
	c.stop()
	c.mu.Unlock()
	c.reads.Wait()
}

// known returns what the node knows of a tenant, or nil.
func (c *Catalog) known(tenant string) *tenantConfig {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.tenants[tenant]
}

// Type returns a task type; CodeNotFound when this node knows of none, CodeUnavailable when it
// could not read the tenant's types yet.
func (c *Catalog) Type(tenant, name string) (*config.Type, error) {
	k := c.known(tenant)
	switch {
	case k == nil:
		return nil, config.UnknownType(name)
	case k.types[name] != nil:
		return k.types[name], nil
	case k.version == 0:
		return nil, unread(tenant, nil)
	}
	return nil, config.UnknownType(name)
}

// Fresh is like Type, but reads the database before it returns CodeNotFound: another node may
// have made the type this second.
func (c *Catalog) Fresh(ctx context.Context, tenant, name string) (*config.Type, error) {
	if t, err := c.Type(tenant, name); err == nil {
		return t, nil
	}
	if err := c.RefreshTenant(ctx, tenant); err != nil {
		return nil, err
	}
	return c.Type(tenant, name)
}

// Tenant returns a tenant, and reports whether this node knows it.
func (c *Catalog) Tenant(slug string) (*config.Tenant, bool) {
	k := c.known(slug)
	if k == nil {
		return nil, false
	}
	return k.tenant, true
}

// SuspendedTenant reports whether a tenant is suspended or deleted, so that no work of it may
// begin.
func (s *Core) SuspendedTenant(tenant string) bool {
	t, ok := s.Catalog.Tenant(tenant)
	return ok && t.Suspended
}

// HasTenant reports whether this node knows a tenant.
func (c *Catalog) HasTenant(slug string) bool { return c.known(slug) != nil }

// TypesOf returns the task types of a tenant by name. The caller must not change the map.
func (c *Catalog) TypesOf(tenant string) map[string]*config.Type {
	if k := c.known(tenant); k != nil {
		return k.types
	}
	return nil
}

// SetsOf returns the table sets of a tenant by name. The caller must not change the map.
func (c *Catalog) SetsOf(tenant string) map[string]*config.TableSet {
	if k := c.known(tenant); k != nil {
		return k.sets
	}
	return nil
}

// Types returns all task types of all tenants.
func (c *Catalog) Types() iter.Seq[*config.Type] {
	return func(yield func(*config.Type) bool) {
		for _, types := range c.Tenants() {
			for _, t := range types {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// Tenants returns all tenants, each with its task types by name. It leaves out tenants that are
// behind: this node does nothing for them.
func (c *Catalog) Tenants() map[string]map[string]*config.Type {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make(map[string]map[string]*config.Type, len(c.tenants))
	for slug, k := range c.tenants {
		if !k.behind {
			all[slug] = k.types
		}
	}
	return all
}

// Stale returns how many tenants have a configuration that this node could not read. It goes
// on with the last one that it could read, or with none.
func (c *Catalog) Stale() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.failed)
}
