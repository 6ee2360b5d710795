package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// DependsOn reports whether a task depends on another one, or did.
func (s *Store) DependsOn(
	ctx context.Context, tenant string, id, on asyncflow.TaskID,
) (depends bool, err error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return false, err
	}
	other, err := s.TypeOf(ctx, tenant, on)
	if err != nil {
		return false, err
	}
	err = s.of(tenant).QueryRow(ctx, t.at(0, `SELECT EXISTS (SELECT FROM {edges}
		WHERE type = $1 AND id = $2 AND on_type = $3 AND on_id = $4)`), t.number, id.Number,
		other.number, on.Number).Scan(&depends)
	return depends, wrap(err, "DependsOn(%q, %s, %s)", tenant, id, on)
}

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

// DependencyState is a dependency as it stands.
type DependencyState struct {
	asyncflow.Dependency
	// Status is how the other task has ended, or asyncflow.DependencyRunning and the like.
	Status string
	Until  time.Time // when the wait for it ends; zero: never
}
