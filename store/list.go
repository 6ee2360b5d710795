package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Filter says which tasks of a type to list.
type Filter struct {
	Type   string
	Status asyncflow.Status // "": any
	Since  time.Time        // submitted at or after; zero: any time
	Until  time.Time        // submitted before; zero: any time
	Before int64            // only tasks of lesser numbers: the page after; 0: the first page
	Limit  int
}

// candidates are, for each status, the rows that may belong to tasks of that
// status, newest first. c is the table whose id is followed.
var candidates = map[asyncflow.Status]string{
	"":                        `{task} c WHERE true`,
	asyncflow.StatusPending:   `{task} c WHERE NOT EXISTS (SELECT FROM {journal} f WHERE f.id = c.id AND f.final IS NOT NULL)`,
	asyncflow.StatusRunning:   `{lease} c WHERE true`,
	asyncflow.StatusWaiting:   `{wait} c WHERE true`,
	asyncflow.StatusSucceeded: `{task} c WHERE true`,
	asyncflow.StatusFailed:    `{journal} c WHERE c.final <> 'succeeded'`,
	asyncflow.StatusCancelled: `{journal} c WHERE c.final <> 'succeeded'`,
}

// Tasks lists tasks of a type, newest first, without their contexts and results.
func (s *Store) Tasks(ctx context.Context, tenant string, f Filter) ([]Task, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, f.Type)
	if err != nil {
		return nil, err
	}
	var all []Task
	for p := t.End; p >= t.First && len(all) < f.Limit; p-- {
		more, err := s.tasksOf(ctx, t, p, f, f.Limit-len(all))
		if err != nil {
			return nil, wrap(err, "Tasks(%q, %q)", tenant, f.Type)
		}
		all = append(all, more...)
	}
	return all, nil
}

// tasksOf lists tasks of one roll.
func (s *Store) tasksOf(ctx context.Context, t *Type, position int, f Filter, limit int) ([]Task, error) {
	least := asyncflow.NewTaskID(t.Name, position, 0).Number
	before := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	if f.Before > 0 {
		before = min(before, f.Before)
	}
	sql := stateColumns + `
FROM (SELECT DISTINCT c.id FROM ` + candidates[f.Status] + ` AND c.id >= $1 AND c.id < $2 ORDER BY c.id DESC) c
JOIN {task} t ON t.id = c.id` + stateJoins + `
WHERE ($3::timestamptz IS NULL OR t.created_at >= $3) AND ($4::timestamptz IS NULL OR t.created_at < $4)
  AND ($5 = '' OR $5 = CASE WHEN l.id IS NOT NULL THEN 'running' WHEN w.id IS NOT NULL THEN 'waiting' ELSE coalesce(j.final, 'pending') END)
ORDER BY t.id DESC LIMIT $6`
	rows, err := s.pool.Query(ctx, t.tables.at(position, sql), least, before, orNull(f.Since), orNull(f.Until), string(f.Status), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Task, error) {
		task, err := scanTask(row, t, s.Clock.Now())
		task.Context, task.Result = nil, nil
		return task, err
	})
}
