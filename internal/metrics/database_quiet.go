package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow/store"
)

// quietTenants remembers tenants without live tasks, so that they are not counted again at each
// scrape. Postgres tells within 10 s that there are tasks of a tenant again.
type quietTenants struct {
	tenants map[string]quietTenant
	took    map[string]time.Duration // the last reading of a tenant's figures
}

func newQuietTenants() quietTenants {
	return quietTenants{tenants: map[string]quietTenant{}, took: map[string]time.Duration{}}
}

// quietTenant is a tenant with final tasks only.
type quietTenant struct {
	tokens  uint64 // its activity before they were counted
	version int64  // of its configuration
	stats   []store.Stats
}

// tenantTime bounds the reading of one tenant's figures.
const tenantTime = time.Second

// read calls each with the tenants' figures. It leaves out tenants with figures that can't be read
// in time, and returns their number. Tenants that took long the last time come last: they use up
// nobody's time but their own.
func (q *quietTenants) read(
	ctx context.Context, s *store.Store, each func(tenant string, stats []store.Stats),
) (unread int, err error) {
	tokens, counted, err := s.Activity(ctx, store.TokenTables)
	if err != nil {
		return 0, err
	}
	versions := s.Catalog.Versions()
	q.forgetOthers(versions)
	for _, tenant := range q.bySpeed(versions) {
		known, ok := q.tenants[tenant]
		if !ok || known.tokens != tokens[tenant] || known.version != versions[tenant] {
			delete(q.tenants, tenant)
			known = quietTenant{tokens: tokens[tenant], version: versions[tenant]}
			if known.stats, err = q.readOne(ctx, s, tenant); err != nil {
				unread++
				continue
			}
		}
		if counted && !slices.ContainsFunc(known.stats, isLive) {
			q.tenants[tenant] = known
		}
		each(tenant, known.stats)
	}
	return unread, nil
}

// readOne reads a tenant's figures, and remembers how long that took.
func (q *quietTenants) readOne(
	ctx context.Context, s *store.Store, tenant string,
) ([]store.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, tenantTime)
	defer cancel()
	began := time.Now()
	stats, err := s.Stats(ctx, tenant, "")
	if err == nil || q.took[tenant] < time.Since(began) { // not if there was no time left for it
		q.took[tenant] = time.Since(began)
	}
	return stats, err
}

// forgetOthers forgets tenants that are gone.
func (q *quietTenants) forgetOthers(tenants map[string]int64) {
	for tenant := range q.took {
		if _, ok := tenants[tenant]; !ok {
			delete(q.took, tenant)
		}
	}
	for tenant := range q.tenants {
		if _, ok := tenants[tenant]; !ok {
			delete(q.tenants, tenant)
		}
	}
}

// bySpeed returns tenants by how long the last reading of their figures took.
func (q *quietTenants) bySpeed(tenants map[string]int64) []string {
	names := slices.Collect(maps.Keys(tenants))
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(q.took[a], q.took[b]) })
	return names
}

func isLive(s store.Stats) bool { return s.Waiting+s.Pending+s.Running > 0 }

// Tokens adds whether the keys of each issuer and the issuers file are stale. file is nil if there
// is no issuers file.
func (m *Metrics) Tokens(keys func() map[string]bool, file func() bool) {
	m.registry.MustRegister(&tokenCollector{keys, file})
}

type tokenCollector struct {
	keys func() map[string]bool
	file func() bool
}

var (
	tokenKeysStale = desc("token_keys_stale",
		"1 while the keys of an issuer can't be read; the last ones stay in use.", "issuer")
	issuersFileStale = desc("issuers_file_stale",
		"1 while the issuers file can't be used; the last issuers stay in use.")
)

// Describe lists the metrics.
func (c *tokenCollector) Describe(out chan<- *prometheus.Desc) {
	out <- tokenKeysStale
	out <- issuersFileStale
}

// Collect reads the metrics.
func (c *tokenCollector) Collect(out chan<- prometheus.Metric) {
	for issuer, stale := range c.keys() {
		out <- gauge(tokenKeysStale, oneIf(stale), issuer)
	}
	if c.file != nil {
		out <- gauge(issuersFileStale, oneIf(c.file()))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
