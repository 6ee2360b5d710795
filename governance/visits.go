package governance

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// visits knows which tenants a job must visit: written rows wake it, and so does another version of
// a tenant's configuration. Other tenants rest for as long as the job allowed.
type visits struct {
	*shared
	activity *activity // of the tables with the rows that wake the job
	rests    rests
}

// restless returns the tenants that the job must visit, with their states.
func (v *visits) restless(ctx context.Context) (map[string]state, error) {
	happened, err := v.activity.read(ctx, v.store)
	if err != nil {
		return nil, err
	}
	return v.rests.restless(v.store.Catalog.Versions(), happened, v.store.Clock.Now()), nil
}

// due returns the tenants with something due within a time. The other tenants rest until then.
// first returns when the first is due, of tenants with anything.
func (v *visits) due(
	ctx context.Context,
	first func(ctx context.Context, tenants []string) (map[string]time.Time, error),
	ahead time.Duration,
) (due []string, err error) {
	restless, err := v.restless(ctx)
	if err != nil {
		return nil, err
	}
	at, err := first(ctx, slices.Sorted(maps.Keys(restless)))
	if err != nil {
		return nil, err
	}
	now := v.store.Clock.Now()
	for _, tenant := range slices.Sorted(maps.Keys(restless)) {
		next, ok := at[tenant]
		if ok && !next.After(now.Add(ahead)) {
			due = append(due, tenant)
			continue
		}
		if ok {
			next = next.Add(-ahead)
		}
		v.rests.rest(tenant, restless[tenant], next)
	}
	rand.Shuffle(len(due), func(i, j int) { // so that no tenant always comes last
		due[i], due[j] = due[j], due[i]
	})
	return due, nil
}

// eachDue calls do for each due tenant, and adds up the rows. One tenant's failure doesn't stop the
// other tenants.
func (v *visits) eachDue(
	ctx context.Context,
	first func(ctx context.Context, tenants []string) (map[string]time.Time, error),
	do func(ctx context.Context, tenant string) (int, error),
) (sum int, err error) {
	due, err := v.due(ctx, first, 0)
	errs := []error{err}
	for _, tenant := range due {
		n, err := do(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}
