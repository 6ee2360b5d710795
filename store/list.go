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
	Stage  string           // in which it stands, or ended; "": any
	Error  string           // a part of its last error, whatever its capitals; "": any
	Since  time.Time        // submitted at or after; zero: any time
	Until  time.Time        // submitted before; zero: any time
	Before int64            // only tasks of lesser numbers: the page after; 0: the first page
	Limit  int
}

// Tasks lists tasks of a type, newest first, without their contexts and results.
func (s *Store) Tasks(ctx context.Context, tenant string, f Filter) ([]Task, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, f.Type)
	if err != nil {
		return nil, err
	}
	var all []Task
	err = s.following(ctx, t, func(t *Type) error {
		all = nil
		for p := t.End; p >= t.First && len(all) < f.Limit; p-- {
			more, err := s.tasksOf(ctx, t, p, f, f.Limit-len(all))
			if err != nil {
				return err
			}
			all = append(all, more...)
		}
		return nil
	})
	return all, wrap(err, "Tasks(%q, %q)", tenant, f.Type)
}

// tasksOf lists tasks of one roll.
func (s *Store) tasksOf(ctx context.Context, t *Type, position int, f Filter, limit int) ([]Task, error) {
	c := criteriaOf(f)
	least := asyncflow.NewTaskID(t.Name, position, 0).Number
	before := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	if f.Before > 0 {
		before = min(before, f.Before)
	}
	sql := stateColumns + `
FROM (SELECT DISTINCT c.id FROM ` + c.candidates() + ` AND c.id >= $1 AND c.id < $2 ORDER BY c.id DESC) c
JOIN {task} t ON t.id = c.id` + stateJoins + `
WHERE ` + criteriaSQL + `
ORDER BY t.id DESC LIMIT $9`
	rows, err := s.pool.Query(ctx, t.tables.at(position, sql), append(append([]any{least, before}, c.args(t)...), limit)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Task, error) {
		task, err := scanTask(row, t, s.Clock.Now())
		task.Context, task.Result = nil, nil
		return task, err
	})
}
