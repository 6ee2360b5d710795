package governance

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// eraseTurn is how long the job erases for a tenant before other tenants get their turn.
	eraseTurn = 2 * time.Second
	// eraseAtOnce is how many tenants take their turn at once.
	eraseAtOnce = 2
)

// eraseJob erases the contents of tasks after their retention. Other nodes do the same; each step
// is taken by one node. A tenant rests until the next task may be due.
type eraseJob struct {
	*shared
	rests rests
	turn  time.Duration // eraseTurn
	held  heldRolls
}

func (j *eraseJob) run(ctx context.Context) (int, error) {
	now := j.store.Clock.Now()
	restless := j.rests.restless(j.store.Catalog.Versions(), nil, now)
	names := make([]string, 0, len(restless))
	for tenant, state := range restless {
		if len(j.store.AgingTypes(tenant)) == 0 {
			j.rests.rest(tenant, state, time.Time{})
			continue
		}
		names = append(names, tenant)
	}
	rand.Shuffle(len(names), func(i, j int) { // so that no tenant always comes last
		names[i], names[j] = names[j], names[i]
	})
	var mu sync.Mutex
	sum, errs := 0, []error{}
	var group errgroup.Group
	group.SetLimit(eraseAtOnce)
	for _, tenant := range names {
		group.Go(func() error {
			var next time.Time
			n, err := j.recovering("erase", func() (n int, err error) {
				n, next, err = j.eraseTenant(ctx, tenant)
				return n, err
			})
			mu.Lock()
			defer mu.Unlock()
			sum += n
			errs = append(errs, err)
			if err == nil && next.After(now) {
				j.rests.rest(tenant, restless[tenant], next)
			}
			return nil
		})
	}
	_ = group.Wait()
	return sum, errors.Join(append(errs, j.held.errors(j.store.Clock.Now())...)...)
}

// eraseTenant takes steps for the types of a tenant in turn, until none is due or the tenant's turn
// is over. It returns how many tasks it erased, and when the next step is due.
func (j *eraseJob) eraseTenant(
	ctx context.Context, tenant string,
) (sum int, next time.Time, err error) {
	end := j.store.Clock.Now().Add(j.turn)
	types, next, err := j.store.BeginAging(ctx, tenant)
	if asyncflow.CodeOf(err) == asyncflow.CodeConflict { // an older node runs
		return 0, next, nil
	}
	if err != nil {
		return 0, next, err
	}
	if most := j.store.Clock.Now().Add(revisit); next.IsZero() || next.After(most) {
		next = most
	}
	rand.Shuffle(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
	var errs []error
	for len(types) > 0 && ctx.Err() == nil {
		var more []string
		for _, name := range types {
			without, until := j.held.positions(tenant, name, j.store.Clock.Now())
			if !until.IsZero() && until.Before(next) {
				next = until
			}
			step, err := j.store.EraseAged(ctx, tenant, name, without)
			sum += step.Done
			switch {
			case err != nil:
				errs = append(errs, err)
			case step.Held:
				j.held.note(tenant, name, step.Roll, j.store.Clock.Now())
				more = append(more, name)
			case step.More:
				if step.Locked {
					j.held.freed(tenant, name, step.Roll)
				}
				more = append(more, name)
			case !step.Next.IsZero() && step.Next.Before(next):
				next = step.Next
			}
			if now := j.store.Clock.Now(); now.After(end) {
				return sum, now, errors.Join(errs...)
			}
		}
		types = more
	}
	return sum, next, errors.Join(errs...)
}

func (j *eraseJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) (all []store.Due, err error) {
		var errs []error
		for _, name := range j.store.AgingTypes(tenant) {
			n, err := j.store.DryRunAged(ctx, tenant, name)
			all = append(all, store.Due{Tenant: tenant, Type: name, Rows: n})
			errs = append(errs, err)
		}
		return all, errors.Join(errs...)
	})
}
