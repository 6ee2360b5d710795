package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// How an operation makes exactly one new task for each final one, also after a crash: the node
// locks the operation's row while it submits the tasks of a step, so that no other node takes the
// step. The key of a new task names the operation and the final task. So when the step is taken
// again, because the node died before it wrote how far it came, the submit gives the same tasks.
// The keys are kept as long as keys can be, or until a day after the step was written.

const (
	// rerunPatience bounds the time in which a step submits. Its transaction is idle meanwhile, so
	// it is shorter than idle_in_transaction_session_timeout.
	rerunPatience = 4 * time.Second
	// rerunBytes is about how many bytes the contexts of the tasks of a step have.
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

// rerun submits the new tasks of the final ones that a search found, and returns how many it
// submitted. It leaves findings from the first task on that can't be submitted now, or that has too
// much context for this step; waits says that this is the first of all.
func (st *step) rerun(
	ctx context.Context, tx pgx.Tx, f findings,
) (left findings, done int, waits bool, err error) {
	if len(f.ids) == 0 {
		return f, 0, false, nil
	}
	all, err := readReruns(ctx, tx, st.t, f.ids, rerunBytes)
	if err != nil {
		return f, 0, false, err
	}
	st.o.Error = ""
	if n := readWhole(all); n < len(all) {
		f = f.before(all[n].id.Number)
		all = all[:n]
	}
	tasks, of := st.newTasks(all)
	if len(tasks) == 0 {
		return f, 0, false, nil
	}
	done, stop, err := st.submitReruns(ctx, tx, tasks)
	if err == nil && stop < len(tasks) {
		waits = of[stop] == f.ids[0]
		f = f.before(of[stop])
	}
	return f, done, waits, err
}

// submitReruns submits new tasks, and returns how many are submitted before the first one that
// can't be submitted now, and which that is.
func (st *step) submitReruns(
	ctx context.Context, tx pgx.Tx, tasks []asyncflow.NewTask,
) (done, stop int, err error) {
	short, cancel := context.WithTimeout(ctx, rerunPatience)
	results := st.submit(short, st.t.Tenant, tasks)
	cancel()
	var keys []string
	for stop = range results {
		result := &results[stop]
		switch {
		case result.Err == nil || asyncflow.CodeOf(result.Err) == asyncflow.CodeKeyReused:
			done++
			keys = append(keys, tasks[stop].Options.Key)
			if result.Err == nil && !result.Existing {
				st.charged = append(st.charged, tasks[stop])
			}
		case !refusedForGood(result.Err):
			st.o.Error = waitText(result.Err)
			return done, stop, st.keepKeys(ctx, tx, keys)
		}
	}
	return done, len(results), st.keepKeys(ctx, tx, keys)
}

// newTasks returns the new tasks of final ones that may have them, and the numbers of these.
func (st *step) newTasks(all []rerun) (tasks []asyncflow.NewTask, of []int64) {
	window := min(asyncflow.MaxKeyWindow, st.t.Retention.Std())
	for _, r := range all {
		task, err := r.task()
		if err != nil {
			continue
		}
		task.Options.Key = rerunKey(st.o.ID, r.id.Number)
		task.KeyWindow = asyncflow.KeyFor(window)
		if st.mostBytes > 0 && int64(len(task.Context)) > st.mostBytes ||
			task.Validate(st.now, math.MaxInt) != nil ||
			st.t.CheckPriority(task.Options.Priority) != nil {
			continue
		}
		tasks = append(tasks, task)
		of = append(of, r.id.Number)
	}
	return tasks, of
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

// refusedForGood reports whether a submit would be refused again.
func refusedForGood(err error) bool {
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
func (s *Tasks) chargeReruns(st *step) {
	tenant, ok := s.core.Catalog.Tenant(st.t.Tenant)
	if !ok {
		return
	}
	for _, task := range st.charged {
		s.hot.ChargeSubmits(tenant.Slug, st.t.CountNew(task.Context, tenant.Quotas.MostChildren()))
	}
}

// rerunLimits has a step of a rerun keep to the quotas of its tenant.
func (st *step) rerunLimits(tenant *config.Tenant) {
	if rate := tenant.Quotas.SubmitsPerSecond; rate > 0 && (st.o.Pace == 0 || rate < st.o.Pace) {
		st.o.Pace = rate
	}
	st.mostBytes = tenant.Quotas.ContextBytes
}
