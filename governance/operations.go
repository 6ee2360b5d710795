package governance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// operationsAtOnce is how many operations a node advances at the same time.
	operationsAtOnce = 4
	// operationTurn is how long an operation may keep its place while others are due, and for how
	// long a run of the job starts further operations.
	operationTurn = 5 * time.Second
	// operationAhead is how soon a step must be due for a node to wait for it.
	operationAhead = time.Second
)

// operationsJob takes the due steps of operations, of all tenants. Other nodes do the same; each
// step is taken by one node.
type operationsJob struct {
	visits
	committer Committer
	turn      time.Duration // operationTurn
	failed    failedSteps
}

func (j *operationsJob) run(ctx context.Context) (int, error) {
	tenants, err := j.due(ctx, j.store.FirstSteps, operationAhead)
	if err != nil {
		return 0, err
	}
	due, err := j.store.DueOperations(ctx, tenants, j.store.Clock.Now().Add(operationAhead))
	j.failed.sort(due)
	var mu sync.Mutex
	sum, errs := 0, []error{err}
	var group errgroup.Group
	group.SetLimit(operationsAtOnce)
	end := j.store.Clock.Now().Add(j.turn)
	for _, o := range due {
		group.Go(func() error {
			if j.store.Clock.Now().After(end) {
				return nil // the next run begins with what waits longest: others may be due by now
			}
			n, err := j.recovering("operations", func() (int, error) { return j.advance(ctx, o) })
			j.failed.note(o.ID, j.store.Clock.Now(), err)
			mu.Lock()
			defer mu.Unlock()
			sum += n
			errs = append(errs, err)
			return nil
		})
	}
	_ = group.Wait()
	return sum, errors.Join(errs...)
}

// failedSteps are the operations with a failed last step on this node, and when it failed. A step
// that failed stays due, so it would always be first, and a few operations that take too long would
// keep all other operations waiting. It is safe for concurrent use, after the first sort.
type failedSteps struct {
	mu sync.Mutex
	at map[string]time.Time
}

// sort puts the operations that failed behind all other operations, the latest failure
// at the end. It forgets operations that aren't due.
func (s *failedSteps) sort(due []store.DueOperation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]time.Time{}
	for _, o := range due {
		if at, ok := s.at[o.ID]; ok {
			left[o.ID] = at
		}
	}
	s.at = left
	slices.SortStableFunc(due, func(a, b store.DueOperation) int {
		return left[a.ID].Compare(left[b.ID]) // the zero time is before all others
	})
}

// note notes how the turn of an operation ended.
func (s *failedSteps) note(id string, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, id)
	if err != nil {
		s.at[id] = now
	}
}

// advance takes steps of an operation until none is due soon, or its turn is over, and returns
// how many tasks they changed.
func (j *operationsJob) advance(ctx context.Context, o store.DueOperation) (sum int, err error) {
	end := j.store.Clock.Now().Add(j.turn)
	for at := o.At; ctx.Err() == nil; {
		now := j.store.Clock.Now()
		if at.IsZero() || at.After(now.Add(operationAhead)) || at.After(end) || now.After(end) {
			return sum, nil
		}
		if !sleep.For(ctx, at.Sub(now)) {
			break
		}
		step, err := j.store.StepOperation(ctx, o, j.committer.Submit)
		if err != nil {
			return sum, err
		}
		sum, at = sum+step.Done, step.Next
		o.Type = step.Type
	}
	return sum, ctx.Err()
}

func (j *operationsJob) dryRun(ctx context.Context) ([]store.Due, error) {
	before := j.store.Clock.Now().Add(operationAhead)
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunOperations(ctx, tenant, before)
	})
}
