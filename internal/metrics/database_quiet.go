package metrics

import (
	"context"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store"
)

// quietTenants remembers tenants without live tasks, so that they are not counted again at each
// scrape. Postgres tells within 10 s that a tenant has tasks again.
type quietTenants struct{ tenants map[string]quietTenant }

// quietTenant is a tenant whose tasks are all final.
type quietTenant struct {
	tokens  uint64 // its activity before they were counted
	version int64  // of its configuration
	stats   []store.Stats
}

// read calls each with the tenants' figures.
func (q *quietTenants) read(
	ctx context.Context, s *store.Store, each func(tenant string, stats []store.Stats),
) error {
	tokens, counted, err := s.Activity(ctx, store.TokenTables)
	if err != nil {
		return err
	}
	versions := s.Catalog.Versions()
	maps.DeleteFunc(q.tenants, func(tenant string, _ quietTenant) bool {
		_, ok := versions[tenant]
		return !ok
	})
	for tenant, version := range versions {
		known, ok := q.tenants[tenant]
		if !ok || known.tokens != tokens[tenant] || known.version != version {
			delete(q.tenants, tenant)
			known = quietTenant{tokens: tokens[tenant], version: version}
			if known.stats, err = s.Stats(ctx, tenant, ""); err != nil {
				return err
			}
		}
		if counted && !slices.ContainsFunc(known.stats, isLive) {
			q.tenants[tenant] = known
		}
		each(tenant, known.stats)
	}
	return nil
}

func isLive(s store.Stats) bool { return s.Waiting+s.Pending+s.Running > 0 }
