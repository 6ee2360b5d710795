package governance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// spread is how long a node may take to hear that a roll was opened or drained. A step taken
// earlier would let writers meet a seal, and readers miss a table.
const spread = 3 * time.Second

const (
	// longestQuietRolls is the longest time for which a node leaves the rolls of a tenant alone
	// whose tasks come and go, since none can become full meanwhile. A busy type gets tables of its
	// own that much later.
	longestQuietRolls = time.Minute
	// mostTasks is more tasks a second than a table set gets.
	mostTasks = 50_000
)

// rollJob opens the rolls that are due, and takes closed ones through their steps: sealed, drained,
// cleared, idle, dropped. It compacts rolls that aren't dropped because of live tasks. It also
// moves types between shared tables and their own, and deletes what is left of deleted types.
// Announced tasks and written tokens wake it.
type rollJob struct {
	*shared
	rests  rests
	losses atomic.Uint64 // of announcements, as last seen
}

// run returns how many steps it took.
func (j *rollJob) run(ctx context.Context) (int, error) {
	// After a failover the database may have lost history, which takes new rolls.
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
// oldest first. One set's failure doesn't stop the others. It leaves out tenants whose rolls rest.
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
func (j *rollJob) fullAt(set *store.TableSet, open store.Roll) time.Time {
	most, _ := j.store.Catalog.RollSize(set)
	room := max(0, most-open.MaxTasks)
	return j.store.Clock.Now().Add(time.Duration(room) * time.Second / mostTasks)
}

// restUntil returns when the next step of a set's rolls is due if no task comes or goes; zero:
// never. ok is false if one may be due at any time.
func (j *rollJob) restUntil(set *store.TableSet, rolls []store.Roll) (at time.Time, ok bool) {
	open := rolls[len(rolls)-1]
	closed := rolls[:len(rolls)-1]
	if set.Closed {
		closed = rolls
	} else if _, age := j.store.Catalog.RollSize(set); open.MaxTasks > 0 {
		at = open.OpenedAt.Add(age)
	}
	if !set.Closed && j.awaitsSearch(set) {
		if soon := open.OpenedAt.Add(searchAfter); at.IsZero() || soon.Before(at) {
			at = soon
		}
	}
	for i, r := range closed {
		if !r.ReadyDropped {
			return at, false
		}
		kept := j.store.Catalog.Retention(set, r.Position)
		var old time.Time
		switch {
		case i == 0 && !r.IdleSince.IsZero():
			old = r.IdleSince.Add(kept)
		case !r.RemainingSince.IsZero():
			old = r.RemainingSince.Add(store.CompactAfter(kept))
		default:
			continue
		}
		if at.IsZero() || old.Before(at) {
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
func (j *rollJob) dueSteps(
	ctx context.Context, set *store.TableSet, rolls []store.Roll,
) ([]rollStep, error) {
	var steps []rollStep
	open := rolls[len(rolls)-1]
	closed := rolls[:len(rolls)-1]
	if set.Closed {
		closed = rolls
	}
	for i, r := range closed {
		if !set.Closed && i == len(closed)-1 && j.since(open.OpenedAt) < spread {
			break // some node may not know the next roll yet
		}
		if step := j.nextStep(set, r, i == 0); step != nil {
			steps = append(steps, step)
		}
	}
	if set.Closed {
		return steps, nil
	}
	if open.Lost {
		return append(steps, func(ctx context.Context) (bool, error) {
			return j.store.EnterHistory(ctx, set)
		}), nil
	}
	if set.Shared() {
		moves, err := j.dueMoves(ctx, set, open)
		if err != nil {
			return steps, err
		}
		steps = append(steps, moves...)
	}
	full, tasks, err := j.mustOpenNext(ctx, set, open)
	if full {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return j.nextRoll(ctx, set, tasks)
		})
	}
	return steps, err
}

// dueMoves returns the steps that give types of the shared set tables of their own, and the one
// that deletes rows of deleted types.
func (j *rollJob) dueMoves(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (steps []rollStep, err error) {
	due, err := j.store.BusyTypes(ctx, set.Tenant, open)
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Shared() && store.AsksForOwnSet(t.TaskType) && !slices.Contains(due, t) {
			due = append(due, t)
		}
	}
	for _, t := range due {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return j.store.OwnSet(ctx, t)
		})
	}
	deleted, err2 := j.store.HasDeletedTypes(ctx, set.Tenant)
	if deleted {
		steps = append(steps, func(ctx context.Context) (bool, error) {
			return j.deleteRows(ctx, set.Tenant)
		})
	}
	return steps, errors.Join(err, err2)
}

// catchUp is how many rolls the shared set opens at most so that a type may join it.
const catchUp = 3

// deleteSteps is how often deleteRows deletes rows before the tenants after it have their turn.
const deleteSteps = 50

// deleteRows deletes rows of deleted types, and reports whether there were any.
func (j *rollJob) deleteRows(ctx context.Context, tenant string) (done bool, err error) {
	at := store.Deleting{More: true}
	for i := 0; at.More && err == nil && i < deleteSteps; i++ {
		at, err = j.store.DeleteRows(ctx, tenant, at)
		done = done || at.Rows > 0
	}
	return done, err
}

// nextRoll opens the next roll of a table set. A type with a set of its own that it no longer needs
// goes to the shared one instead. The shared set must have later positions than the type had; it
// opens a roll for that. tasks is about how many the open roll has.
func (j *rollJob) nextRoll(
	ctx context.Context, set *store.TableSet, tasks int64,
) (done bool, err error) {
	sets := j.store.Catalog.SetsOf(set.Tenant)
	shared := sets[""]
	t := j.store.Catalog.TypesOf(set.Tenant)[set.Name]
	if t == nil || store.AsksForOwnSet(t.TaskType) || tasks >= store.OwnSetTasks {
		return j.store.OpenRoll(ctx, set)
	}
	if shared != nil {
		if behind := set.End - shared.End; behind >= 0 && behind < catchUp {
			return j.store.OpenRoll(ctx, shared)
		}
	}
	if done, err = j.store.JoinSharedSet(ctx, t); done || err != nil {
		return done, err
	}
	return j.store.OpenRoll(ctx, set)
}

// nextStep returns the next step of a closed roll, or nil if none is due.
func (j *rollJob) nextStep(set *store.TableSet, r store.Roll, oldest bool) rollStep {
	retention := j.store.Catalog.Retention(set, r.Position)
	compactAfter := store.CompactAfter(retention)
	switch {
	case r.SealedAt.IsZero():
		return func(ctx context.Context) (bool, error) {
			return j.store.SealRoll(ctx, set, r.Position)
		}
	case r.DrainedAt.IsZero():
		return func(ctx context.Context) (bool, error) { return j.drain(ctx, set, r) }
	case !r.ReadyDropped && j.since(r.DrainedAt) >= spread:
		return func(ctx context.Context) (bool, error) {
			return j.store.ClearRoll(ctx, set, r.Position)
		}
	case !r.ReadyDropped:
		return nil
	case oldest && (r.Dropping || !r.IdleSince.IsZero() && j.since(r.IdleSince) > retention):
		return func(ctx context.Context) (bool, error) { return j.drop(ctx, set, r) }
	case !r.RemainingSince.IsZero() && j.since(r.RemainingSince) > compactAfter:
		return func(ctx context.Context) (bool, error) { return j.compact(ctx, set, r) }
	case r.IdleSince.IsZero():
		return func(ctx context.Context) (bool, error) { return j.idle(ctx, set, r) }
	}
	return nil
}

// drop drops the oldest roll. If other tasks need some of its tasks, it compacts the roll
// meanwhile.
func (j *rollJob) drop(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	retention := j.store.Catalog.Retention(set, r.Position)
	dropped, err := j.store.DropRoll(ctx, set, j.store.Clock.Now().Add(-retention))
	if dropped || err != nil || j.since(r.RemainingSince) <= store.CompactAfter(retention) {
		return dropped, err
	}
	return j.compact(ctx, set, r)
}

func (j *rollJob) compact(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	after := store.CompactAfter(j.store.Catalog.Retention(set, r.Position))
	return j.store.CompactRoll(ctx, set, r.Position, j.store.Clock.Now().Add(-after))
}

// idle finds out whether a cleared roll has live tasks, and notes them if they are few.
func (j *rollJob) idle(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	idle, err := j.store.IdleRoll(ctx, set, r.Position)
	if idle || err != nil || !r.RemainingSince.IsZero() {
		return idle, err
	}
	return j.store.MarkRemaining(ctx, set, r.Position)
}

const (
	// emptyAfter is how long a sealed roll may have ready tasks before they move to the open one.
	emptyAfter = 10 * time.Minute
	// emptyBatches is how many batches of them move in one run.
	emptyBatches = 10
)

// drain ends the leases from a sealed roll if its ready table is empty. It moves what stays there
// for long.
func (j *rollJob) drain(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	if r.Position == set.Begin && j.since(r.SealedAt) > emptyAfter {
		for range emptyBatches {
			n, err := j.store.EmptyRoll(ctx, set, r.Position)
			if err != nil {
				return false, err
			}
			if n < store.JobBatch {
				break
			}
		}
	}
	return j.store.DrainRoll(ctx, set)
}

// mustOpenNext reports whether the next roll must open: the previous one is drained, and the open
// one has enough tasks, or is old and has any, or types have left it for tables of their own, and
// look at both until it is drained, or types have new searchable fields. tasks is about how many it
// has.
func (j *rollJob) mustOpenNext(
	ctx context.Context, set *store.TableSet, open store.Roll,
) (full bool, tasks int64, err error) {
	most, age := j.store.Catalog.RollSize(set)
	old := j.since(open.OpenedAt) > age
	switch {
	case set.Begin != set.End:
		return false, 0, nil
	case j.typeHasLeft(set, open):
		return true, 0, nil
	case j.since(open.OpenedAt) > searchAfter && j.awaitsSearch(set):
		return true, store.OwnSetTasks, nil // the set stays
	case open.MaxTasks == 0 || !old && open.MaxTasks < most:
		return false, 0, nil
	}
	tasks, err = j.store.TasksIn(ctx, set, open.Position)
	return old || tasks >= most, tasks, err
}

// searchAfter is the least age of an open roll before another one opens because of types with new
// searchable fields, however often these change.
const searchAfter = 10 * time.Minute

// awaitsSearch reports whether a type of a table set has fields that are searchable only from the
// next roll on.
func (j *rollJob) awaitsSearch(set *store.TableSet) bool {
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Name == set.Name && t.AwaitsSearch() && set.End < asyncflow.MaxPosition {
			return true
		}
	}
	return false
}

// typeHasLeft reports whether a type has left the open roll of a table set.
func (j *rollJob) typeHasLeft(set *store.TableSet, open store.Roll) bool {
	for _, t := range j.store.Catalog.TypesOf(set.Tenant) {
		if t.Set().Name != set.Name && t.HasIn(set, open.Position) {
			return true
		}
	}
	return false
}
