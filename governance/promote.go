package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// promoteJob moves a task to `ready` when it is due soon, when there is an endpoint of its stage
// again, or when its flow key may go on. It also wakes dispatchers for tasks that are overdue
// because their notification was lost.
type promoteJob struct{ *shared }

func (j *promoteJob) run(ctx context.Context) (int, error) {
	return j.eachType(ctx, 0, func(o store.Overview) (int, error) {
		now := j.store.Clock.Now()
		if !o.Ready.IsZero() && o.Ready.Before(now) {
			j.store.Wakeups.Announce(o.Type.Key(), o.Ready)
		}
		if len(o.BlockedStages) > 0 && o.Type.Limited(now) {
			j.store.Wakeups.Announce(o.Type.Key(), now) // the next lease takes them
		}
		stuck, err := j.releaseStuck(ctx, o)
		served := served(o.Type, o.BlockedStages, now)
		due := !o.Wait.IsZero() && o.Wait.Before(now.Add(asyncflow.Soon))
		if err != nil || !due && len(served) == 0 && !(o.BlockedKeys && !o.Type.Flow.Blocks()) {
			return stuck, err
		}
		n, err := untilDone(func() (int, error) { return j.store.Promote(ctx, o.Type, served) })
		return stuck + n, err
	})
}

// releaseStuck releases blocked tasks of all flow keys of the type that may go on.
func (j *promoteJob) releaseStuck(ctx context.Context, o store.Overview) (sum int, err error) {
	if !o.BlockedKeys || !o.Type.Flow.Blocks() {
		return 0, nil
	}
	for last := ""; ; {
		var n int
		n, last, err = j.store.ReleaseStuck(ctx, o.Type, last)
		sum += n
		if err != nil || last == "" {
			return sum, err
		}
	}
}

// served returns the stages with waiting tasks and an endpoint: none for a limited type, because
// its leases take these tasks.
func served(t *store.Type, waiting []string, now time.Time) (served []string) {
	if t.Limited(now) {
		return nil
	}
	for _, stage := range waiting {
		if place, _ := t.Mapped(stage, 1); t.Serves(place) {
			served = append(served, stage)
		}
	}
	return served
}

func (j *promoteJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTypes(ctx, func(o store.Overview) (int, error) {
		return j.store.DryRunPromote(ctx, o.Type,
			served(o.Type, o.BlockedStages, j.store.Clock.Now()))
	})
}
