package governance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// spread is how long a node may take to hear that a roll was opened or drained. A step taken
// earlier would let writers meet a seal, and readers miss a table.
const spread = 3 * time.Second

const (
	// calmRolls is the longest time for which a node leaves the rolls of a tenant alone whose tasks
	// come and go, since none can become full meanwhile. A busy type gets tables of its own that much
	// later.
	calmRolls = time.Minute
	// mostTasks is more tasks a second than a table set gets.
	mostTasks = 50_000
)

// roll opens the rolls that are due, and takes closed ones through their steps: sealed, drained,
// cleared, idle, dropped. It also moves types between shared tables and their own, and deletes what
// is left of deleted types. It returns how many steps it took.
func (g *Governor) roll(ctx context.Context) (int, error) {
	var sum int
	err := g.eachRolled(ctx, &g.rolled, func(_ *store.TableSet, steps []rollStep) (n int, err error) {
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

// dryRunRoll returns how many steps are due. A step may still find its table in use.
func (g *Governor) dryRunRoll(ctx context.Context) ([]store.Due, error) {
	var all []store.Due
	err := g.eachRolled(ctx, new(rests), func(set *store.TableSet, steps []rollStep) (int, error) {
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
// oldest first. One set's failure doesn't stop the others. It leaves out tenants whose rolls rest.
func (g *Governor) eachRolled(ctx context.Context, resting *rests, do takeSteps) error {
	tokens, err := g.tokens.read(ctx, g.store)
	if err != nil {
		return err
	}
	activity := g.attention.news() // Postgres counts new tasks a little later
	for tenant, n := range tokens {
		activity[tenant] += n
	}
	var errs []error
	now := g.store.Clock.Now()
	restless := resting.restless(g.store.Catalog.Versions(), activity, now)
	for tenant, state := range restless {
		as, ok, err := g.rollTenant(ctx, tenant, do)
		if errs = append(errs, err); ok && err == nil {
			as.state = state
			resting.keep(tenant, as, now)
		}
	}
	return errors.Join(errs...)
}

// rollTenant is eachRolled for a tenant. If no step can be taken, ok is true, and as says for how
// long none can.
func (g *Governor) rollTenant(
	ctx context.Context, tenant string, do takeSteps,
) (as rest, ok bool, err error) {
	rolls, err := g.store.Rolls(ctx, tenant)
	errs := []error{err}
	sets := g.store.Catalog.SetsOf(tenant)
	ok = true
	for name, of := range rollsBySet(rolls) {
		set := sets[name]
		if set == nil {
			ok = false // this node doesn't know it yet
			continue
		}
		steps, err := g.dueSteps(ctx, set, of)
		done, err2 := do(set, steps)
		errs = append(errs, err, err2)
		next, resting := g.restUntil(set, of)
		if as.until.IsZero() || !next.IsZero() && next.Before(as.until) {
			as.until = next
		}
		if full := g.fullAt(set, of[len(of)-1]); as.calm.IsZero() || full.Before(as.calm) {
			as.calm = full
		}
		ok = ok && resting && done == 0 && len(steps) == withLiveTasks(of)
	}
	return as, ok, errors.Join(errs...)
}

// withLiveTasks returns how many cleared rolls have live tasks, as far as is known. No step of them
// can be taken before such a task goes on, which is news of the tenant: a task may wait for a year.
func withLiveTasks(rolls []store.Roll) (n int) {
	for _, r := range rolls {
		if r.ReadyDropped && r.IdleSince.IsZero() {
			n++
		}
	}
	return n
}

// fullAt returns when the open roll of a table set is full at the earliest.
func (g *Governor) fullAt(set *store.TableSet, open store.Roll) time.Time {
	most, _ := g.store.Catalog.RollLimits(set)
	room := max(0, most-open.MaxTasks)
	return g.store.Clock.Now().Add(time.Duration(room) * time.Second / mostTasks)
}

// restUntil returns when the next step of a set's rolls is due if no task comes or goes; zero:
// never. ok is false if one may be due at any time.
func (g *Governor) restUntil(
	set *store.TableSet, rolls []store.Roll,
) (at time.Time, ok bool) {
	open, closed := rolls[len(rolls)-1], rolls[:len(rolls)-1]
	if set.Closed {
		closed = rolls
	} else if _, age := g.store.Catalog.RollLimits(set); open.MaxTasks > 0 {
		at = open.OpenedAt.Add(age)
	}
	for i, r := range closed {
		if !r.ReadyDropped {
			return at, false
		}
		if r.IdleSince.IsZero() {
			continue
		}
		old := r.IdleSince.Add(g.store.Catalog.Retention(set, r.Position))
		if i == 0 && (at.IsZero() || old.Before(at)) {
			at = old
		}
	}
	return at, true
}

func rollsBySet(rolls []store.Roll) map[string][]store.Roll {
	sets := map[string][]store.Roll{}
	for _, r := range rolls {
		sets[r.Set] = append(sets[r.Set], r)
	}
	return sets
}

// dueSteps returns the next steps of a table set.
func (g *Governor) dueSteps(
	ctx context.Context, set *store.TableSet, rolls []store.Roll,
) ([]rollStep, error) {
	var steps []rollStep
	open := rolls[len(rolls)-1]
	closed := rolls[:len(rolls)-1]
	if set.Closed {
		closed = rolls
	}
	for i, r := range closed {
		if !set.Closed && i == len(closed)-1 && g.since(open.OpenedAt) < spread {
			break // some node may not know the next roll yet
		}
		if step := g.nextStep(set, r, i == 0); step != nil {
			steps = append(steps, step)
		}
	}
	if set.Closed {
		return steps, nil
	}
	if open.Lost {
		return append(steps, func(ctx context.Context) (bool, error) {
			return g.store.EnterHistory(ctx, set)
		}), nil
	}
	if set.Shared() {
		moves, err := g.dueMoves(ctx, set, open)
		if err != nil {
			return steps, err
		}
		steps = append(steps, moves...)
	}
	full, tasks, err := g.full(ctx, set, open)
	if full {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return g.nextRoll(ctx, set, tasks)
		})
	}
	return steps, err
}

// dueMoves returns the steps that give types of the shared set tables of their own, and the one
// that deletes rows of deleted types.
func (g *Governor) dueMoves(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (steps []rollStep, err error) {
	due, err := g.store.BusyTypes(ctx, set.Tenant, open)
	for _, t := range g.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Shared() && store.AsksForOwnSet(t.TaskType) && !slices.Contains(due, t) {
			due = append(due, t)
		}
	}
	for _, t := range due {
		steps = append(steps, func(ctx context.Context) (bool, error) { return g.store.OwnSet(ctx, t) })
	}
	deleted, err2 := g.store.HasDeletedTypes(ctx, set.Tenant)
	if deleted {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return g.deleteRows(ctx, set.Tenant)
		})
	}
	return steps, errors.Join(err, err2)
}

// catchUp is how many rolls the shared set opens at most so that a type may join it.
const catchUp = 3

// deleteSteps is how often deleteRows deletes rows before the tenants after it have their turn.
const deleteSteps = 50

// deleteRows deletes rows of deleted types, and reports whether there were any.
func (g *Governor) deleteRows(ctx context.Context, tenant string) (done bool, err error) {
	at := store.Deleting{More: true}
	for i := 0; at.More && err == nil && i < deleteSteps; i++ {
		at, err = g.store.DeleteRows(ctx, tenant, at)
		done = done || at.Rows > 0
	}
	return done, err
}

// nextRoll opens the next roll of a table set. A type with a set of its own that it no longer needs
// goes to the shared one instead. The shared set must have later positions than the type had; it
// opens a roll for that. tasks is about how many the open roll has.
func (g *Governor) nextRoll(
	ctx context.Context, set *store.TableSet, tasks int64,
) (done bool, err error) {
	sets := g.store.Catalog.SetsOf(set.Tenant)
	shared, t := sets[""], g.store.Catalog.TypesOf(set.Tenant)[set.Name]
	if t == nil || store.AsksForOwnSet(t.TaskType) || tasks >= store.OwnSetTasks {
		return g.store.OpenRoll(ctx, set)
	}
	if shared != nil {
		if behind := set.End - shared.End; behind >= 0 && behind < catchUp {
			return g.store.OpenRoll(ctx, shared)
		}
	}
	if done, err = g.store.JoinSharedSet(ctx, t); done || err != nil {
		return done, err
	}
	return g.store.OpenRoll(ctx, set)
}

// nextStep returns the next step of a closed roll, or nil if none is due.
func (g *Governor) nextStep(set *store.TableSet, r store.Roll, oldest bool) rollStep {
	retention := g.store.Catalog.Retention
	switch {
	case r.SealedAt.IsZero():
		return func(ctx context.Context) (bool, error) { return g.store.SealRoll(ctx, set, r.Position) }
	case r.DrainedAt.IsZero():
		return func(ctx context.Context) (bool, error) { return g.drain(ctx, set, r) }
	case !r.ReadyDropped && g.since(r.DrainedAt) >= spread:
		return func(ctx context.Context) (bool, error) { return g.store.ClearRoll(ctx, set, r.Position) }
	case r.ReadyDropped && r.IdleSince.IsZero():
		return func(ctx context.Context) (bool, error) { return g.store.IdleRoll(ctx, set, r.Position) }
	case r.ReadyDropped && oldest && g.since(r.IdleSince) > retention(set, r.Position):
		return func(ctx context.Context) (bool, error) {
			return g.store.DropRoll(ctx, set, g.store.Clock.Now().Add(-retention(set, r.Position)))
		}
	}
	return nil
}

const (
	// emptyAfter is how long a sealed roll may have ready tasks before they move to the open one.
	emptyAfter = 10 * time.Minute
	// emptyBatches is how many batches of them move in one run.
	emptyBatches = 10
)

// drain ends the leases from a sealed roll if its ready table is empty. It moves what stays there
// for long.
func (g *Governor) drain(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	if r.Position == set.Begin && g.since(r.SealedAt) > emptyAfter {
		for range emptyBatches {
			n, err := g.store.EmptyRoll(ctx, set, r.Position)
			if err != nil {
				return false, err
			}
			if n < store.JobBatch {
				break
			}
		}
	}
	return g.store.DrainRoll(ctx, set)
}

func (g *Governor) since(at time.Time) time.Duration { return g.store.Clock.Now().Sub(at) }

// full reports whether the next roll must open: the previous one is drained, and the open one has
// enough tasks, or is old and has any, or types have left it for tables of their own, and look at
// both until it is drained. tasks is about how many it has.
func (g *Governor) full(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (full bool, tasks int64, err error) {
	most, age := g.store.Catalog.RollLimits(set)
	old := g.since(open.OpenedAt) > age
	switch {
	case set.Begin != set.End:
		return false, 0, nil
	case g.left(set, open):
		return true, 0, nil
	case open.MaxTasks == 0 || !old && open.MaxTasks < most:
		return false, 0, nil
	}
	tasks, err = g.store.TasksIn(ctx, set, open.Position)
	return old || tasks >= most, tasks, err
}

// left reports whether a type has left the open roll of a table set.
func (g *Governor) left(set *store.TableSet, open store.Roll) bool {
	for _, t := range g.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Name != set.Name && t.HasIn(set, open.Position) {
			return true
		}
	}
	return false
}
