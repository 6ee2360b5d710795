package trees

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// ParkHalted looks at the parents of leased children. If a parent is paused, its child moves to
// `wait`, as if it were not leased. If a parent is over or about to be, its child is cancelled.
// ParkHalted returns the remaining tasks. Without children, it asks nothing.
func (s *Trees) ParkHalted(
	ctx context.Context, t *config.Type, leases []asyncflow.Lease,
) (others []asyncflow.Lease, err error) {
	parents := ParentsOf(t, leases)
	if len(parents) == 0 {
		return leases, nil
	}
	var halted Halts
	b := &pgx.Batch{}
	halted.Queue(b, t, parents, s.core.Clock.Now())
	if err = s.core.HotDB(t.Tenant).Send(ctx, b); err == nil && halted.none() {
		return leases, nil
	}
	others = leases
	if err == nil && len(halted.Stopped) > 0 {
		var ids []int64
		ids, others = halted.split(t, leases)
		err = CancelStopped(ctx, s, t, ids)
	}
	if err == nil && len(halted.Paused) > 0 {
		rest := others
		err = s.inFollow(ctx, t.Tenant, func(tx pgx.Tx) (err error) {
			others, err = s.parkPaused(ctx, tx, t, rest, parents)
			return err
		})
	}
	if err != nil {
		return nil, postgres.Wrap(err, "ParkHalted(%q, %q)", t.Tenant, t.Name)
	}
	if now := s.core.Clock.Now(); t.Limited(now) { // other tasks may use their capacity
		s.core.Wakeups.Announce(t.Key(), now)
	}
	return others, nil
}

// Halts are fan-outs that let no child begin: the paused ones, and the ones that are stopped or
// about to be, as too many children failed or the end_by of their task has come.
type Halts struct{ Paused, Stopped map[records.FanOutKey]bool }

func (h *Halts) none() bool { return len(h.Paused)+len(h.Stopped) == 0 }

// Queue queries which parents have halted fan-outs at a time.
func (h *Halts) Queue(
	b *pgx.Batch, t *config.Type, parents []records.FanOutKey, now time.Time,
) {
	h.Paused = map[records.FanOutKey]bool{}
	h.Stopped = map[records.FanOutKey]bool{}
	args := append(ParentArgs(parents), now)
	b.Queue(t.SQL(0, HaltedSQL), args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o := records.FanOut{}
			paused := false
			err := rows.Scan(&o.Number, &o.ID, &o.Seq, &paused, &o.Stopped, &o.Rule, &o.Count,
				&o.Ended.Failed)
			if err != nil {
				return err
			}
			switch {
			case o.Stopped || o.Failed():
				h.Stopped[o.FanOutKey] = true
			case paused:
				h.Paused[o.FanOutKey] = true
			}
		}
		return rows.Err()
	})
}

// split returns the ids of the children of stopped fan-outs, and the other leases.
func (h *Halts) split(
	t *config.Type, leases []asyncflow.Lease,
) (ids []int64, others []asyncflow.Lease) {
	for i := range leases {
		if AnyOf(t, &leases[i], h.Stopped) {
			ids = append(ids, leases[i].ID.Number)
		} else {
			others = append(others, leases[i])
		}
	}
	return ids, others
}

// CancelStopped cancels children of fan-outs that are stopped or about to be, before FollowUp comes
// to them. The parent isn't redriven until all of its children ended, so that it needs no lock.
func CancelStopped(ctx context.Context, s *Trees, t *config.Type, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	var all []asyncflow.Settlement
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return s.inFollow(ctx, t.Tenant, func(tx pgx.Tx) error {
			all = nil
			t, err := config.RollsNow(ctx, tx, t)
			for rest := ids; err == nil && len(rest) > 0; {
				roll := asyncflow.TaskID{Number: rest[0]}.Position()
				n := 1
				for n < len(rest) && (asyncflow.TaskID{Number: rest[n]}).Position() == roll {
					n++
				}
				var settled []asyncflow.Settlement
				settled, err = CancelAll(ctx, tx, t, rest[:n], childStopped, s.core.Clock.Now())
				all = append(all, settled...)
				rest = rest[n:]
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	s.core.CountSettled(t.Key(), all...)
	hot.AnnounceFreed(ctx, s.hot, t, all)
	for _, settled := range all {
		s.core.Watchers.Tell(t.Key(), settled.Lease.ID.Number)
	}
	s.core.TellFollowUp(t.Tenant)
	return nil
}

// HaltedSQL reads which fan-outs are paused, stopped, or have failed children, and how many
// children failed: FollowUp's count, and the rows in `outbox` that it didn't count yet. So too many
// failures take effect with their commit, as a cancel does. Failures before a redrive don't count,
// and no failure does of a redrive that an older node began. Votes fail by their quorum, which only
// FollowUp knows. The end_by of a parent takes effect without the job expire, too.
const HaltedSQL = `
SELECT o.type, o.id, o.seq, o.paused_at IS NOT NULL, o.over, o.rule, o.count, o.bad
FROM unnest($1::int[], $2::bigint[], $3::smallint[]) AS u (type, id, seq)
CROSS JOIN LATERAL (
  SELECT o.*, o.stopped OR coalesce((SELECT l.start IS NULL AND l.expires_at <= $4
      FROM {lifetimes} l WHERE l.type = o.type AND l.id BETWEEN o.id AND o.id
      ORDER BY l.id LIMIT 1), false) AS over,
    CASE WHEN o.closed OR o.rule->'quorum' IS NOT NULL
      OR o.again IS NOT NULL AND o.to_redrive IS NULL THEN 0
    ELSE o.failed + o.cancelled - CASE WHEN o.again IS NULL THEN 0 ELSE o.to_redrive END
      + (SELECT coalesce(sum(b.failed + b.cancelled), 0)
      FROM {outbox} b WHERE b.kind = 'children' AND b.failed + b.cancelled > 0
        AND b.type = o.type AND b.id = o.id AND b.fan_out = o.seq) END AS bad
  FROM {fan_outs} o WHERE o.type = u.type AND o.id = u.id AND o.seq BETWEEN u.seq AND u.seq
  ORDER BY o.seq LIMIT 1) o
WHERE o.paused_at IS NOT NULL OR o.over OR o.bad > 0`

// LockPausedSQL locks the fan-outs that are paused, in order, and returns them. how is empty, or
// SKIP LOCKED.
func LockPausedSQL(how string) string {
	return `
SELECT o.type, o.id, o.seq
FROM (
  SELECT DISTINCT type, id, seq
  FROM unnest($1::int[], $2::bigint[], $3::smallint[]) AS u (type, id, seq)
  ORDER BY type, id, seq) k, LATERAL (
  SELECT type, id, seq FROM {fan_outs}
  WHERE type = k.type AND id = k.id AND seq BETWEEN k.seq AND k.seq
    AND paused_at IS NOT NULL AND NOT stopped
  ORDER BY seq LIMIT 1 FOR SHARE ` + how + `) o`
}

// ParentsOf returns the fan-outs that wait for leased tasks: the ones of their parents, of the
// parents of these, and so on.
func ParentsOf(t *config.Type, leases []asyncflow.Lease) (all []records.FanOutKey) {
	known := map[records.FanOutKey]bool{}
	for i := range leases {
		for _, a := range leases[i].Options.Awaits(t.Number()) {
			if key := records.FanOutKeyOf(a); !known[key] {
				known[key] = true
				all = append(all, key)
			}
		}
	}
	return all
}

// AnyOf reports whether any of some fan-outs waits for a leased task.
func AnyOf(t *config.Type, l *asyncflow.Lease, some map[records.FanOutKey]bool) bool {
	if len(some) == 0 {
		return false
	}
	return slices.ContainsFunc(l.Options.Awaits(t.Number()), func(a asyncflow.Awaited) bool {
		return some[records.FanOutKeyOf(a)]
	})
}

// ParentArgs returns the keys of fan-outs as arguments of a query.
func ParentArgs(parents []records.FanOutKey) []any {
	return []any{records.Column(parents, func(k *records.FanOutKey) int32 { return k.Number }),
		records.Column(parents, func(k *records.FanOutKey) int64 { return k.ID }),
		records.Column(parents, func(k *records.FanOutKey) int16 { return k.Seq })}
}

// parkPaused locks the fan-outs meanwhile, so that a resume finds the rows in wait. A lease that no
// longer stands is left out of the result, too.
func (s *Trees) parkPaused(
	ctx context.Context, tx pgx.Tx, t *config.Type, leases []asyncflow.Lease,
	parents []records.FanOutKey,
) (others []asyncflow.Lease, err error) {
	paused := map[records.FanOutKey]bool{}
	var key records.FanOutKey
	rows, err := tx.Query(ctx, t.SQL(0, LockPausedSQL("")), ParentArgs(parents)...)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(rows, []any{&key.Number, &key.ID, &key.Seq}, func() error {
		paused[key] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	var parked []asyncflow.Lease
	for _, l := range leases {
		if AnyOf(t, &l, paused) {
			parked = append(parked, l)
		} else {
			others = append(others, l)
		}
	}
	return others, s.park(ctx, tx, t, parked)
}

// park moves children to `wait` until the end of a pause, if their leases stand.
func (s *Trees) park(
	ctx context.Context, tx pgx.Tx, t *config.Type, parked []asyncflow.Lease,
) error {
	if len(parked) == 0 {
		return nil
	}
	ids := records.Column(parked, func(l *asyncflow.Lease) int64 { return l.ID.Number })
	rows, err := tx.Query(ctx, t.SQL(0, records.TakeLeaseSQL), ids,
		records.Column(parked, func(l *asyncflow.Lease) int16 { return int16(l.Seq) }),
		records.Column(parked, func(*asyncflow.Lease) int32 { return t.Number() }))
	if err != nil {
		return err
	}
	taken := map[int64]bool{}
	if err := hot.CollectIDs(rows, taken); err != nil {
		return err
	}
	now := s.core.Clock.Now()
	ts := &records.Tokens{}
	for i := range parked {
		l := &parked[i]
		if taken[l.ID.Number] {
			v := asyncflow.ParkFor(*l, asyncflow.WaitParent)
			ts.Add(l.ID.Number, l.Seq, t.LineKeyOf(l.Options), v, config.LineTime(t, l, v, now),
				now)
		}
	}
	if len(ts.Wait) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	ts.Queue(b, t)
	return tx.SendBatch(ctx, b).Close()
}
