package httpapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// TroubledTenants returns the active tenants with alerts, due tasks or tasks that failed in the
// last hour: the worst first, and at most limit. Unread is how many tenants nodes could not read.
func TroubledTenants(
	ctx context.Context, s *store.Store, limit int,
) (list api.TenantList, err error) {
	troubles, err := s.Troubles(ctx)
	if err != nil {
		return list, err
	}
	var all []api.Tenant
	for _, t := range troubles {
		if t.Unread {
			list.Unread++
		}
		h := api.TenantHealth{Alerts: t.Alerts, Due: t.Due, OldestDue: t.OldestDue,
			FailedLastHour: t.Failed}
		if h != (api.TenantHealth{}) {
			all = append(all, api.Tenant{Slug: t.Tenant, Health: h})
		}
	}
	now := s.Clock.Now()
	slices.SortFunc(all, func(a, b api.Tenant) int { return compareHealth(a, b, now) })
	list.Data, err = wholeTenants(ctx, s, all[:min(limit, len(all))])
	return list, err
}

// wholeTenants returns tenants with all that is known of them. It leaves out the ones that are
// gone.
func wholeTenants(
	ctx context.Context, s *store.Store, some []api.Tenant,
) (all []api.Tenant, err error) {
	slugs := make([]string, len(some))
	for i, t := range some {
		slugs[i] = t.Slug
	}
	named, err := s.NamedTenants(ctx, slugs)
	all = []api.Tenant{}
	for _, t := range some {
		if stored, ok := named[t.Slug]; ok {
			whole := TenantOut(stored)
			whole.Health = t.Health
			all = append(all, whole)
		}
	}
	return all, err
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
