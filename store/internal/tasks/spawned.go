package tasks

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// SpawnedCount is how many tasks of a type a task has started.
type SpawnedCount struct {
	Type  string
	Count int
}

// tellSpawned counts the tasks that a task started, if its type may start any, whether it waits for
// them or not.
func (s *Tasks) tellSpawned(ctx context.Context, t *config.Type, task *Task) error {
	if !t.Spawns() {
		return nil
	}
	counts, err := trees.JoinedBy(ctx, s.trees, t, task.ID.Number)
	if err != nil {
		return err
	}
	var numbers, n []int32
	for number, count := range counts {
		numbers = append(numbers, number)
		n = append(n, int32(count))
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `
		SELECT y.name, sum(c.n)::bigint FROM (
		  SELECT u.number, count(*) AS n FROM {spawns} s, unnest(s.types) AS u (number)
		  WHERE s.type = $1 AND s.id = $2 GROUP BY u.number
		  UNION ALL SELECT number, n FROM unnest($3::int[], $4::int[]) AS u (number, n)) c
		JOIN {types} y ON y.number = c.number GROUP BY y.name`),
		t.Number(), task.ID.Number, numbers, n)
	task.Spawned, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SpawnedCount])
	slices.SortFunc(task.Spawned, func(a, b SpawnedCount) int {
		return cmp.Compare(a.Type, b.Type)
	})
	return err
}
