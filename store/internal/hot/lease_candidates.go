package hot

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// takeCandidates takes token rows: the blocked rows of each stage with capacity, and the due rows
// in ready until an order_time. looked is the number of due rows, and last their greatest
// order_time.
func takeCandidates(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, from int,
	now, until time.Time, n int, scan *lowwater.Scan, stages []string, admission Admission,
) (found []Candidate, looked int, last time.Time, err error) {
	b := &pgx.Batch{}
	c := &candidates{t: t, now: now, lines: map[string]place{}}
	for _, stage := range stages {
		name, _ := t.Mapped(stage, 1)
		c.queueStage(b, stage, name, min(n, admission.Capacity(name)))
	}
	c.queueReady(b, from, until, n, scan)
	err = conn.Send(ctx, b)
	scan.Taken()
	c.blockBehindLines()
	slices.SortStableFunc(c.found,
		func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	if !config.Ordered(t) {
		c.found = freshFirst(t, c.found, now)
	}
	return c.found, c.looked, c.last, err
}

// candidates collects what the statements of one takeCandidates take.
type candidates struct {
	t      *config.Type
	now    time.Time
	lines  map[string]place // by stage with more blocked tasks: the place of the last one taken
	found  []Candidate
	looked int
	last   time.Time
}

// queueStage takes up to most blocked rows of a stage, which is called name by now.
func (c *candidates) queueStage(b *pgx.Batch, stage, name string, most int) {
	switch {
	case most > 0 && config.FreshFirst(c.t, name, c.now):
		if config.Ordered(c.t) {
			c.lines[name] = place{id: 1} // before all: what is new waits its turn
		}
		b.Queue(c.t.SQL(0, takeFreshSQL), stage, most, c.t.Number(), c.t.StageIndex(name)+1,
			config.Ordered(c.t), rand.Int64()).Query(c.collect)
	case most > 0:
		b.Queue(c.t.SQL(0, takeBlockedSQL), stage, most,
			c.t.Number()).Query(func(rows pgx.Rows) error {
			return c.collectBlocked(rows, name, most)
		})
	}
}

// queueReady takes up to n due rows of the ready table of a roll.
func (c *candidates) queueReady(
	b *pgx.Batch, position int, until time.Time, n int, scan *lowwater.Scan,
) {
	b.Queue(c.t.SQL(position, takeFullReadySQL), until, n,
		lowwater.Bound(scan.From()), c.t.Number()).Query(c.collectReady)
}

// collect adds the tasks of rows.
func (c *candidates) collect(rows pgx.Rows) error {
	row := Candidate{}
	row.ID.Type = c.t.Name
	_, err := pgx.ForEachRow(rows,
		[]any{&row.ID.Number, &row.Seq, &row.Stage, &row.Attempt, &row.OrderTime, &row.Placed,
			&row.LineKey},
		func() error {
			one := row
			one.Stage, one.Attempt = c.t.Mapped(row.Stage, row.Attempt)
			one.DueAt = row.Placed
			if c.t.Flow != nil {
				one.key = one.LineKey
			}
			c.found = append(c.found, one)
			return nil
		})
	return err
}

// collectBlocked adds blocked tasks of a stage. If there are most, more may be behind them.
func (c *candidates) collectBlocked(rows pgx.Rows, name string, most int) error {
	before := len(c.found)
	err := c.collect(rows)
	if config.Ordered(c.t) && len(c.found)-before == most {
		last := furthest(c.found[before:])
		if line, more := c.lines[name]; !more || last.compare(line) < 0 {
			c.lines[name] = last
		}
	}
	return err
}

// collectReady adds due tasks. A task behind the line of its stage stays behind it.
func (c *candidates) collectReady(rows pgx.Rows) error {
	before := len(c.found)
	err := c.collect(rows)
	c.looked = len(c.found) - before
	for i := range c.found[before:] {
		one := &c.found[before+i]
		if one.OrderTime.After(c.last) {
			c.last = one.OrderTime
		}
		if line, more := c.lines[one.Stage]; more && line.before(one.Lease) {
			one.Blocked = asyncflow.WaitLimit // other tasks of its flow key may be before it
		}
	}
	return err
}

// blockBehindLines blocks the tasks behind the lines of their stages. There may be two lines of a
// stage: before it was renamed, and since.
func (c *candidates) blockBehindLines() {
	for i := range c.found {
		one := &c.found[i]
		line, more := c.lines[one.Stage]
		if more && line.before(one.Lease) && !config.FreshFirst(c.t, one.Stage, c.now) {
			one.Blocked = asyncflow.WaitLimit
		}
	}
}

// furthest returns the place of the last task in the order.
func furthest(all []Candidate) (last place) {
	for _, c := range all {
		if last.id == 0 || last.before(c.Lease) {
			last = place{c.OrderTime, c.ID.Number}
		}
	}
	return last
}

// takeBlockedSQL takes the first blocked tasks of a stage.
const takeBlockedSQL = `
WITH c AS MATERIALIZED (
  SELECT ctid AS t FROM {wait}
  WHERE type = $3 AND stage = $1 AND until = 'infinity' AND reason <> 'flow_key'
  ORDER BY order_time, id
  LIMIT $2
  FOR UPDATE SKIP LOCKED)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, '')`

// takeFreshSQL takes blocked tasks of a stage, first the tasks that never failed. It looks at the
// first hundred and the last hundred in order. In an ordered flow only the first task of a key may
// go. Each seed, $6, makes another choice among them.
const takeFreshSQL = `
WITH ends AS MATERIALIZED (
  (SELECT ctid AS t, key, order_time, id FROM {wait}
    WHERE type = $3 AND stage = $1 AND until = 'infinity' AND reason <> 'flow_key'
    ORDER BY order_time, id LIMIT 100)
  UNION ALL
  (SELECT ctid AS t, key, order_time, id FROM {wait}
    WHERE type = $3 AND stage = $1 AND until = 'infinity' AND reason <> 'flow_key'
    ORDER BY order_time DESC, id DESC LIMIT 100)),
c AS MATERIALIZED (
  SELECT ctid AS t FROM {wait}
  WHERE ctid = ANY (ARRAY(SELECT s.t FROM ends s
    WHERE NOT $5::bool OR coalesce(s.key, '') = '' OR NOT EXISTS (SELECT FROM {wait} w
      WHERE w.type = $3 AND w.key = s.key AND w.reason <> 'flow_key'
        AND (w.order_time, w.id) < (s.order_time, s.id))))
  ORDER BY attempt > 1 OR seq > $4, hashint8extended(id, $6)
  LIMIT $2
  FOR UPDATE SKIP LOCKED)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, '')`

// freshFirst moves tasks that failed before behind the remaining ones in stages where fresh tasks
// go first: these say more about an endpoint.
func freshFirst(t *config.Type, found []Candidate, now time.Time) []Candidate {
	stages := map[string]bool{}
	for _, c := range found {
		if _, known := stages[c.Stage]; !known {
			stages[c.Stage] = config.FreshFirst(t, c.Stage, now)
		}
	}
	late := func(c Candidate) bool {
		return stages[c.Stage] && (c.Attempt > 1 || c.Seq > t.StageIndex(c.Stage)+1)
	}
	first := make([]Candidate, 0, len(found))
	for _, c := range found {
		if !late(c) {
			first = append(first, c)
		}
	}
	return append(first, slices.DeleteFunc(found, func(c Candidate) bool { return !late(c) })...)
}

// takeFullReadySQL is records.TakeReadySQL with the flow keys.
const takeFullReadySQL = records.TakeReadySQL + `, coalesce(r.key, '')`

// queueJudged writes the leases of the candidates that nothing blocks, and files the remaining ones
// under what blocks them. back is the least order_time of the tasks that go back into `ready`.
func (s *Path) queueJudged(
	b *pgx.Batch, t *config.Type, found []Candidate, now time.Time,
) (leases []asyncflow.Lease, back time.Time) {
	var keys postgres.Texts
	others := &records.Tokens{}
	for _, c := range found {
		if c.Blocked == "" && !c.back {
			leases = append(leases, c.Lease)
			keys = append(keys, postgres.OrNull(c.key))
			continue
		}
		v := asyncflow.ParkFor(c.Lease, c.Blocked)
		if c.back {
			v.Kind = asyncflow.Return
		}
		others.Add(c.ID.Number, c.Seq, c.LineKey, v, c.Placed, now)
	}
	others.Queue(b, t)
	if len(leases) == 0 {
		return nil, others.Earliest
	}
	s.queueTaken(b, t, leases, keys, now)
	return leases, others.Earliest
}
