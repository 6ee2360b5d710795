package governance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// spread is how long a node may take to hear that a roll was opened or drained. A step taken
// earlier would let writers meet a seal, and readers miss a table.
const spread = 3 * time.Second

// rollJob opens the rolls that are due, and takes closed ones through their steps: sealed, drained,
// cleared, idle, dropped. It compacts or trims rolls that aren't dropped because of live tasks. It
// also moves types between shared tables and their own, and deletes what is left of deleted types.
// Announced tasks and written tokens wake it.
type rollJob struct {
	*shared
	rests  rests
	losses atomic.Uint64 // of announcements, as last seen
}

// run returns how many steps it took.
func (j *rollJob) run(ctx context.Context) (int, error) {
	// After a failover the database may be another incarnation, which takes new rolls.
	if losses := j.store.Wakeups.Losses(); j.losses.Swap(losses) != losses {
		j.rests.forget()
	}
	var sum int
	err := j.eachRolled(ctx, &j.rests, func(
		_ *store.TableSet, steps []rollStep,
	) (n int, err error) {
		var errs []error
		for _, step := range steps {
			done, err := step(ctx)
			if done {
				n++
			}
			errs = append(errs, err)
		}
		sum += n
		return n, errors.Join(errs...)
	})
	return sum, err
}

// dryRun returns how many steps are due. A step may still find its table in use.
func (j *rollJob) dryRun(ctx context.Context) ([]store.Due, error) {
	var all []store.Due
	err := j.eachRolled(ctx, new(rests), func(set *store.TableSet, steps []rollStep) (int, error) {
		all = append(all, store.Due{Tenant: set.Tenant, Type: set.Name, Rows: len(steps)})
		return 0, nil
	})
	return withoutEmpty(all), err
}

// rollStep takes a step of a roll, and reports whether it did.
type rollStep func(context.Context) (bool, error)

// takeSteps takes steps of a table set, and returns how many it took.
type takeSteps func(set *store.TableSet, steps []rollStep) (int, error)

// eachRolled calls do for each table set of each tenant with the steps that are due for its rolls,
// oldest first. One set's failure doesn't stop the others. It leaves out tenants with resting
// rolls.
func (j *rollJob) eachRolled(ctx context.Context, resting *rests, do takeSteps) error {
	tokens, err := j.tokens.read(ctx, j.store)
	if err != nil {
		return err
	}
	activity := j.attention.announced() // Postgres counts new tasks a little later
	for tenant, n := range tokens {
		activity[tenant] += n
	}
	var errs []error
	now := j.store.Clock.Now()
	restless := resting.restless(j.store.Catalog.Versions(), activity, now)
	for tenant, state := range restless {
		as, ok, err := j.rollTenant(ctx, tenant, do)
		if errs = append(errs, err); ok && err == nil {
			as.state = state
			resting.keep(tenant, as, now)
		}
	}
	return errors.Join(errs...)
}

// rollTenant is eachRolled for a tenant. If no step can be taken, ok is true, and as says for how
// long none can.
func (j *rollJob) rollTenant(
	ctx context.Context, tenant string, do takeSteps,
) (as rest, ok bool, err error) {
	rolls, err := j.store.Rolls(ctx, tenant)
	errs := []error{err}
	sets := j.store.Catalog.SetsOf(tenant)
	ok = true
	for name, of := range rollsBySet(rolls) {
		set := sets[name]
		if set == nil {
			ok = false // this node doesn't know it yet
			continue
		}
		steps, err := j.dueSteps(ctx, set, of)
		done, err2 := do(set, steps)
		errs = append(errs, err, err2)
		next, resting := j.restUntil(set, of)
		if as.until.IsZero() || !next.IsZero() && next.Before(as.until) {
			as.until = next
		}
		full := j.fullAt(set, of[len(of)-1])
		if as.quietUntil.IsZero() || full.Before(as.quietUntil) {
			as.quietUntil = full
		}
		ok = ok && resting && done == 0 && len(steps) == withLiveTasks(of)
	}
	return as, ok, errors.Join(errs...)
}

func rollsBySet(rolls []store.Roll) map[string][]store.Roll {
	sets := map[string][]store.Roll{}
	for _, r := range rolls {
		sets[r.Set] = append(sets[r.Set], r)
	}
	return sets
}
