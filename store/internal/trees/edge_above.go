package trees

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// chainsAbove reads the open edges that lead to new tasks by their keys: a task may wait for a key
// that was free until now, and further tasks for that task. In the result, on has the tasks that
// wait for a task. It reads at most maxChainEdges; what is beyond doesn't count.
func (d *dependents) chainsAbove(ctx context.Context, items []*hot.Insertion) (*chains, error) {
	c := newChains(d.tx, d.t.Set().Tables)
	level := map[taskRef]string{} // the keys of tasks; "": none
	for _, item := range items {
		if item.Key != nil {
			level[taskRef{d.t.Number(), item.ID.Number}] = item.Key.Name
		}
	}
	seen := map[taskRef]bool{}
	for n := 0; len(level) > 0 && n < maxChainEdges && len(seen) < maxChainEdges; {
		for k := range level {
			seen[k] = true
		}
		found, err := c.waiters(ctx, level, maxChainEdges-n)
		if err != nil {
			return nil, err
		}
		n += len(found)
		clear(level)
		for _, e := range found {
			c.on[e.on] = append(c.on[e.on], e.taskRef)
			if !seen[e.taskRef] {
				level[e.taskRef] = e.ownKey
			}
		}
	}
	return c, nil
}

// waiters reads the open edges on tasks with keys, at most some.
func (c *chains) waiters(ctx context.Context, on map[taskRef]string, most int) ([]edge, error) {
	numbers := make([]int32, 0, len(on))
	ids := make([]int64, 0, len(on))
	keys := make([]*string, 0, len(on))
	for k, key := range on {
		numbers = append(numbers, k.number)
		ids = append(ids, k.id)
		keys = append(keys, postgres.OrNull(key))
	}
	rows, _ := c.tx.Query(ctx, c.t.SQL(0, `
		SELECT e.type, e.id, coalesce(e.key, ''), u.type, u.id
		FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
		JOIN {edges} e ON e.on_type = u.type AND e.on_id = ANY (ARRAY[u.id]) AND e.status IS NULL
		WHERE `+StillWaits+`
		UNION ALL
		SELECT e.type, e.id, coalesce(e.key, ''), u.type, u.id
		FROM unnest($1::int[], $2::bigint[], $3::text[]) AS u (type, id, key)
		JOIN {edges} e ON e.on_type = u.type AND e.on_key = ANY (ARRAY[u.key]) AND e.on_id IS NULL
		  AND e.status IS NULL
		WHERE `+StillWaits+` LIMIT $4`), numbers, ids, keys, most)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e edge, err error) {
		return e, row.Scan(&e.number, &e.id, &e.ownKey, &e.on.number, &e.on.id)
	})
}
