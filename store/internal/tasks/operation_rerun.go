package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// How an operation makes exactly one new task for each final one, also after a crash: a node takes
// the step by a due time of its own, in one transaction, and submits the tasks of the step outside
// of it. A submit needs connections of the same tenant, so it must not wait for one that the step
// holds. Meanwhile no other node takes the step. A second transaction writes how far the operation
// came, unless another node took the step since. The key of a new task names the operation and the
// final task. So when the step is taken again, because the node died or was slow, the submit gives
// the same tasks. The keys are kept as long as keys can be, or until a day after the step was
// written.

const (
	// rerunPatience bounds the time in which a step submits. rerunTaken is for how long no other
	// node takes the step.
	rerunPatience = 4 * time.Second
	rerunTaken    = 5 * time.Second
	// rerunBytes is about how many bytes the contexts of the tasks of a step take.
	rerunBytes = 4 << 20
	// rerunKeyKept is how long the key of a new task is kept after its step was written.
	rerunKeyKept = 24 * time.Hour
	// rerunPause is how long an operation waits when a task can't be submitted now.
	rerunPause = 5 * time.Second
	// maxOperationError bounds why an operation waits, in bytes.
	maxOperationError = 1000
)

// rerunKey returns the key of the new task that an operation makes for a final one.
func rerunKey(operation string, number int64) string {
	return fmt.Sprintf("rerun:%s:%d", operation, number)
}

// reruns are the new tasks of a step, and what the step found.
type reruns struct {
	found findings
	tasks []asyncflow.NewTask
	of    []int64 // the numbers of the final ones
	keys  []string
}

// prepareReruns reads the final tasks that a search found, and takes the step for a while if some
// can be submitted. It leaves findings from the first task on with too much context for this step.
func (st *step) prepareReruns(ctx context.Context, tx pgx.Tx, f findings) error {
	st.reruns = &reruns{found: f}
	st.o.Error = ""
	if len(f.ids) == 0 {
		return nil
	}
	all, err := readReruns(ctx, tx, st.t, f.ids, rerunBytes)
	if err != nil {
		return err
	}
	if n := readWhole(all); n < len(all) {
		st.reruns.found = f.before(all[n].id.Number)
		all = all[:n]
	}
	st.newTasks(all)
	if len(st.reruns.tasks) == 0 {
		return nil
	}
	st.o.nextAt = st.now.Add(rerunTaken)
	_, err = tx.Exec(ctx, `UPDATE `+st.t.Set().Tables.Qualify("operations")+`
		SET next_at = $2 WHERE id = $1::uuid`, st.o.ID, st.o.nextAt)
	return err
}

// rerun submits the new tasks of a step, outside of any transaction, and then writes the progress
// of the operation; pgx.ErrNoRows when another node took the step.
func (s *operations) rerun(ctx context.Context, st *step) error {
	taken := st.o.nextAt
	done, stop := st.submitReruns(ctx)
	r := st.reruns
	st.done = done
	if stop < len(r.tasks) {
		r.found = r.found.before(r.of[stop])
	}
	if stop == 0 && len(r.found.ids) == 0 { // nothing could be submitted
		st.o.nextAt = st.now.Add(rerunPause)
	} else {
		st.advanceReruns()
	}
	return s.searching(ctx, st.t.Tenant, func(tx pgx.Tx) error {
		var state OperationState
		err := tx.QueryRow(ctx, `SELECT state FROM `+st.t.Set().Tables.Qualify("operations")+`
			WHERE id = $1::uuid AND next_at = $2 FOR UPDATE`, st.o.ID, taken).Scan(&state)
		if err != nil {
			return err
		}
		if err := st.keepKeys(ctx, tx, r.keys); err != nil {
			return err
		}
		if err := st.goOn(ctx, tx); err != nil {
			return err
		}
		return st.writeRerun(ctx, tx, state)
	})
}

// writeRerun writes the progress of a step. An operation that was stopped meanwhile stays so.
func (st *step) writeRerun(ctx context.Context, tx pgx.Tx, now OperationState) error {
	if now == OperationRunning {
		return st.write(ctx, tx)
	}
	_, err := tx.Exec(ctx, `UPDATE `+st.t.Set().Tables.Qualify("operations")+`
		SET done = $2, skipped = $3 WHERE id = $1::uuid`, st.o.ID, st.o.Done, st.o.Skipped)
	st.o.State = now
	return err
}

// advanceReruns updates the operation after a step, and makes the next one wait for the tenant's
// rate of submits: a rerun leaves half of it to others.
func (st *step) advanceReruns() {
	now := st.now
	st.o.advance(st.reruns.found, st.done, now)
	if st.rate > 0 {
		pause := time.Duration(float64(st.cost) / st.rate * float64(time.Second))
		if at := now.Add(pause); at.After(st.o.nextAt) {
			st.o.nextAt = at
		}
	}
}

// submitReruns submits the new tasks of a step, and returns how many are submitted before the first
// one that can't be submitted now, and which that is.
func (st *step) submitReruns(ctx context.Context) (done, stop int) {
	r := st.reruns
	short, cancel := context.WithTimeout(ctx, rerunPatience)
	defer cancel()
	results := st.submit(short, st.t.Tenant, r.tasks)
	for stop = range results {
		result := &results[stop]
		switch {
		case result.Err == nil || asyncflow.CodeOf(result.Err) == asyncflow.CodeKeyReused:
			done++
			r.keys = append(r.keys, r.tasks[stop].Options.Key)
			if result.Err == nil && !result.Existing {
				st.cost += st.t.CountNew(r.tasks[stop].Context, st.mostChildren)
			}
		case !refusedForGood(result.Err):
			st.o.Error = waitText(result.Err)
			return done, stop
		}
	}
	return done, len(results)
}

// newTasks adds the new tasks of final ones that may get them. It leaves findings from the first
// one on that is too much for a second of the tenant's rate of submits.
func (st *step) newTasks(all []rerun) {
	window := min(asyncflow.MaxKeyWindow, st.t.Retention.Std())
	cost := 0
	for _, r := range all {
		task, err := r.task()
		if err != nil || st.patchContext(&task) != nil {
			continue
		}
		task.Options.Key = rerunKey(st.o.ID, r.id.Number)
		task.KeyWindow = asyncflow.KeyFor(window)
		task.StartBy = st.o.StartBy
		task.EndBy = st.o.EndBy
		if st.mostBytes > 0 && int64(len(task.Context)) > st.mostBytes ||
			task.Validate(st.now, math.MaxInt) != nil ||
			st.t.CheckPriority(task.Options.Priority) != nil {
			continue
		}
		cost += st.t.CountNew(task.Context, st.mostChildren)
		if st.rate > 0 && len(st.reruns.tasks) > 0 && float64(cost) > st.rate {
			st.reruns.found = st.reruns.found.before(r.id.Number)
			return
		}
		st.reruns.tasks = append(st.reruns.tasks, task)
		st.reruns.of = append(st.reruns.of, r.id.Number)
	}
}

// patchContext applies the patch of the operation, if there is one, to the context of a new task. A
// context that the patch makes longer must keep to the node's limit. One that is over it already,
// since the limit was lowered, runs again as long as it doesn't grow.
func (st *step) patchContext(task *asyncflow.NewTask) error {
	if st.o.ContextPatch == nil {
		return nil
	}
	before := len(task.Context)
	patched, err := asyncflow.PatchContext(task.Context, st.o.ContextPatch)
	if err != nil {
		return err
	}
	task.Context = patched
	if most := st.tasks.core.Config.MaxContext; most > 0 && len(patched) > max(most, before) {
		return asyncflow.Errorf(asyncflow.CodeTooLarge, "the patched context is too long")
	}
	return nil
}

// readWhole returns how many of some tasks were read with their contexts.
func readWhole(all []rerun) int {
	for i, r := range all {
		if r.context == nil {
			return i
		}
	}
	return len(all)
}

// before returns the findings before a task.
func (f findings) before(id int64) findings {
	out := findings{last: id - 1}
	for _, other := range f.ids {
		if other < id {
			out.ids = append(out.ids, other)
		}
	}
	return out
}

// refusedForGood reports whether a submit would be refused again. A key window that is too long is
// no refusal for good: the next step takes one that fits the type as it is by then.
func refusedForGood(err error) bool {
	if known := new(asyncflow.Error); errors.As(err, &known) && slices.ContainsFunc(known.Fields,
		func(f asyncflow.FieldError) bool { return f.Field == "key_window" }) {
		return false
	}
	switch asyncflow.CodeOf(err) {
	case asyncflow.CodeInvalid, asyncflow.CodeTooLarge, asyncflow.CodeNotFound:
		return true
	}
	return false
}

// waitText says why an operation waits.
func waitText(err error) string {
	text := "a task can't be submitted now"
	if known := new(asyncflow.Error); errors.As(err, &known) {
		text = known.Detail()
	}
	return text[:min(len(text), maxOperationError)]
}

// keepKeys lets the keys of submitted tasks end soon.
func (st *step) keepKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, st.t.SQL(0, `UPDATE {keys} SET expires_at = least(expires_at, $3)
		WHERE type = $1 AND key = ANY ($2)`), st.t.Name, keys, st.now.Add(rerunKeyKept))
	return err
}

// chargeReruns counts new tasks in the tenant's rate of submits, with their children that are
// known.
func (s *operations) chargeReruns(st *step) {
	if tenant, ok := s.core.Catalog.Tenant(st.t.Tenant); ok && st.cost > 0 {
		s.hot.ChargeSubmits(tenant.Slug, st.cost)
	}
}

// rerunShare is the part of a tenant's rate of submits that a rerun uses.
const rerunShare = 0.5

// rerunLimits makes a step of a rerun keep to the quotas of its tenant.
func (st *step) rerunLimits(tenant *config.Tenant) {
	st.rate = rerunShare * tenant.Quotas.SubmitsPerSecond
	st.mostBytes = tenant.Quotas.ContextBytes
	st.mostChildren = tenant.Quotas.MostChildren()
}

// waitForTenant leaves a rerun for later: a tenant that is suspended submits nothing.
func (st *step) waitForTenant(ctx context.Context, tx pgx.Tx) error {
	st.o.Error = "the tenant is suspended"
	st.o.nextAt = st.now.Add(rerunPause)
	return st.write(ctx, tx)
}
