package httpapi

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

const (
	troublePage  = 500             // tenants of which the database is asked in a row
	troubleCount = time.Second     // bounds the counting of one tenant's tasks
	troubleTime  = 5 * time.Second // bounds the counting for all tenants
	// readTime and readOne bound the reading of all tenants, and of one, or of one part.
	readTime = 10 * time.Second
	readOne  = time.Second
	// troubleReaders is how many parts of a page are read at the same time.
	troubleReaders = 4
)

// TroubledTenants returns the active tenants with alerts, due tasks or tasks that failed in the
// last hour: the worst first, and at most limit. It counts tasks only of tenants that had due ones
// a moment ago, fewer first, so that a tenant with very many takes no time from others. Unread is
// how many tenants could not be read, or not in time.
func TroubledTenants(
	ctx context.Context, s *store.Store, limit int,
) (list api.TenantList, err error) {
	all, unread, err := tenantsWithTrouble(ctx, s)
	if err != nil {
		return list, err
	}
	slices.SortFunc(all, func(a, b api.Tenant) int {
		return cmp.Compare(a.Health.Due, b.Health.Due)
	})
	counting, cancel := context.WithTimeout(ctx, troubleTime)
	defer cancel()
	for i := range all {
		if h := &all[i].Health; h.Due > 0 {
			countDue(counting, s, all[i].Slug, h)
		}
	}
	now := s.Clock.Now()
	all = slices.DeleteFunc(all, func(t api.Tenant) bool { return t.Health == api.TenantHealth{} })
	slices.SortFunc(all, func(a, b api.Tenant) int { return compareHealth(a, b, now) })
	return api.TenantList{Data: all[:min(limit, len(all))], Unread: unread}, ctx.Err()
}

// tenantsWithTrouble returns the active tenants with trouble, by what their history says, and how
// many could not be read: one that is broken or locked hides no other.
func tenantsWithTrouble(
	ctx context.Context, s *store.Store,
) (all []api.Tenant, unread int, err error) {
	all = []api.Tenant{}
	known := s.Catalog.Tenants()
	reading, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	for after, more := "", true; more; {
		var page []store.StoredTenant
		if page, more, err = s.TenantPage(ctx, after, troublePage); err != nil {
			return nil, 0, err
		}
		if len(page) > 0 {
			after = page[len(page)-1].Slug
		}
		page = slices.DeleteFunc(page, func(t store.StoredTenant) bool {
			_, ok := known[t.Slug]
			return !ok || t.State() != asyncflow.TenantActive
		})
		hours := tenantHours(reading, s, page)
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		for _, t := range page {
			h, read := hours[t.Slug]
			switch {
			case !read:
				unread++
			case h.Trouble():
				out := TenantOut(t)
				out.Health = api.TenantHealth{
					Alerts: h.Alerts, Due: h.Due, FailedLastHour: h.Failed}
				all = append(all, out)
			}
		}
	}
	return all, unread, nil
}

// tenantHours returns the last hours of all tenants that could be read. They are
// read in a few parts at once, each in transactions of many tenants.
func tenantHours(
	ctx context.Context, s *store.Store, tenants []store.StoredTenant,
) map[string]store.TenantHour {
	all := map[string]store.TenantHour{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	size := max(1, (len(tenants)+troubleReaders-1)/troubleReaders)
	for part := range slices.Chunk(tenants, size) {
		wg.Go(func() {
			hours := partHours(ctx, s, part)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, hours)
		})
	}
	wg.Wait()
	return all
}

// partHours is tenantHours for a part. A tenant that is broken or locked fails the transaction of
// others: then the rest is read one by one.
func partHours(
	ctx context.Context, s *store.Store, tenants []store.StoredTenant,
) map[string]store.TenantHour {
	read := func(some ...string) (map[string]store.TenantHour, error) {
		ctx, cancel := context.WithTimeout(ctx, readOne)
		defer cancel()
		return s.TenantHours(ctx, some)
	}
	names := make([]string, len(tenants))
	for i, t := range tenants {
		names[i] = t.Slug
	}
	hours, err := read(names...)
	if err == nil {
		return hours
	}
	for _, name := range names {
		if _, known := hours[name]; !known && ctx.Err() == nil {
			one, _ := read(name)
			maps.Copy(hours, one)
		}
	}
	return hours
}

// countDue counts a tenant's due tasks. If that takes too long, their last known number stays.
func countDue(ctx context.Context, s *store.Store, tenant string, h *api.TenantHealth) {
	ctx, cancel := context.WithTimeout(ctx, troubleCount)
	defer cancel()
	types, err := s.Stats(ctx, tenant, "")
	if err != nil {
		return
	}
	h.Due = 0
	for _, t := range types {
		for _, b := range t.Backlog {
			if !b.WaitsFor.ForOthers() {
				h.Due += b.Tasks
			}
		}
		if !t.OldestDue.IsZero() && (h.OldestDue.IsZero() || t.OldestDue.Before(h.OldestDue)) {
			h.OldestDue = t.OldestDue
		}
	}
}

// compareHealth orders tenants, the worst first.
func compareHealth(a, b api.Tenant, now time.Time) int {
	late := func(t api.Tenant) int64 { // in whole minutes
		if t.Health.OldestDue.IsZero() {
			return 0
		}
		return int64(now.Sub(t.Health.OldestDue) / time.Minute)
	}
	return cmp.Or(
		cmp.Compare(b.Health.Alerts, a.Health.Alerts),
		cmp.Compare(late(b), late(a)),
		cmp.Compare(b.Health.FailedLastHour, a.Health.FailedLastHour),
		cmp.Compare(b.Health.Due, a.Health.Due),
		cmp.Compare(a.Slug, b.Slug))
}
