package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// spread is how long a node may take to hear that a roll was opened or drained. A step taken
// earlier would let writers meet a seal, and readers miss a table.
const spread = 3 * time.Second

// roll opens the rolls that are due, and takes closed ones through their steps: sealed, drained,
// cleared, idle, dropped. It returns how many steps it took.
func (g *Governor) roll(ctx context.Context) (int, error) {
	var sum int
	err := g.eachRolled(ctx, &g.rolled, func(t *store.Type, steps []rollStep) error {
		var errs []error
		for _, step := range steps {
			done, err := step(ctx)
			if done {
				sum++
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return sum, err
}

// dryRunRoll returns how many steps are due. A step may still find its table in use.
func (g *Governor) dryRunRoll(ctx context.Context) ([]store.Due, error) {
	var all []store.Due
	err := g.eachRolled(ctx, new(rests), func(t *store.Type, steps []rollStep) error {
		all = append(all, store.Due{Tenant: t.Tenant, Type: t.Name, Rows: len(steps)})
		return nil
	})
	return withoutEmpty(all), err
}

// rollStep takes a step of a roll, and reports whether it did.
type rollStep func(context.Context) (bool, error)

// eachRolled calls do for each type of each tenant with the steps that are due for its rolls,
// oldest first. One type's failure doesn't stop the others. It leaves out tenants whose rolls rest.
func (g *Governor) eachRolled(
	ctx context.Context, resting *rests, do func(*store.Type, []rollStep) error,
) error {
	tokens, err := g.tokens.read(ctx, g.store)
	if err != nil {
		return err
	}
	var errs []error
	activity := g.attention.news() // Postgres counts new tasks a little later
	for tenant, n := range tokens {
		activity[tenant] += n
	}
	restless := resting.restless(g.store.Catalog.Versions(), activity, g.store.Clock.Now())
	for tenant, state := range restless {
		rolls, err := g.store.Rolls(ctx, tenant)
		errs = append(errs, err)
		types, steps, until := g.store.Catalog.TypesOf(tenant), 0, time.Time{}
		for name, of := range rollsByType(rolls) {
			t := types[name]
			if t == nil {
				steps++ // this node doesn't know it yet
				continue
			}
			due, err := g.dueSteps(ctx, t, of)
			errs = append(errs, err, do(t, due))
			next, ok := nextRoll(t, of)
			if until.IsZero() || !next.IsZero() && next.Before(until) {
				until = next
			}
			if steps += len(due); !ok || err != nil {
				steps++
			}
		}
		if err == nil && steps == 0 {
			resting.rest(tenant, state, until)
		}
	}
	return errors.Join(errs...)
}

// nextRoll returns when the next step of a type's rolls is due if no task comes or goes; zero:
// never. ok is false if a step may be due at any time.
func nextRoll(t *store.Type, rolls []store.Roll) (at time.Time, ok bool) {
	for i, r := range rolls[:len(rolls)-1] {
		switch {
		case r.IdleSince.IsZero():
			return at, false
		case i == 0:
			at = r.IdleSince.Add(t.Retention.Std())
		}
	}
	if open := rolls[len(rolls)-1]; open.MaxTasks > 0 {
		if old := open.OpenedAt.Add(t.RollAge.Std()); at.IsZero() || old.Before(at) {
			at = old
		}
	}
	return at, true
}

func rollsByType(rolls []store.Roll) map[string][]store.Roll {
	types := map[string][]store.Roll{}
	for _, r := range rolls {
		types[r.Type] = append(types[r.Type], r)
	}
	return types
}

// dueSteps returns the next steps of a type's rolls.
func (g *Governor) dueSteps(
	ctx context.Context, t *store.Type, rolls []store.Roll,
) ([]rollStep, error) {
	var steps []rollStep
	open := rolls[len(rolls)-1]
	for i, r := range rolls[:len(rolls)-1] {
		if i == len(rolls)-2 && g.since(open.OpenedAt) < spread {
			break // some node may not know the next roll yet
		}
		if step := g.nextStep(t, r, i == 0); step != nil {
			steps = append(steps, step)
		}
	}
	if open.Lost {
		return append(steps, func(ctx context.Context) (bool, error) {
			return g.store.EnterHistory(ctx, t)
		}), nil
	}
	full, err := g.full(ctx, t, open)
	if full {
		steps = append(steps, func(ctx context.Context) (bool, error) { return g.store.OpenRoll(ctx, t) })
	}
	return steps, err
}

// nextStep returns the next step of a closed roll, or nil if none is due.
func (g *Governor) nextStep(t *store.Type, r store.Roll, oldest bool) rollStep {
	switch {
	case r.SealedAt.IsZero():
		return func(ctx context.Context) (bool, error) { return g.store.SealRoll(ctx, t, r.Position) }
	case r.DrainedAt.IsZero():
		return func(ctx context.Context) (bool, error) { return g.store.DrainRoll(ctx, t) }
	case !r.ReadyDropped && g.since(r.DrainedAt) >= spread:
		return func(ctx context.Context) (bool, error) { return g.store.ClearRoll(ctx, t, r.Position) }
	case r.ReadyDropped && r.IdleSince.IsZero():
		return func(ctx context.Context) (bool, error) { return g.store.IdleRoll(ctx, t, r.Position) }
	case r.ReadyDropped && oldest && g.since(r.IdleSince) > t.Retention.Std():
		return func(ctx context.Context) (bool, error) {
			return g.store.DropRoll(ctx, t, g.store.Clock.Now().Add(-t.Retention.Std()))
		}
	}
	return nil
}

func (g *Governor) since(at time.Time) time.Duration { return g.store.Clock.Now().Sub(at) }

// full reports whether the next roll must open: the previous one is drained, and the open one has
// enough tasks, or is old and has any.
func (g *Governor) full(ctx context.Context, t *store.Type, open store.Roll) (bool, error) {
	switch {
	case t.Begin != t.End || open.MaxTasks == 0:
		return false, nil
	case g.since(open.OpenedAt) > t.RollAge.Std():
		return true, nil
	case open.MaxTasks < int64(t.RollRows):
		return false, nil
	}
	tasks, err := g.store.TasksIn(ctx, t, open.Position)
	return tasks >= int64(t.RollRows), err
}
