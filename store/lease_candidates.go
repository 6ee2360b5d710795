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
// rows in ready. looked is the number of the latter, and last their greatest order_time.
func takeCandidates(ctx context.Context, conn *tenantConn, t *Type, from int, now time.Time, n int,
	scan *lowwater.Scan, stages []string, admission Admission) (
	found []candidate, looked int, last time.Time, err error) {
	b := &pgx.Batch{}
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
		place, _ := t.Place(stage, 1)
		if most := min(n, admission.Capacity(place)); most > 0 {
			b.Queue(t.at(0, takeBlockedSQL), stage, most, t.number).Query(collect)
		}
	}
	b.Queue(t.at(from, takeFullReadySQL), now, n,
		lowwater.Bound(scan.From()), t.number).Query(func(rows pgx.Rows) error {
		before := len(found)
		err := collect(rows)
		looked = len(found) - before
		for _, c := range found[before:] {
			if c.OrderTime.After(last) {
				last = c.OrderTime
			}
		}
		return err
	})
	err = conn.Send(ctx, b)
	scan.Taken()
	slices.SortStableFunc(found, func(a, b candidate) int { return leasesInOrder(a.Lease, b.Lease) })
	return found, looked, last, err
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

// takeFullReadySQL is takeReadySQL with the flow keys, and when tasks got to their places.
const takeFullReadySQL = takeReadySQL + `, coalesce(r.key, ''), coalesce(r.since, r.order_time)`

// queueJudged writes the leases of the candidates that nothing blocks, and files the others under
// what blocks them. back is the least order_time of those that go back into ready.
func (s *Store) queueJudged(b *pgx.Batch, t *Type, found []candidate, now time.Time) (
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
