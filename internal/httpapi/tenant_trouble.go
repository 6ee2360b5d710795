package httpapi

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

const (
	troublePage  = 500             // tenants that the database is asked about in a row
	troubleCount = time.Second     // bounds the counting of one tenant's tasks
	troubleTime  = 5 * time.Second // bounds the counting for all tenants
	// readTime and readOne bound the reading of all tenants, and of one.
	readTime = 10 * time.Second
	readOne  = time.Second
	// troubleReaders is how many tenants are read at the same time.
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
		hours, errs := tenantHours(reading, s, page)
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		for i, h := range hours {
			switch {
			case errs[i] != nil:
				unread++
			case h != (store.TenantHour{}):
				out := TenantOut(page[i])
				out.Health = api.TenantHealth{
					Alerts: h.Alerts, Due: h.Due, FailedLastHour: h.Failed}
				all = append(all, out)
			}
		}
	}
	return all, unread, nil
}

// tenantHours returns the last hour of each of some tenants, or why it could not be read. A few are
// read at once: each takes a query on tables of its own.
func tenantHours(
	ctx context.Context, s *store.Store, tenants []store.StoredTenant,
) ([]store.TenantHour, []error) {
	hours := make([]store.TenantHour, len(tenants))
	errs := make([]error, len(tenants))
	next := make(chan int)
	var wg sync.WaitGroup
	for range troubleReaders {
		wg.Go(func() {
			for i := range next {
				hours[i], errs[i] = tenantHour(ctx, s, tenants[i].Slug)
			}
		})
	}
	for i := range tenants {
		next <- i
	}
	close(next)
	wg.Wait()
	return hours, errs
}

func tenantHour(ctx context.Context, s *store.Store, tenant string) (store.TenantHour, error) {
	ctx, cancel := context.WithTimeout(ctx, readOne)
	defer cancel()
	return s.TenantHour(ctx, tenant)
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
