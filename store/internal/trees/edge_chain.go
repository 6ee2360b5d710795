package trees

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// maxChainEdges bounds the open edges that are read to check new tasks.
const maxChainEdges = 100_000

// StillWaits is whether the task of the edge e waits: a task may fail while some of its edges are
// open.
const StillWaits = `(SELECT w.reason = 'dependencies' FROM {wait} w
	WHERE w.type = e.type AND w.id BETWEEN e.id AND e.id ORDER BY w.id LIMIT 1)`

const cycle = "makes a cycle: that task waits for this one"

// chains are the open edges that lead on from some tasks.
type chains struct {
	tx    pgx.Tx
	t     *config.TableNames
	on    map[taskRef][]taskRef // the tasks that a task waits for
	depth map[taskRef]int       // how many edges lead on from it, one after the other
}

func newChains(tx pgx.Tx, t *config.TableNames) *chains {
	return &chains{tx, t, map[taskRef][]taskRef{}, map[taskRef]int{}}
}

// checkChains refuses tasks that would wait for themselves, or make a chain too long.
func (d *dependents) checkChains(ctx context.Context, items []*hot.Insertion, edges []edge) error {
	c := newChains(d.tx, d.t.Set().Tables)
	complete, err := c.read(ctx, edges)
	if err != nil {
		return err
	}
	above, err := d.chainsAbove(ctx, items)
	if err != nil {
		return err
	}
	ring := ringsOf(c.on)
	byTask := map[taskRef]*hot.Insertion{}
	for _, item := range items {
		byTask[taskRef{d.t.Number(), item.ID.Number}] = item
	}
	for _, e := range edges {
		item := byTask[e.taskRef]
		switch {
		case ring[e.on] == ring[e.taskRef]:
			item.Refuse(int(e.n), cycle)
		case !complete:
			item.Refuse(int(e.n), "leads to too many tasks that wait; the limit is %d",
				maxChainEdges)
		case above.longest(e.taskRef)+1+c.longest(e.on) > asyncflow.MaxDependencyDepth:
			item.Refuse(int(e.n), "makes a chain of more than %d dependencies",
				asyncflow.MaxDependencyDepth)
		}
	}
	return nil
}

// read reads the edges that lead on from some edges. It reports whether it has read all that
// matter.
func (c *chains) read(ctx context.Context, edges []edge) (complete bool, err error) {
	next := map[taskRef]bool{}
	for _, e := range edges {
		c.on[e.taskRef] = append(c.on[e.taskRef], e.on)
	}
	for _, e := range edges {
		if _, known := c.on[e.on]; !known && e.on.id != 0 {
			next[e.on] = true
		}
	}
	n := 0
	for range asyncflow.MaxDependencyDepth {
		if len(next) == 0 || n > maxChainEdges {
			break
		}
		found, err := c.follow(ctx, next, maxChainEdges-n+1)
		if err != nil {
			return false, err
		}
		n += len(found)
		next = map[taskRef]bool{}
		for _, e := range found {
			c.on[e.taskRef] = append(c.on[e.taskRef], e.on)
			next[e.on] = true
		}
		for k := range next {
			if _, known := c.on[k]; known {
				delete(next, k)
			}
		}
	}
	return n <= maxChainEdges, nil
}

// FollowEdgesSQL reads at most $3 open edges of tasks.
const FollowEdgesSQL = `
SELECT e.type, e.id, e.on_type, coalesce(e.on_id, k.id)
FROM unnest($1::int[], $2::bigint[]) AS u (type, id)
CROSS JOIN LATERAL (SELECT * FROM {edges}
  WHERE type = u.type AND id BETWEEN u.id AND u.id AND status IS NULL
  ORDER BY id, n LIMIT $3) e
LEFT JOIN {types} y ON y.number = e.on_type AND e.on_id IS NULL
LEFT JOIN LATERAL (SELECT id FROM {keys}
  WHERE e.on_id IS NULL AND type = y.name AND key BETWEEN e.on_key AND e.on_key
  ORDER BY key LIMIT 1) k ON true
WHERE coalesce(e.on_id, k.id) IS NOT NULL AND ` + StillWaits + ` LIMIT $3`

// follow reads the open edges of tasks, at most some.
func (c *chains) follow(ctx context.Context, of map[taskRef]bool, most int) ([]edge, error) {
	numbers := make([]int32, 0, len(of))
	ids := make([]int64, 0, len(of))
	for k := range of {
		numbers = append(numbers, k.number)
		ids = append(ids, k.id)
	}
	rows, _ := c.tx.Query(ctx, c.t.SQL(0, FollowEdgesSQL), numbers, ids, most)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e edge, err error) {
		return e, row.Scan(&e.number, &e.id, &e.on.number, &e.on.id)
	})
}

// longest returns how many edges lead on from a task, one after the other. The edges of a cycle
// count once.
func (c *chains) longest(from taskRef) int {
	if from.id == 0 {
		return 0
	}
	if n, known := c.depth[from]; known {
		return n
	}
	c.depth[from] = 0
	n := 0
	for _, on := range c.on[from] {
		n = max(n, 1+c.longest(on))
	}
	c.depth[from] = n
	return n
}

// rings finds the tasks that wait for themselves, in one depth-first walk over the edges (Tarjan's
// algorithm): with a walk for each edge, a large request would hold up every other request.
type rings struct {
	on     map[taskRef][]taskRef
	order  map[taskRef]int // of the tasks that the walk came to, from 1
	ringOf map[taskRef]int // by task that is done with; tasks of one ring wait for each other
	path   []taskRef       // that are not done with
}

// ringsOf returns a number for each task that edges lead from or to. Two tasks have the same one if
// edges lead from each to the other.
func ringsOf(on map[taskRef][]taskRef) map[taskRef]int {
	r := &rings{on: on, order: map[taskRef]int{}, ringOf: map[taskRef]int{}}
	for k := range on {
		if r.order[k] == 0 {
			r.walk(k)
		}
	}
	return r.ringOf
}

// walk walks on from a task, and returns the first task on the path to which edges lead from it.
func (r *rings) walk(k taskRef) (first int) {
	n := len(r.order) + 1
	first = n
	r.order[k] = n
	r.path = append(r.path, k)
	for _, on := range r.on[k] {
		switch {
		case on.id == 0 || r.ringOf[on] != 0:
		case r.order[on] != 0:
			first = min(first, r.order[on])
		default:
			first = min(first, r.walk(on))
		}
	}
	for last := (taskRef{}); first == n && last != k; {
		last = r.path[len(r.path)-1]
		r.path = r.path[:len(r.path)-1]
		r.ringOf[last] = n
	}
	return first
}

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

// WaitersSQL reads at most $4 open edges on tasks, by their ids or their keys.
const WaitersSQL = `
SELECT e.type, e.id, coalesce(e.key, ''), u.type, u.id
FROM unnest($1::int[], $2::bigint[]) AS u (type, id), LATERAL (SELECT * FROM {edges}
  WHERE on_type = u.type AND on_id BETWEEN u.id AND u.id AND status IS NULL
  ORDER BY on_id LIMIT $4) e
WHERE ` + StillWaits + `
UNION ALL
SELECT e.type, e.id, coalesce(e.key, ''), u.type, u.id
FROM unnest($1::int[], $2::bigint[], $3::text[]) AS u (type, id, key), LATERAL (
  SELECT * FROM {edges} WHERE on_type = u.type AND on_key BETWEEN u.key AND u.key
    AND on_id IS NULL AND status IS NULL ORDER BY on_key LIMIT $4) e
WHERE ` + StillWaits + ` LIMIT $4`

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
	rows, _ := c.tx.Query(ctx, c.t.SQL(0, WaitersSQL), numbers, ids, keys, most)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e edge, err error) {
		return e, row.Scan(&e.number, &e.id, &e.ownKey, &e.on.number, &e.on.id)
	})
}
