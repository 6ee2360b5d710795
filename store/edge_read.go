package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// dependenciesOf returns the dependencies of a task as they stand.
func (s *Store) dependenciesOf(
	ctx context.Context, t *Type, id asyncflow.TaskID,
) ([]DependencyState, error) {
	rows, err := s.of(t.Tenant).Query(ctx, t.at(0, readEdgesSQL), t.number, []int64{id.Number})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DependencyState, err error) {
		e, err := scanEdge(row)
		d.Task, d.OnFailure, d.Until, d.Status = e.task(), e.onFailure, e.until, e.shown()
		if d.Key = e.key; d.Key != "" {
			d.Type = e.name
		}
		return d, err
	})
}
