package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// maxRedriven bounds the dependents that are redriven with a task.
const maxRedriven = 1000

// redriving redrives the dependents of a task that failed or were cancelled because of it, and
// their dependents. They wait again.
type redriving struct {
	s    *Store
	tx   pgx.Tx
	t    *Type // of the task
	now  time.Time
	done []asyncflow.TaskID
}

// with redrives a task, and its dependents if they are asked for.
func (r *redriving) with(
	ctx context.Context, id asyncflow.TaskID, how Redrive, ts *tokens,
) error {
	_, refused, err := redriveAll(ctx, r.tx, r.t, []int64{id.Number}, how, ts, r.now)
	if err == nil {
		err = refused[id.Number]
	}
	if err == nil && how.Dependents {
		err = r.all(ctx, id)
	}
	slices.SortFunc(r.done, func(a, b asyncflow.TaskID) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Number, b.Number))
	})
	if err == nil && how.DryRun {
		err = errDry
	}
	return err
}

// all redrives the dependents of a task that was redriven in the transaction.
func (r *redriving) all(ctx context.Context, id asyncflow.TaskID) error {
	level := []taskRef{{r.t.number, id.Number}}
	for len(level) > 0 {
		failed, err := r.failedBy(ctx, level)
		if err != nil {
			return err
		}
		if len(r.done)+len(failed) > maxRedriven {
			return asyncflow.Errorf(asyncflow.CodeConflict, "more than %d tasks failed because of task "+
				"%s: redrive it without its dependents, and these by an operation", maxRedriven, id)
		}
		if level, err = r.redrive(ctx, failed); err != nil {
			return err
		}
	}
	return nil
}

// failedBy returns the failed edges on tasks, each of another dependent.
func (r *redriving) failedBy(ctx context.Context, on []taskRef) ([]edge, error) {
	rows, err := r.tx.Query(ctx, r.t.at(0, `
		SELECT DISTINCT ON (e.type, e.id) e.type, e.id, e.n
		FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
		JOIN {edges} e ON e.on_type = u.type AND e.on_id = ANY (ARRAY[u.id]) AND e.status <> 'succeeded'
		WHERE e.on_failure <> 'run' LIMIT $3`),
		column(on, func(k *taskRef) int32 { return k.number }),
		column(on, func(k *taskRef) int64 { return k.id }), maxRedriven+1)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e edge, err error) {
		return e, row.Scan(&e.number, &e.id, &e.n)
	})
}

// redrive redrives those dependents of failed edges that ended because of their dependencies, and
// returns them.
func (r *redriving) redrive(ctx context.Context, failed []edge) (done []taskRef, err error) {
	ids := map[int32][]int64{}
	for _, e := range failed {
		ids[e.number] = append(ids[e.number], e.id)
	}
	byNumber := func(a, b *Type) int { return cmp.Compare(a.number, b.number) }
	for _, t := range slices.SortedFunc(maps.Values(r.s.Catalog.TypesOf(r.t.Tenant)), byNumber) {
		if len(ids[t.number]) == 0 {
			continue
		}
		if t, err = rollsNow(ctx, r.tx, t); err != nil {
			return nil, err
		}
		rolls := byPosition(ids[t.number])
		for _, position := range slices.Sorted(maps.Keys(rolls)) {
			if !t.Has(position) {
				continue
			}
			more, err := r.redriveRoll(ctx, t, position, rolls[position])
			if err != nil {
				return nil, err
			}
			done = append(done, more...)
		}
	}
	return done, nil
}

func (r *redriving) redriveRoll(
	ctx context.Context, t *Type, position int, ids []int64,
) (done []taskRef, err error) {
	rows, err := r.tx.Query(ctx, t.at(position, `
		SELECT u.id FROM unnest($1::bigint[]) AS u (id), LATERAL (
		  SELECT * FROM {journal} j WHERE j.type = $2 AND j.id = u.id ORDER BY j.seq DESC LIMIT 1) j
		WHERE j.final IS NOT NULL AND j.outcome = 'dependencies' ORDER BY u.id`), ids, t.number)
	if err != nil {
		return nil, err
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	ids, _, err = redriveAll(ctx, r.tx, t, ids, Redrive{parked: true}, &tokens{}, r.now)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	for _, id := range ids {
		done = append(done, taskRef{t.number, id})
		r.done = append(r.done, asyncflow.TaskID{Type: t.Name, Number: id})
	}
	return done, r.reopen(ctx, t, ids)
}

// reopen opens the edges of tasks on others that live again, and has the tasks looked at. Those on
// others that have ended are closed again then. Each waits as long as it would have at first.
func (r *redriving) reopen(ctx context.Context, t *Type, ids []int64) error {
	_, err := r.tx.Exec(ctx, t.at(0, `
		UPDATE {edges} SET status = NULL, until = $3::timestamptz + wait_for
		WHERE type = $1 AND id = ANY ($2) AND status <> 'succeeded' AND on_failure <> 'run'`),
		t.number, ids, r.now)
	if err != nil {
		return err
	}
	all := rows{tables: t.set.tables}
	for _, id := range ids {
		all.outbox = append(all.outbox, outboxRow{kind: outboxLook, number: t.number, id: id})
	}
	b := &pgx.Batch{}
	all.queue(b, r.now)
	return r.tx.SendBatch(ctx, b).Close()
}

// tell tells those who follow the tasks that were redriven.
func (r *redriving) tell() {
	for _, id := range r.done {
		r.s.watched.tell(TypeKey{r.t.Tenant, id.Type}, id.Number)
	}
	if len(r.done) > 0 {
		r.s.tellFollowUp(r.t.Tenant)
	}
}
