package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

const (
	// followsEvery is the least time between two readings of what happened in outboxes.
	followsEvery = 4 * time.Second
	// followAfter is how long the node that wrote a row of an outbox gets to handle it.
	followAfter = 2 * time.Second
	// followTurn is how long a run begins with what is left of tenants: then others may be due.
	followTurn = 5 * time.Second
)

// followUpJob does what transactions of all tenants left to do, if their nodes didn't. It also ends
// the waits for tasks that didn't come in time.
type followUpJob struct {
	visits
	committer Committer
}

func (j *followUpJob) run(ctx context.Context) (int, error) {
	due, err := j.due(ctx, j.store.FirstFollowUps, -followAfter)
	end := j.store.Clock.Now().Add(followTurn)
	sum, left := inRounds(ctx, due, func() bool { return j.store.Clock.Now().After(end) },
		j.committer.SweepFollowUps)
	return sum, errors.Join(err, left)
}

// inRounds takes a step for each tenant in turn, until there is nothing more to do in any or the
// time is over. A round is finished, so that no tenant holds up others.
func inRounds(
	ctx context.Context, tenants []string, over func() bool,
	step func(ctx context.Context, tenant string) (n int, more bool, err error),
) (sum int, err error) {
	var errs []error
	for len(tenants) > 0 && ctx.Err() == nil {
		var left []string
		for _, tenant := range tenants {
			n, more, err := step(ctx, tenant)
			sum += n
			errs = append(errs, err)
			if err == nil && more {
				left = append(left, tenant)
			}
		}
		if tenants = left; over() {
			break
		}
	}
	return sum, errors.Join(append(errs, ctx.Err())...)
}

func (j *followUpJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunFollowUps(ctx, tenant)
	})
}
