package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// takeCandidates takes token rows: the blocked rows of each stage that has capacity, and the due
// rows in ready until an order_time. looked is the number of due rows, and last their greatest
// order_time.
func takeCandidates(ctx context.Context, conn *tenantConn, t *Type, from int, now, until time.Time,
	n int, scan *lowwater.Scan, stages []string, admission Admission) (
	found []candidate, looked int, last time.Time, err error) {
	b := &pgx.Batch{}
	lines := map[string]place{} // by stage with more blocked tasks: the place of the last one taken
	collect := func(rows pgx.Rows) error {
		c := candidate{}
		c.ID.Type = t.Name
		_, err := pgx.ForEachRow(rows,
			[]any{&c.ID.Number, &c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.lineKey, &c.placed},
			func() error {
				one := c
				one.Stage, one.Attempt = t.Place(c.Stage, c.Attempt)
				if t.Flow != nil {
					one.key = one.lineKey
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
		case most > 0 && t.probes(name, now):
			if t.ordered() {
				lines[name] = place{id: 1} // before all: what is new waits its turn
			}
			b.Queue(t.at(0, takeProbesSQL), stage, most, t.number, t.StageIndex(name)+1, t.ordered()).
				Query(collect)
		case most > 0:
			b.Queue(t.at(0, takeBlockedSQL), stage, most, t.number).Query(func(rows pgx.Rows) error {
				before := len(found)
				err := collect(rows)
				if t.ordered() && len(found)-before == most {
					last := furthest(found[before:])
					if line, more := lines[name]; !more || last.compare(line) < 0 {
						lines[name] = last
					}
				}
				return err
			})
		}
	}
	b.Queue(t.at(from, takeFullReadySQL), until, n,
		lowwater.Bound(scan.From()), t.number).Query(func(rows pgx.Rows) error {
		before := len(found)
		err := collect(rows)
		looked = len(found) - before
		for i := range found[before:] {
			c := &found[before+i]
			if c.OrderTime.After(last) {
				last = c.OrderTime
			}
			if line, more := lines[c.Stage]; more && line.before(c.Lease) {
				c.blocked = asyncflow.WaitLimit // others of its flow key may be before it
			}
		}
		return err
	})
	err = conn.Send(ctx, b)
	scan.Taken()
	for i := range found { // a stage may have two lines: before it was renamed, and since
		c := &found[i]
		if line, more := lines[c.Stage]; more && line.before(c.Lease) && !t.probes(c.Stage, now) {
			c.blocked = asyncflow.WaitLimit
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return leasesInOrder(a.Lease, b.Lease) })
	if !t.ordered() {
		found = probesFirst(t, found, now)
	}
	return found, looked, last, err
}

// furthest returns the place of the last task in the order.
func furthest(all []candidate) (last place) {
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

// takeProbesSQL takes blocked tasks of a stage to try whether its endpoint has recovered: any of
// those that haven't failed before, else any. A hundred of the first and of the last in order are
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

// probesFirst puts tasks that would try an endpoint and have failed before behind the others, which
// say more about the endpoint.
func probesFirst(t *Type, found []candidate, now time.Time) []candidate {
	stages := map[string]bool{}
	for _, c := range found {
		if _, known := stages[c.Stage]; !known {
			stages[c.Stage] = t.probes(c.Stage, now)
		}
	}
	late := func(c candidate) bool {
		return stages[c.Stage] && (c.Attempt > 1 || c.Seq > t.StageIndex(c.Stage)+1)
	}
	first := make([]candidate, 0, len(found))
	for _, c := range found {
		if !late(c) {
			first = append(first, c)
		}
	}
	return append(first, slices.DeleteFunc(found, func(c candidate) bool { return !late(c) })...)
}

// takeFullReadySQL is takeReadySQL with the flow keys, and when tasks got to their places.
const takeFullReadySQL = takeReadySQL + `, coalesce(r.key, ''), coalesce(r.since, r.order_time)`

// queueJudged writes the leases of the candidates that nothing blocks, and files the others under
// what blocks them. back is the least order_time of those that go back into ready.
func (s *hotPath) queueJudged(b *pgx.Batch, t *Type, found []candidate, now time.Time) (
	leases []asyncflow.Lease, back time.Time) {
	var keys texts
	others := &tokens{}
	for _, c := range found {
		if c.blocked == "" && !c.back {
			leases, keys = append(leases, c.Lease), append(keys, orNull(c.key))
			continue
		}
		v := asyncflow.ParkFor(c.Lease, c.blocked)
		if c.back {
			v.Kind = asyncflow.Return
		}
		others.add(c.ID.Number, c.Seq, c.lineKey, v, c.placed, now)
	}
	others.queue(b, t)
	if len(leases) == 0 {
		return nil, others.earliest
	}
	s.queueTaken(b, t, leases, keys, now)
	return leases, others.earliest
}
