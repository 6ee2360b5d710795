package governance

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// visits knows which tenants a job has to visit: written rows wake it, and so does another version
// of a tenant's configuration. Other tenants rest for as long as the job has allowed.
type visits struct {
	*shared
	activity *activity // of the tables whose rows wake the job
	rests    rests
}

// restless returns the tenants that the job has to visit, with their states.
func (v *visits) restless(ctx context.Context) (map[string]state, error) {
	happened, err := v.activity.read(ctx, v.store)
	if err != nil {
		return nil, err
	}
	return v.rests.restless(v.store.Catalog.Versions(), happened, v.store.Clock.Now()), nil
}

// due returns the tenants that have something due within a time. The other tenants rest until then.
// first returns when the first is due, of tenants that have anything.
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
// others.
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

// childrenJob compares the counts of tasks that wait for children with the children themselves, for
// all tenants with such tasks, and corrects wrong counts.
type childrenJob struct{ visits }

// run returns how many fan-outs it corrected.
func (j *childrenJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.OpenFanOuts, j.store.SweepFanOuts)
}

func (j *childrenJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunFanOuts(ctx, tenant)
	})
}

// dependenciesJob finds tasks that still wait for others that have ended, of all tenants with
// waiting tasks: nobody has told of these ends. The job follow-up does the rest, if no node does it
// at once.
type dependenciesJob struct{ visits }

func (j *dependenciesJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.OpenEdges, j.store.SweepOpenEdges)
}

func (j *dependenciesJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunOpenEdges(ctx, tenant)
	})
}

// expireKeysJob deletes idempotency keys whose windows are over. A tenant rests until the first
// window ends.
type expireKeysJob struct{ visits }

func (j *expireKeysJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.FirstKeys, func(ctx context.Context, tenant string) (int, error) {
		return untilDone(func() (int, error) { return j.store.ExpireKeys(ctx, tenant) })
	})
}

func (j *expireKeysJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunKeys(ctx, tenant)
	})
}

// foldJob adds up the tallies of times that are over, of the tenants that have new tallies or some
// that have become old enough.
type foldJob struct{ visits }

func (j *foldJob) run(ctx context.Context) (int, error) {
	restless, err := j.restless(ctx)
	if err != nil {
		return 0, err
	}
	names := slices.Collect(maps.Keys(restless))
	last, err := j.store.LastTallies(ctx, names)
	if err != nil {
		return 0, err
	}
	sum, errs := 0, []error{}
	for tenant, state := range restless {
		if last[tenant].IsZero() {
			j.rests.rest(tenant, state, last[tenant])
			continue
		}
		now := j.store.Clock.Now()
		n, err := untilDone(func() (int, error) { return j.store.Fold(ctx, tenant) })
		sum += n
		errs = append(errs, err)
		if err == nil && n == 0 {
			j.rests.rest(tenant, state, store.NextFold(last[tenant], now))
		}
	}
	return sum, errors.Join(errs...)
}

func (j *foldJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunFold(ctx, tenant)
	})
}

// scheduleRounds is how many rounds a tenant's schedules get before the next tenant's turn.
const scheduleRounds = 10

// schedulesJob submits the tasks of due ticks, of all tenants. Other nodes do the same; one node
// submits each tick. A tick may pass to another node and come later, never earlier, without a
// new version of the tenant's configuration.
type schedulesJob struct {
	visits
	committer Committer
}

func (j *schedulesJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.FirstTicks, j.tick)
}

// tick submits the tasks of a tenant's due ticks, and returns how many. The next run of the job
// tries a schedule that failed again.
func (j *schedulesJob) tick(ctx context.Context, tenant string) (sum int, err error) {
	var failed []string
	for range scheduleRounds {
		step, err := j.store.TickSchedules(ctx, tenant, j.committer.Submit, failed)
		sum += step.Tasks
		if err != nil || step.Schedules == 0 {
			return sum, err
		}
		failed = append(failed, step.Failed...)
	}
	return sum, nil
}

func (j *schedulesJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunSchedules(ctx, tenant)
	})
}
