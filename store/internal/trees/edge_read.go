package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// DependsOn reports whether a task depends on another one, or did.
func (s *Trees) DependsOn(
	ctx context.Context, tenant string, id, on asyncflow.TaskID,
) (depends bool, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return false, err
	}
	other, err := s.core.TypeOf(ctx, tenant, on)
	if err != nil {
		return false, err
	}
	err = s.core.DB(tenant).QueryRow(ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {edges}
		WHERE type = $1 AND id = $2 AND on_type = $3 AND on_id = $4)`), t.Number(), id.Number,
		other.Number(), on.Number).Scan(&depends)
	return depends, postgres.Wrap(err, "DependsOn(%q, %s, %s)", tenant, id, on)
}

// DependenciesOf returns the dependencies of a task as they stand.
func DependenciesOf(
	ctx context.Context, s *Trees, t *config.Type, id asyncflow.TaskID,
) ([]DependencyState, error) {
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, readEdgesSQL), t.Number(),
		[]int64{id.Number})
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DependencyState, err error) {
		e, err := scanEdge(row)
		d.Task = e.task()
		d.OnFailure = e.onFailure
		d.Until = e.until
		d.Status = e.shown()
		if d.Key = e.key; d.Key != "" {
			d.Type = e.name
		}
		return d, err
	})
}

// DependencyState is a dependency as it stands.
type DependencyState struct {
	asyncflow.Dependency
	// Status is how the other task ended, or asyncflow.DependencyRunning and the like.
	Status string
	Until  time.Time // when the wait for it ends; zero: never
}
