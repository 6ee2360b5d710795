package trees

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// awaitedAnew is how long nodes may not know that a type is awaited.
const awaitedAnew = 15 * time.Second

// edgeFollowUp is what a FollowUp does about dependencies.
type edgeFollowUp struct{ *followUp }

// followEnded closes the open edges on ended tasks. It leaves what exceeds a chunk to a later
// transaction.
func (f edgeFollowUp) followEnded(t *config.Type, ids []int64) error {
	ends, err := f.endsOf(t, ids)
	if err != nil {
		return err
	}
	n, err := f.closeBy(t, CloseByIDSQL, ends)
	if err != nil {
		return err
	}
	keyed := slices.DeleteFunc(slices.Clone(ends), func(e taskEnd) bool { return e.key == "" })
	more, err := f.closeBy(t, CloseByKeySQL, keyed)
	if err != nil {
		return err
	}
	if n == f.s.chunks.edges || more == f.s.chunks.edges {
		for _, e := range ends {
			f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxEnded,
				Number: t.Number(),
				ID:     e.id})
		}
	}
	return nil
}

// taskEnd says how a task ended.
type taskEnd struct {
	id     int64
	status edgeStatus // edgeOpen: it is live
	key    string     // its idempotency key
}

// endsOf returns the ends of tasks of a type; live tasks have none. A task that isn't there is
// gone.
func (f edgeFollowUp) endsOf(t *config.Type, ids []int64) (ends []taskEnd, err error) {
	for position, ids := range config.ByPosition(ids) {
		if !t.Has(position) { // dropped
			continue
		}
		rows, err := f.tx.Query(f.ctx, t.SQL(position, `
			SELECT u.id, CASE WHEN t.id IS NULL THEN 'gone' ELSE j.final END,
			  coalesce(CASE WHEN NOT `+records.IsChildSQL+` THEN ({options})->>'key' END, '')
			FROM unnest($1::bigint[]) AS u (id) LEFT JOIN LATERAL (
			  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t ON true
			LEFT JOIN LATERAL (
			  SELECT j.final FROM {journal} j WHERE j.type = $2 AND j.id = u.id
			  ORDER BY j.seq DESC LIMIT 1) j ON true
			WHERE t.id IS NULL OR j.final IS NOT NULL`), ids, t.Number())
		if err != nil {
			return nil, err
		}
		more, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e taskEnd, err error) {
			return e, row.Scan(&e.id, &e.status, &e.key)
		})
		if err != nil {
			return nil, err
		}
		ends = append(ends, more...)
	}
	return ends, nil
}

// CloseByIDSQL and CloseByKeySQL close open edges on tasks, by their ids or their keys. FOR UPDATE
// waits for a concurrent transaction that closes the same edges. Once the window of a key is over,
// a later task may have the key: then the edge waits for that task. The ORDER BY and the LIMIT
// within leave the planner one plan: a walk down the index for each id or key.
const (
	CloseByIDSQL = `
UPDATE {edges} e SET status = o.status FROM (
  SELECT o.type, o.id, o.n, u.status
  FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u (id, key, status), LATERAL (
    SELECT type, id, n FROM {edges}
    WHERE on_type = $1 AND on_id BETWEEN u.id AND u.id AND status IS NULL
    ORDER BY on_id LIMIT $5 FOR UPDATE) o
  LIMIT $5) o
WHERE e.type = ANY (ARRAY[o.type]) AND e.id BETWEEN o.id AND o.id AND e.n BETWEEN o.n AND o.n
RETURNING e.type, e.id`
	CloseByKeySQL = `
UPDATE {edges} e SET status = o.status, on_id = o.on_id FROM (
  SELECT o.type, o.id, o.n, u.status, u.id AS on_id
  FROM (SELECT * FROM unnest($2::bigint[], $3::text[], $4::text[]) AS u (id, key, status)
    WHERE (SELECT true FROM {keys} k WHERE k.type = (SELECT name FROM {types} WHERE number = $1)
        AND k.key = u.key AND k.id <> u.id) IS NULL
      AND (SELECT p.id > u.id FROM (SELECT id FROM {past_keys}
        WHERE type = $1 AND key BETWEEN u.key AND u.key ORDER BY key LIMIT 1) p) IS NOT TRUE
    OFFSET 0) u, LATERAL (
    SELECT type, id, n FROM {edges}
    WHERE on_type = $1 AND on_key BETWEEN u.key AND u.key AND status IS NULL AND on_id IS NULL
    ORDER BY on_key LIMIT $5 FOR UPDATE) o
  LIMIT $5) o
WHERE e.type = ANY (ARRAY[o.type]) AND e.id BETWEEN o.id AND o.id AND e.n BETWEEN o.n AND o.n
RETURNING e.type, e.id`
	// CloseEdgesSQL closes edges of tasks that were found to be over.
	CloseEdgesSQL = `
UPDATE {edges} e SET status = u.status, on_id = coalesce(e.on_id, u.on_id)
FROM (SELECT $1::int AS type, u.*
  FROM unnest($2::bigint[], $3::smallint[], $4::text[], $5::bigint[])
    AS u (id, n, status, on_id) OFFSET 0) u
WHERE e.type = ANY (ARRAY[u.type]) AND e.id BETWEEN u.id AND u.id AND e.n BETWEEN u.n AND u.n
  AND e.status IS NULL`
)

// closeBy closes the open edges on tasks of a type, queues looks at their dependents, and returns
// the number of edges.
func (f edgeFollowUp) closeBy(t *config.Type, sql string, ends []taskEnd) (n int, err error) {
	if len(ends) == 0 {
		return 0, nil
	}
	rows, err := f.tx.Query(f.ctx, t.SQL(0, sql), t.Number(),
		records.Column(ends, func(e *taskEnd) int64 { return e.id }),
		records.Column(ends, func(e *taskEnd) string { return e.key }),
		records.Column(ends, func(e *taskEnd) string { return string(e.status) }), f.s.chunks.edges)
	if err != nil {
		return 0, err
	}
	dependents := map[taskRef]bool{}
	var k taskRef
	_, err = pgx.ForEachRow(rows, []any{&k.number, &k.id}, func() error {
		n++
		if !dependents[k] {
			dependents[k] = true
			f.look(k.number, k.id)
		}
		return nil
	})
	return n, err
}

// followLook closes the edges of tasks if the other task ended before, or too late. A task without
// open edges moves on.
func (f edgeFollowUp) followLook(t *config.Type, ids []int64) error {
	live, err := f.waitingIDs(t, ids)
	if err != nil || len(live) == 0 {
		return err
	}
	edges, err := f.edgesOf(t, live)
	if err != nil {
		return err
	}
	if err := f.closeEnded(t, edges); err != nil {
		return err
	}
	decided := map[int64]decision{}
	for len(edges) > 0 {
		n := 1
		for n < len(edges) && edges[n].id == edges[0].id {
			n++
		}
		if d := decide(edges[:n]); d.verdict != "" {
			decided[edges[0].id] = d
		} else {
			f.lookAgain(edges[:n])
		}
		edges = edges[n:]
	}
	return f.moveOn(t, decided)
}

// WaitingSQL returns which tasks wait for their dependencies, in the order of the given ids. For
// its form see records.TakeAnyWaitSQL.
const WaitingSQL = `
SELECT w.id FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT id FROM {wait} WHERE type = $1 AND id BETWEEN u.id AND u.id AND reason = 'dependencies'
  ORDER BY id LIMIT 1) w`

// waitingIDs returns which tasks wait for their dependencies.
func (f edgeFollowUp) waitingIDs(t *config.Type, ids []int64) (live []int64, err error) {
	rows, err := f.tx.Query(f.ctx, t.SQL(0, WaitingSQL), t.Number(),
		slices.Compact(slices.Sorted(slices.Values(ids))))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// edgesOf returns the edges of tasks, in order.
func (f edgeFollowUp) edgesOf(t *config.Type, ids []int64) ([]edge, error) {
	rows, err := f.tx.Query(f.ctx, t.SQL(0, ReadEdgesSQL), t.Number(), ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEdge)
}

// closeEnded closes edges on tasks of one type if the other task is over, is gone, or is late.
func (f edgeFollowUp) closeEnded(t *config.Type, edges []edge) error {
	open := map[int32][]int64{}
	for _, e := range edges {
		if e.status == edgeOpen && e.on.id != 0 {
			open[e.on.number] = append(open[e.on.number], e.on.id)
		}
	}
	ended := map[taskRef]edgeStatus{}
	for number, ids := range open {
		if err := f.findEnded(number, ids, ended); err != nil {
			return err
		}
	}
	var closed []edge
	for i := range edges {
		e := &edges[i]
		if e.status != edgeOpen {
			continue
		}
		if e.status = ended[e.on]; e.gone {
			e.status = edgeGone
		}
		if e.status == edgeOpen && !e.until.IsZero() && !e.until.After(f.now) {
			e.status = edgeLate
		}
		if e.status != edgeOpen {
			closed = append(closed, *e)
		}
	}
	if len(closed) == 0 {
		return nil
	}
	_, err := f.tx.Exec(f.ctx, t.SQL(0, CloseEdgesSQL), t.Number(),
		records.Column(closed, func(e *edge) int64 { return e.id }),
		records.Column(closed, func(e *edge) int16 { return e.n }),
		records.Column(closed, func(e *edge) string { return string(e.status) }),
		records.Column(closed, func(e *edge) *int64 { return postgres.OrNull(e.on.id) }))
	return err
}

// findEnded finds which tasks of a type are over or gone.
func (f edgeFollowUp) findEnded(number int32, ids []int64, ended map[taskRef]edgeStatus) error {
	t, err := f.typeNow(f.types[number], number)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if position := (asyncflow.TaskID{Number: id}).Position(); t == nil || !t.Has(position) {
			ended[taskRef{number, id}] = edgeGone
		}
	}
	if t == nil {
		return nil
	}
	ends, err := f.endsOf(t, ids)
	for _, e := range ends {
		ended[taskRef{number, e.id}] = e.status
	}
	return err
}

// lookAgain makes FollowUp look at the edges of a task once more if a type became a dependency only
// lately: other nodes may not know it yet, and wouldn't report the ends of its tasks.
func (f edgeFollowUp) lookAgain(edges []edge) {
	again := false
	for _, e := range edges {
		on := f.types[e.on.number]
		if e.status != edgeOpen || on == nil {
			continue
		}
		if !on.Awaited() {
			f.await[on.Number()] = true
		}
		again = again || !on.Awaited() || f.now.Sub(on.AwaitedSince) < awaitedAnew
	}
	if again {
		f.lookAt(edges[0].number, edges[0].id, f.now.Add(awaitedAnew))
	}
}
