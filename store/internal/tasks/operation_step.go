package tasks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

const (
	// stepWindow is how many tasks a step looks at; stepTasks is the most that it changes. A step
	// of a count looks at countWindow, unless it searches errors: a search for 200 characters in
	// errors of 4 KiB, all written to make it slow, takes 0.5 ms for each.
	stepWindow = 1000
	stepTasks  = 100
)

// DueOperation is a running operation and when its next step is due.
type DueOperation struct {
	Tenant, Type, ID string
	At               time.Time
}

// FirstSteps returns when the first step of the running operations of each of some tenants is due.
// It leaves out tenants without running operations.
func (s *operations) FirstSteps(
	ctx context.Context, tenants []string,
) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants,
		`SELECT i, min(next_at) FROM {schema}.operations WHERE state = 'running'`)
	return all, postgres.Wrap(err, "FirstSteps")
}

// DueOperations returns the running operations of some tenants with a next step that is due before
// a time, first due first.
func (s *operations) DueOperations(
	ctx context.Context, tenants []string, before time.Time,
) (all []DueOperation, err error) {
	err = s.core.QueryTenants(ctx, tenants,
		`SELECT i, type, id::text, next_at FROM {schema}.operations
			WHERE state = 'running' AND next_at < $1`, []any{before},
		func(tenant string, row pgx.CollectableRow) error {
			d := DueOperation{Tenant: tenant}
			err := row.Scan(nil, &d.Type, &d.ID, &d.At)
			all = append(all, d)
			return err
		})
	slices.SortFunc(all,
		func(a, b DueOperation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return all, postgres.Wrap(err, "DueOperations")
}

// Step is what one step of an operation did.
type Step struct {
	Done int       // how many tasks it changed
	Next time.Time // when the next step is due; zero: there is none, or another node takes it
	Type string    // of the tasks of the next step
}

// StepOperation takes the next step of an operation if it is due. A step is one transaction, which
// locks the operation's row. So no other node takes the same step, and nothing is done or counted
// twice. A failed step did nothing and can be taken again, unless the operation can't go on: then
// the operation fails. A rerun calls submit between two transactions.
func (s *operations) StepOperation(
	ctx context.Context, due DueOperation, submit catalog.Submit,
) (Step, error) {
	t, err := s.core.Catalog.Fresh(ctx, due.Tenant, due.Type)
	switch {
	case err != nil && asyncflow.CodeOf(err) == asyncflow.CodeNotFound: // it was deleted
		return Step{}, nil
	case err != nil:
		return Step{}, err
	}
	var st step
	err = s.searching(ctx, t.Tenant, func(tx pgx.Tx) error {
		st = step{tasks: s, now: s.core.Clock.Now(), clock: s.core.Clock.Now, submit: submit}
		if err := st.lock(ctx, tx, t, due); err != nil {
			return err
		}
		if tenant, ok := s.core.Catalog.Tenant(t.Tenant); ok && st.o.Kind == RerunTasks {
			st.rerunLimits(tenant)
			if tenant.Suspended {
				return st.waitForTenant(ctx, tx)
			}
		}
		if err := st.handle(ctx, tx); err != nil {
			return err
		}
		if st.submits() {
			return nil
		}
		return st.write(ctx, tx)
	})
	if err == nil && st.submits() {
		err = s.rerun(ctx, &st)
		s.chargeReruns(&st)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Step{}, nil
	case err != nil && (postgres.IsDataException(err) ||
		asyncflow.CodeOf(err) == asyncflow.CodeInvalid):
		return Step{}, s.failOperation(ctx, due, err)
	case err != nil:
		return Step{}, postgres.Wrap(err, "StepOperation(%q, %q, %s)", due.Tenant, due.Type, due.ID)
	}
	s.core.Wakeups.Announce(t.Key(), st.tokens.Earliest)
	hot.AnnounceFreed(ctx, s.hot, t, st.cancelled)
	if st.o.Kind != CountAll {
		s.core.TellFollowUp(t.Tenant)
	}
	for _, c := range st.cancelled {
		s.core.Watchers.Tell(t.Key(), c.Lease.ID.Number)
	}
	for _, id := range st.changed {
		s.core.Watchers.Tell(t.Key(), id)
	}
	out := Step{Done: st.done, Type: st.o.Filter.Type}
	if st.o.State == OperationRunning {
		out.Next = st.o.nextAt
	}
	return out, nil
}

// step is a step of an operation under way.
type step struct {
	tasks     *operations
	t         *config.Type
	o         Operation
	now       time.Time
	clock     func() time.Time
	done      int
	cancelled []asyncflow.Settlement
	changed   []int64 // tasks with another priority or time, or without contents

	tokens records.Tokens

	// of a rerun
	submit       catalog.Submit
	reruns       *reruns
	rate         float64 // the most submits a second, as they are charged; 0: no limit
	cost         int     // what is charged for the new tasks
	mostBytes    int64   // of the context of a new task; 0: no limit
	mostChildren int     // of a new task
}

// submits reports whether the step is to submit new tasks.
func (st *step) submits() bool { return st.reruns != nil && len(st.reruns.tasks) > 0 }

// lock locks and reads the operation; pgx.ErrNoRows when it isn't due or is at another type,
// another node takes the step, or its type is being changed or deleted. It locks the type's row
// first, so that a deletion of the type waits and doesn't deadlock.
func (st *step) lock(ctx context.Context, tx pgx.Tx, t *config.Type, due DueOperation) error {
	rows, _ := tx.Query(ctx, `
		SELECT `+operationColumns+`
		FROM `+operationsOf(due.Tenant)+` o JOIN `+t.Set().Tables.Qualify("task_types")+` tt
		  ON tt.name = o.type
		WHERE o.id = $1::uuid AND o.state = 'running' AND o.next_at <= $2 AND o.type = $3
		FOR UPDATE OF o SKIP LOCKED FOR KEY SHARE OF tt SKIP LOCKED`, due.ID, st.now, t.Name)
	var err error
	st.o, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Operation, error) {
		return scanOperation(row)
	})
	if err != nil {
		return err
	}
	st.t, err = config.RollsNow(ctx, tx, t)
	return err
}

// handle cancels, redrives, reruns, changes, erases or counts the next tasks. It leaves alone an
// operation that only newer nodes know.
func (st *step) handle(ctx context.Context, tx pgx.Tx) error {
	window := stepWindow
	switch st.o.Kind {
	case CountAll:
		if st.o.Filter.Error == "" && st.o.Filter.Fingerprint == "" {
			window = countWindow
		}
	case CancelTasks, RedriveTasks, PrioritizeTasks, DelayTasks, RerunTasks, EraseTasks:
	default:
		return pgx.ErrNoRows
	}
	if err := st.o.check(st.t); err != nil {
		return err
	}
	f, err := search(ctx, tx, st.t, st.o.criteria(), st.o.position, window)
	if err != nil {
		return err
	}
	if st.o.Kind == CountAll {
		st.o.count(f, st.now)
		return st.goOn(ctx, tx)
	}
	if most := st.most(); len(f.ids) > most {
		f = findings{ids: f.ids[:most], last: f.ids[most-1]}
	}
	if st.o.Kind == RerunTasks {
		if err := st.prepareReruns(ctx, tx, f); err != nil || st.submits() {
			return err
		}
		f = st.reruns.found
	}
	done, err := st.change(ctx, tx, f.ids)
	if err != nil {
		return err
	}
	st.done = done
	st.o.advance(f, done, st.now)
	return st.goOn(ctx, tx)
}

// goOn takes an operation on all types that is done with one of them to the next.
func (st *step) goOn(ctx context.Context, tx pgx.Tx) error {
	if !st.o.AllTypes || st.o.State != OperationDone {
		return nil
	}
	var next *string
	err := tx.QueryRow(ctx, st.t.SQL(0,
		`SELECT min(name) FROM {types} WHERE name > $1 AND created_at <= $2`), st.o.Filter.Type,
		st.o.CreatedAt).Scan(&next)
	if err != nil || next == nil {
		return err
	}
	st.o.Filter.Type = *next
	st.o.State = OperationRunning
	st.o.FinishedAt = time.Time{}
	st.o.position = 0
	return nil
}

// change cancels, redrives, erases or changes tasks of one roll and returns how many it changed.
func (st *step) change(ctx context.Context, tx pgx.Tx, ids []int64) (int, error) {
	switch {
	case len(ids) == 0 || st.o.Kind == RerunTasks:
		return 0, nil
	case st.o.Kind == CancelTasks:
		var err error
		st.cancelled, err = trees.CancelAll(ctx, tx, st.t, ids, st.o.Reason, st.now)
		return len(st.cancelled), err
	case st.o.Kind == PrioritizeTasks || st.o.Kind == DelayTasks:
		return st.patch(ctx, tx, ids)
	case st.o.Kind == EraseTasks:
		var err error
		st.changed, _, err = st.tasks.eraseAll(ctx, tx, st.t, ids,
			asyncflow.Erasure{At: st.now, By: st.o.By})
		return len(st.changed), err
	}
	done, _, err := trees.RedriveAll(ctx, st.tasks.trees, tx, st.t, ids,
		trees.Redrive{Stage: st.o.FromStage, StartBy: st.o.StartBy, EndBy: st.o.EndBy},
		&st.tokens, st.now)
	return len(done), err
}

// write writes the progress of the operation.
func (st *step) write(ctx context.Context, tx pgx.Tx) error {
	o := st.o
	o.end()
	_, err := tx.Exec(ctx, `UPDATE `+st.t.Set().Tables.Qualify("operations")+`
		SET position = $2, done = $3, skipped = $4, next_at = $5, state = $6, finished_at = $7,
		  total = $8, type = $9, error = $10
		WHERE id = $1::uuid`,
		o.ID, o.position, o.Done, o.Skipped, o.nextAt, string(o.State),
		postgres.OrNull(o.FinishedAt), o.Total, o.Filter.Type,
		postgres.OrNull(o.Error))
	return err
}

// end gives an operation that is done its last numbers. Tasks that were counted at the beginning
// and are not done at the end are skipped: they no longer met the filter when they were visited.
func (o *Operation) end() {
	switch {
	case o.State != OperationDone:
	case o.Kind == CountAll:
		o.Total = o.Done + o.Skipped
	default:
		o.Skipped = max(o.Skipped, o.Total-o.Done)
	}
}

// most returns how many tasks one step may change: at most the tasks of a second.
func (st *step) most() int {
	most := float64(stepTasks)
	for _, rate := range []float64{st.o.Pace, st.rate} {
		if rate > 0 {
			most = min(most, rate)
		}
	}
	return max(1, int(most))
}

// advance updates the operation after a step.
func (o *Operation) advance(f findings, done int, now time.Time) {
	o.position = f.last
	o.Done += int64(done)
	o.Skipped += int64(len(f.ids) - done)
	o.nextAt = now
	if o.Pace > 0 {
		o.nextAt = now.Add(time.Duration(float64(done) / o.Pace * float64(time.Second)))
	}
	if f.over {
		o.State = OperationDone
		o.FinishedAt = now
	}
}

// count updates a count after a step.
func (o *Operation) count(f findings, now time.Time) {
	o.position = f.last
	o.nextAt = now
	o.Done += int64(len(f.ids))
	o.Skipped += int64(f.seen - len(f.ids))
	o.Total = max(o.Total, o.Done+o.Skipped)
	if f.over {
		o.State = OperationDone
		o.FinishedAt = now
	}
}

// failOperation ends an operation that can't go on.
func (s *operations) failOperation(ctx context.Context, due DueOperation, why error) error {
	text := "Postgres refused it: " + why.Error()
	if known := new(asyncflow.Error); errors.As(why, &known) {
		text = known.Detail()
	}
	s.core.Log.Error("an operation can't go on", "tenant", due.Tenant, "type", due.Type,
		"operation", due.ID, "error", why)
	_, err := s.core.DB(due.Tenant).Exec(ctx,
		`UPDATE `+operationsOf(due.Tenant)+` SET state = 'failed', error = $2, finished_at = $3
		WHERE id = $1::uuid AND state = 'running'`, due.ID, text, s.core.Clock.Now())
	return postgres.Wrap(err, "failOperation(%q, %s)", due.Tenant, due.ID)
}
