package governance

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

const (
	// expireTurn is how long the job stays with a tenant before other tenants get their turn.
	expireTurn = time.Second
	// expireRound is how long a run begins further rounds. The next run also sees tenants that are
	// due since.
	expireRound = 5 * time.Second
	// expireRest is how long the job rests after a step, in parts of the time that the step took:
	// other tasks get the processor. On two cores a million tasks still end in a minute.
	expireRest = 0.3
)

// expireJob ends the tasks that are live at the end of their lifetime. A tenant rests until the
// first lifetime ends.
type expireJob struct {
	visits
	turn  time.Duration                             // expireTurn
	round time.Duration                             // expireRound
	rest  func(context.Context, time.Duration) bool // sleep.For
}

func (j *expireJob) run(ctx context.Context) (int, error) {
	due, err := j.due(ctx, j.store.FirstLifetimes, 0)
	if err != nil {
		return 0, err
	}
	end := j.store.Clock.Now().Add(j.round)
	return inRounds(ctx, due, func() bool { return j.store.Clock.Now().After(end) },
		j.expireTenant)
}

// expireTenant takes a step for each type of a tenant with tasks that are due, until the tenant's
// turn is over. It reports whether more is left. The types come in any order, so that none always
// waits for another's tasks.
func (j *expireJob) expireTenant(
	ctx context.Context, tenant string,
) (sum int, more bool, err error) {
	types, err := j.store.TypesWithExpired(ctx, tenant)
	if err != nil {
		return 0, false, err
	}
	rand.Shuffle(len(types), func(i, k int) { types[i], types[k] = types[k], types[i] })
	var errs []error
	end := j.store.Clock.Now().Add(j.turn)
	for i, t := range types {
		if i > 0 && j.store.Clock.Now().After(end) {
			more = true
			break
		}
		began := time.Now()
		n, err := j.store.ExpireTasks(ctx, t)
		sum += n
		errs = append(errs, err)
		// Of a full batch, some rows may just be locked.
		if n >= store.ExpireBatch/2 {
			more = true
			j.rest(ctx, time.Duration(expireRest*float64(time.Since(began))))
		}
	}
	return sum, more, errors.Join(errs...)
}

func (j *expireJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunExpireTasks(ctx, tenant)
	})
}
