package main

import (
	"context"
	"fmt"
)

// counted is what a scenario has done in all, by which its dead rows are divided.
type counted struct {
	scenario string
	bench    *bench
	pipe     *pipe
}

// countDead has the dead rows of a pipe's tables counted in the end.
func (r *rounds) countDead(b *bench, p *pipe) {
	r.counted = append(r.counted, counted{r.scenario.name, b, p})
}

// deadRows returns how many versions of rows died for each task: rows that were deleted
// or updated. Connections tell of them when they end, or some seconds later, so all nodes
// are ended first.
func (r *rounds) deadRows(ctx context.Context) (figures, error) {
	var all figures
	for _, c := range r.counted {
		c.bench.stopNodes()
	}
	for _, c := range r.counted {
		var rows float64
		err := c.bench.db.conn.QueryRow(ctx, `
			SELECT coalesce(sum(pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid)), 0)::float8
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ ('^(ready|lease|wait|task|journal)_' || $2 || '(_[0-9]+)?$')`,
			schema, c.pipe.name).Scan(&rows)
		if err != nil {
			return nil, fmt.Errorf("dead rows of %s: %w", c.scenario, err)
		}
		all = append(all, figure{c.scenario + ".dead", "Dead rows", "rows/task", rows / float64(c.pipe.submitted)})
	}
	return all, nil
}
