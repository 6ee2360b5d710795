package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

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
			return j.store.EnterIncarnation(ctx, set)
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
	case j.trimDue(r):
		return func(ctx context.Context) (bool, error) { return j.trim(ctx, set, r) }
	case r.IdleSince.IsZero():
		return func(ctx context.Context) (bool, error) { return j.idle(ctx, set, r) }
	}
	return nil
}

// drop drops the oldest roll. If other tasks need some of its tasks, it compacts or trims the roll
// meanwhile.
func (j *rollJob) drop(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	retention := j.store.Catalog.Retention(set, r.Position)
	dropped, err := j.store.DropRoll(ctx, set, j.store.Clock.Now().Add(-retention))
	switch {
	case dropped || err != nil:
		return dropped, err
	case j.since(r.RemainingSince) > store.CompactAfter(retention):
		return j.compact(ctx, set, r)
	case j.trimDue(r):
		return j.trim(ctx, set, r)
	}
	return false, nil
}

func (j *rollJob) compact(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	after := store.CompactAfter(j.store.Catalog.Retention(set, r.Position))
	return j.store.CompactRoll(ctx, set, r.Position, j.store.Clock.Now().Add(-after))
}

// trimDue reports whether a step of the trimming of a roll is due.
func (j *rollJob) trimDue(r store.Roll) bool {
	return !r.TrimAt.IsZero() && j.since(r.TrimAt) >= 0
}

func (j *rollJob) trim(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	after := store.CompactAfter(j.store.Catalog.Retention(set, r.Position))
	return j.store.TrimRoll(ctx, set, r.Position, j.store.Clock.Now().Add(-after))
}

// idle finds out whether live tasks are in a cleared roll. It notes them if they are few; otherwise
// the roll is to be trimmed.
func (j *rollJob) idle(ctx context.Context, set *store.TableSet, r store.Roll) (bool, error) {
	idle, err := j.store.IdleRoll(ctx, set, r.Position)
	if idle || err != nil || !r.RemainingSince.IsZero() {
		return idle, err
	}
	noted, err := j.store.MarkRemaining(ctx, set, r.Position)
	if noted || err != nil || !r.TrimAt.IsZero() {
		return noted, err
	}
	return j.store.PlanTrim(ctx, set, r.Position)
}

const (
	// emptyAfter is how long ready tasks may stay in a sealed roll before they move to the open
	// one.
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
