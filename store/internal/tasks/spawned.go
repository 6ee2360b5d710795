package tasks

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// SpawnedCount is how many tasks of a type a task has started.
type SpawnedCount struct {
	Type  string
	Count int
}

// tellSpawned counts the tasks that a task started, if its type may start any.
func (s *Tasks) tellSpawned(ctx context.Context, t *config.Type, task *Task) (err error) {
	if !t.Spawns() {
		return nil
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `
		SELECT y.name, count(*) FROM {spawns} s, unnest(s.types) AS u (number)
		JOIN {types} y ON y.number = u.number
		WHERE s.type = $1 AND s.id = $2 GROUP BY y.name ORDER BY y.name`),
		t.Number(), task.ID.Number)
	task.Spawned, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SpawnedCount])
	return err
}
