package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// spread is how long every node may take to hear that a roll has opened, or that one was
// drained: before that, writers would meet a seal, and readers a table that is gone.
const spread = 3 * time.Second

// roll opens rolls that are due, and takes those that are not open any more on their way:
// sealed, drained, cleared, dropped. It returns how many steps it took.
func (g *Governor) roll(ctx context.Context) (int, error) {
	var sum int
	var errs []error
	for tenant, types := range g.store.Catalog.Tenants() {
		rolls, err := g.store.Rolls(ctx, tenant)
		errs = append(errs, err)
		for name, of := range rollsByType(rolls) {
			if t := types[name]; t != nil {
				n, err := g.rollType(ctx, t, of)
				sum += n
				errs = append(errs, err)
			}
		}
	}
	return sum, errors.Join(errs...)
}

func rollsByType(rolls []store.Roll) map[string][]store.Roll {
	types := map[string][]store.Roll{}
	for _, r := range rolls {
		types[r.Type] = append(types[r.Type], r)
	}
	return types
}

// rollType takes the next step of each of a type's rolls, oldest first.
func (g *Governor) rollType(ctx context.Context, t *store.Type, rolls []store.Roll) (int, error) {
	var sum int
	var errs []error
	for i, r := range rolls {
		step := g.nextStep(t, r, i == 0)
		if i == len(rolls)-1 {
			step = g.open
		} else if i == len(rolls)-2 && g.since(rolls[i+1].OpenedAt) < spread {
			continue // not every node knows of the next one yet
		}
		if step == nil {
			continue
		}
		done, err := step(ctx, t, r)
		if done {
			sum++
		}
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// rollStep takes a step of a roll, and tells whether it did.
type rollStep func(context.Context, *store.Type, store.Roll) (bool, error)

// nextStep returns what is next for a roll that is not open any more; nil: nothing now.
func (g *Governor) nextStep(t *store.Type, r store.Roll, oldest bool) rollStep {
	switch {
	case r.SealedAt.IsZero():
		return func(ctx context.Context, t *store.Type, r store.Roll) (bool, error) {
			return g.store.SealRoll(ctx, t, r.Position)
		}
	case r.DrainedAt.IsZero():
		return func(ctx context.Context, t *store.Type, _ store.Roll) (bool, error) { return g.store.DrainRoll(ctx, t) }
	case !r.ReadyDropped && g.since(r.DrainedAt) < spread:
		return nil
	case !r.ReadyDropped:
		return func(ctx context.Context, t *store.Type, r store.Roll) (bool, error) {
			return g.store.ClearRoll(ctx, t, r.Position)
		}
	case oldest && g.since(r.SealedAt) > t.Retention.Std():
		return func(ctx context.Context, t *store.Type, _ store.Roll) (bool, error) {
			return g.store.DropRoll(ctx, t, g.store.Clock.Now().Add(-t.Retention.Std()))
		}
	}
	return nil
}

func (g *Governor) since(at time.Time) time.Duration { return g.store.Clock.Now().Sub(at) }

// open opens the next roll if the open one is full or old.
func (g *Governor) open(ctx context.Context, t *store.Type, r store.Roll) (bool, error) {
	if t.Begin != t.End {
		return false, nil
	}
	old := r.Numbers > 0 && g.since(r.OpenedAt) > t.RollAge.Std()
	if !old && r.Numbers < int64(t.RollRows) {
		return false, nil
	}
	if !old { // numbers have gaps
		if tasks, err := g.store.TasksIn(ctx, t, r.Position); err != nil || tasks < int64(t.RollRows) {
			return false, err
		}
	}
	return g.store.OpenRoll(ctx, t)
}
