package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// counted is a task type whose dead rows are divided by its tasks.
type counted struct {
	scenario string
	rig      *rig.Rig
	taskType *rig.TaskType
}

// countDead asks for the dead rows of a type's tables at the end.
func (r *rounds) countDead(of *rig.Rig, t *rig.TaskType) {
	r.counted = append(r.counted, counted{r.scenario.name, of, t})
}

// deadRows returns the number of row versions that died for each task: rows that were deleted or
// updated. Connections report them when they end, or some seconds later: all nodes are stopped
// first.
func (r *rounds) deadRows(ctx context.Context) (all report.Figures, err error) {
	for _, c := range r.counted {
		c.rig.StopNodes()
	}
	for _, c := range r.counted {
		var rows float64
		err := c.rig.DB.Conn.QueryRow(ctx, `
			SELECT coalesce(sum(pg_stat_get_tuples_updated(c.oid)
			                    + pg_stat_get_tuples_deleted(c.oid)), 0)::float8
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relkind = 'r'
			  AND c.relname ~ ('^(ready|lease|wait|task|journal)_' || $2 || '(_[0-9]+)?$')`,
			rig.Schema, c.taskType.Name).Scan(&rows)
		if err != nil {
			return nil, fmt.Errorf("dead rows of %s: %w", c.scenario, err)
		}
		rows /= float64(c.taskType.Submitted)
		all.Add(c.scenario+".dead", "Dead rows", "rows/task", rows)
	}
	return all, nil
}
