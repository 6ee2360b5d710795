package hot

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// takeCandidates takes token rows: the blocked rows of each stage that has capacity, and the due
// rows in ready until an order_time. looked is the number of due rows, and last their greatest
// order_time.
func takeCandidates(ctx context.Context, conn *postgres.TenantConn, t *catalog.Type, from int, now,
	until time.Time, n int, scan *lowwater.Scan, stages []string, admission Admission) (
	found []Candidate, looked int, last time.Time, err error) {
	b := &pgx.Batch{}
	lines := map[string]place{} // by stage with more blocked tasks: the place of the last one taken
	collect := func(rows pgx.Rows) error {
		c := Candidate{}
		c.ID.Type = t.Name
		_, err := pgx.ForEachRow(rows,
			[]any{&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.LineKey, &c.Placed},
			func() error {
				one := c
				one.Stage, one.Attempt = t.Place(c.Stage, c.Attempt)
				if t.Flow != nil {
					one.key = one.LineKey
				}
				found = append(found, one)
				return nil
			})
		return err
	}
	for _, stage := range stages {
		name, _ := t.Place(stage, 1)
		most := min(n, admission.Capacity(name))
		switch {
		case most > 0 && t.Probes(name, now):
			if t.Ordered() {
				lines[name] = place{id: 1} // before all: what is new waits its turn
			}
			b.Queue(t.SQL(0, takeProbesSQL), stage, most, t.Number(), t.StageIndex(name)+1, t.Ordered()).
				Query(collect)
		case most > 0:
			b.Queue(t.SQL(0, takeBlockedSQL), stage, most, t.Number()).Query(func(rows pgx.Rows) error {
				before := len(found)
				err := collect(rows)
				if t.Ordered() && len(found)-before == most {
					last := furthest(found[before:])
					if line, more := lines[name]; !more || last.compare(line) < 0 {
						lines[name] = last
					}
				}
				return err
			})
		}
	}
	b.Queue(t.SQL(from, takeFullReadySQL), until, n,
		lowwater.Bound(scan.From()), t.Number()).Query(func(rows pgx.Rows) error {
		before := len(found)
		err := collect(rows)
		looked = len(found) - before
		for i := range found[before:] {
			c := &found[before+i]
			if c.OrderTime.After(last) {
				last = c.OrderTime
			}
			if line, more := lines[c.Stage]; more && line.before(c.Lease) {
				c.Blocked = asyncflow.WaitLimit // other tasks of its flow key may be before it
			}
		}
		return err
	})
	err = conn.Send(ctx, b)
	scan.Taken()
	for i := range found { // a stage may have two lines: before it was renamed, and since
		c := &found[i]
		if line, more := lines[c.Stage]; more && line.before(c.Lease) && !t.Probes(c.Stage, now) {
			c.Blocked = asyncflow.WaitLimit
		}
	}
	slices.SortStableFunc(found, func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	if !t.Ordered() {
		found = probesFirst(t, found, now)
	}
	return found, looked, last, err
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
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, ''),
  coalesce(w.since, w.order_time)`

// takeProbesSQL takes blocked tasks of a stage to try whether its endpoint recovered: tasks that
// never failed if there are any, else any. A hundred of the first and of the last in order are
// looked at. In an ordered flow only the first of a key may go.
const takeProbesSQL = `
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
    WHERE NOT $5::bool OR s.key IS NULL OR NOT EXISTS (SELECT FROM {wait} w
      WHERE w.type = $3 AND w.key = s.key AND w.reason <> 'flow_key'
        AND (w.order_time, w.id) < (s.order_time, s.id))))
  ORDER BY attempt > 1 OR seq > $4, random()
  LIMIT $2
  FOR UPDATE SKIP LOCKED)
DELETE FROM {wait} w USING c WHERE w.ctid = c.t
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, ''),
  coalesce(w.since, w.order_time)`

// probesFirst moves tasks that would try an endpoint, but failed before, behind the remaining ones,
// which say more about the endpoint.
func probesFirst(t *catalog.Type, found []Candidate, now time.Time) []Candidate {
	stages := map[string]bool{}
	for _, c := range found {
		if _, known := stages[c.Stage]; !known {
			stages[c.Stage] = t.Probes(c.Stage, now)
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

// takeFullReadySQL is records.TakeReadySQL with the flow keys, and when tasks got to their places.
const takeFullReadySQL = records.TakeReadySQL +
	`, coalesce(r.key, ''), coalesce(r.since, r.order_time)`

// queueJudged writes the leases of the candidates that nothing blocks, and files the remaining ones
// under what blocks them. back is the least order_time of the tasks that go back into `ready`.
func (s *Path) queueJudged(b *pgx.Batch, t *catalog.Type, found []Candidate, now time.Time) (
	leases []asyncflow.Lease, back time.Time) {
	var keys postgres.Texts
	others := &records.Tokens{}
	for _, c := range found {
		if c.Blocked == "" && !c.back {
			leases, keys = append(leases, c.Lease), append(keys, catalog.OrNull(c.key))
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
