package trees

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// maxRedriven bounds the dependents that are redriven with a task.
const maxRedriven = 1000

// Redriving redrives the dependents of a task that failed or were cancelled because of it, and
// their dependents. They wait again.
type Redriving struct {
	Trees *Trees
	Tx    pgx.Tx
	Type  *config.Type // of the task
	Now   time.Time
	Done  []asyncflow.TaskID
}

// With redrives a task, and its dependents if they are asked for.
func (r *Redriving) With(
	ctx context.Context, id asyncflow.TaskID, how Redrive, ts *records.Tokens,
) error {
	_, refused, err := RedriveAll(ctx, r.Trees, r.Tx, r.Type, []int64{id.Number}, how, ts, r.Now)
	if err != nil {
		return err
	}
	if err := refused[id.Number]; err != nil {
		return err
	}
	if how.Dependents {
		if err := r.all(ctx, id); err != nil {
			return err
		}
	}
	slices.SortFunc(r.Done, func(a, b asyncflow.TaskID) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Number, b.Number))
	})
	if how.DryRun {
		return postgres.ErrDry
	}
	return nil
}

// all redrives the dependents of a task that was redriven in the transaction.
func (r *Redriving) all(ctx context.Context, id asyncflow.TaskID) error {
	level := []taskRef{{r.Type.Number(), id.Number}}
	for len(level) > 0 {
		failed, err := r.failedBy(ctx, level)
		if err != nil {
			return err
		}
		if len(r.Done)+len(failed) > maxRedriven {
			return asyncflow.Errorf(asyncflow.CodeConflict,
				"more than %d tasks failed because of task "+
					"%s: redrive it without its dependents, and these by an operation", maxRedriven, id)
		}
		if level, err = r.redrive(ctx, failed); err != nil {
			return err
		}
	}
	return nil
}

// FailedBySQL reads failed edges on tasks, each of another dependent. A dependent may have two on
// one task: by its id and by its key.
const FailedBySQL = `
SELECT DISTINCT ON (e.type, e.id) e.type, e.id, e.n
FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
CROSS JOIN LATERAL (SELECT type, id, n FROM {edges}
  WHERE on_type = u.type AND on_id BETWEEN u.id AND u.id
    AND status <> 'succeeded' AND on_failure <> 'run'
  ORDER BY on_id LIMIT 2 * $3) e
LIMIT $3`

// failedBy returns the failed edges on tasks, each of another dependent.
func (r *Redriving) failedBy(ctx context.Context, on []taskRef) ([]edge, error) {
	rows, _ := r.Tx.Query(ctx, r.Type.SQL(0, FailedBySQL),
		records.Column(on, func(k *taskRef) int32 { return k.number }),
		records.Column(on, func(k *taskRef) int64 { return k.id }), maxRedriven+1)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e edge, err error) {
		return e, row.Scan(&e.number, &e.id, &e.n)
	})
}

// redrive redrives the dependents of failed edges that ended because of their dependencies, and
// returns them.
func (r *Redriving) redrive(ctx context.Context, failed []edge) (done []taskRef, err error) {
	ids := map[int32][]int64{}
	for _, e := range failed {
		ids[e.number] = append(ids[e.number], e.id)
	}
	byNumber := func(a, b *config.Type) int { return cmp.Compare(a.Number(), b.Number()) }
	for _, t := range slices.SortedFunc(maps.Values(r.Trees.core.Catalog.TypesOf(r.Type.Tenant)),
		byNumber) {
		if len(ids[t.Number()]) == 0 {
			continue
		}
		if t, err = config.RollsNow(ctx, r.Tx, t); err != nil {
			return nil, err
		}
		rolls := config.ByPosition(ids[t.Number()])
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

func (r *Redriving) redriveRoll(
	ctx context.Context, t *config.Type, position int, ids []int64,
) (done []taskRef, err error) {
	rows, _ := r.Tx.Query(ctx, t.SQL(position, `
		SELECT u.id FROM unnest($1::bigint[]) AS u (id), LATERAL (
		  SELECT * FROM {journal} j WHERE j.type = $2 AND j.id = u.id ORDER BY j.seq DESC LIMIT 1) j
		WHERE j.final IS NOT NULL AND j.outcome = 'dependencies' ORDER BY u.id`), ids, t.Number())
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	all, err := redriveAll(ctx, r.Tx, t, ids, Redrive{parked: true}, &records.Tokens{}, r.Now)
	if err != nil || len(all.done) == 0 {
		return nil, err
	}
	ids = all.done
	for _, id := range ids {
		done = append(done, taskRef{t.Number(), id})
		r.Done = append(r.Done, asyncflow.TaskID{Type: t.Name, Number: id})
	}
	return done, r.reopen(ctx, t, ids)
}

// ReopenSQL opens the edges of tasks on tasks that live again. It adds an interval to a time in a
// query in FROM: Citus refuses that in SET.
const ReopenSQL = `
UPDATE {edges} e SET status = NULL, until = u.until
FROM (SELECT $1::int AS type, i.id, k.n, $3::timestamptz + k.wait_for AS until
  FROM unnest($2::bigint[]) AS i (id), LATERAL (
    SELECT n, wait_for FROM {edges} WHERE type = $1 AND id BETWEEN i.id AND i.id OFFSET 0) k
  OFFSET 0) u
WHERE e.type = ANY (ARRAY[u.type]) AND e.id BETWEEN u.id AND u.id AND e.n = u.n
  AND e.status <> 'succeeded' AND e.on_failure <> 'run'`

// reopen opens the edges of tasks on tasks that live again, and queues looks at the dependents.
// These looks close the edges on ended tasks again. Each edge waits as long as it would have at
// first.
func (r *Redriving) reopen(ctx context.Context, t *config.Type, ids []int64) error {
	_, err := r.Tx.Exec(ctx, t.SQL(0, ReopenSQL), t.Number(), ids, r.Now)
	if err != nil {
		return err
	}
	all := records.Inserts{Tables: t.Set().Tables}
	for _, id := range ids {
		all.Outbox = append(all.Outbox,
			records.OutboxRow{Kind: records.OutboxLook, Number: t.Number(), ID: id})
	}
	b := &pgx.Batch{}
	all.Queue(b, r.Now)
	return r.Tx.SendBatch(ctx, b).Close()
}

// Tell notifies the followers of the redriven tasks.
func (r *Redriving) Tell() {
	for _, id := range r.Done {
		r.Trees.core.Watchers.Tell(config.TypeKey{Tenant: r.Type.Tenant, Type: id.Type}, id.Number)
	}
	if len(r.Done) > 0 {
		r.Trees.core.TellFollowUp(r.Type.Tenant)
	}
}
