package governance

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

// operations takes the due steps of operations, of all tenants. Other nodes do the same; each
// step is taken by one node.
func (g *Governor) operations(ctx context.Context) (int, error) {
	tenants, err := g.duePlans(ctx, &g.plans, &g.stepped, g.store.FirstSteps, operationAhead)
	if err != nil {
		return 0, err
	}
	due, err := g.store.DueOperations(ctx, tenants, g.store.Clock.Now().Add(operationAhead))
	var mu sync.Mutex
	sum, errs := 0, []error{err}
	var group errgroup.Group
	group.SetLimit(operationsAtOnce)
	end := g.store.Clock.Now().Add(g.turn)
	for _, o := range due {
		group.Go(func() error {
			if g.store.Clock.Now().After(end) {
				return nil // the next run begins with what waits longest: others may be due by now
			}
			n, err := g.recovering("operations", func() (int, error) { return g.advance(ctx, o) })
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

// advance takes steps of an operation until none is due soon, or its turn is over, and returns
// how many tasks they changed.
func (g *Governor) advance(ctx context.Context, o store.DueOperation) (sum int, err error) {
	end := g.store.Clock.Now().Add(g.turn)
	for at := o.At; ctx.Err() == nil; {
		now := g.store.Clock.Now()
		if at.IsZero() || at.After(now.Add(operationAhead)) || at.After(end) || now.After(end) {
			return sum, nil
		}
		if !waitFor(ctx, at.Sub(now)) {
			break
		}
		step, err := g.store.StepOperation(ctx, o)
		if err != nil {
			return sum, err
		}
		sum, at = sum+step.Done, step.Next
	}
	return sum, ctx.Err()
}

// waitFor waits for d, and reports whether ctx lasted.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *Governor) dryRunOperations(ctx context.Context) ([]store.Due, error) {
	before := g.store.Clock.Now().Add(operationAhead)
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return g.store.DryRunOperations(ctx, tenant, before)
	})
}
