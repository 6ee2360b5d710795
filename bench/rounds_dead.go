package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// counted is a task type with its dead rows, divided by its tasks.
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
// first. Of types that share tables it can't be told of which type the rows were, unless all tasks
// were of one type.
func (r *rounds) deadRows(ctx context.Context) (all report.Figures, err error) {
	types := map[*rig.Rig]int{}
	for _, c := range r.counted {
		c.rig.StopNodes()
		types[c.rig]++
	}
	for _, c := range r.counted {
		dead, shared, err := deadRowsOf(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("dead rows of %s: %w", c.scenario, err)
		}
		if !shared || types[c.rig] == 1 {
			dead /= float64(c.taskType.Submitted)
			all.Add(c.scenario+".dead", "Dead rows", "rows/task", dead)
		}
	}
	return all, nil
}

// deadRowsOf counts the dead rows of all tables with tasks of a type, and reports whether other
// types share some of them.
func deadRowsOf(ctx context.Context, c counted) (dead float64, shared bool, err error) {
	for _, kind := range []string{"task", "journal", "ready", "lease", "wait"} {
		tables, err := c.rig.DB.Tables(ctx, kind, c.taskType.Name)
		if err != nil {
			return 0, false, err
		}
		for _, t := range tables {
			var rows float64
			err := c.rig.DB.Conn.QueryRow(ctx, `
				SELECT (pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid))::float8
				FROM (SELECT $1::regclass::oid) t (oid)`, t.Name).Scan(&rows)
			if err != nil {
				return 0, false, err
			}
			dead, shared = dead+rows, shared || t.Number != 0
		}
	}
	return dead, shared, nil
}
