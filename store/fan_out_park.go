package store

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// ParkHalted looks at the parents of leased children. If a parent is paused, its child moves to
// `wait`, as if it had not been leased. If a parent is over or about to be, its child is cancelled.
// ParkHalted returns the remaining tasks. Without children, it asks nothing.
func (s *trees) ParkHalted(
	ctx context.Context, t *Type, leases []asyncflow.Lease,
) (others []asyncflow.Lease, err error) {
	parents := parentsOf(t, leases)
	if len(parents) == 0 {
		return leases, nil
	}
	var halted halts
	b := &pgx.Batch{}
	halted.queue(b, t, parents)
	if err = s.hot(t.Tenant).Send(ctx, b); err == nil && halted.none() {
		return leases, nil
	}
	others = leases
	if err == nil && len(halted.stopped) > 0 {
		var ids []int64
		ids, others = halted.split(t, leases)
		err = s.cancelStopped(ctx, t, ids)
	}
	if err == nil && len(halted.paused) > 0 {
		err = pgx.BeginFunc(ctx, s.of(t.Tenant), func(tx pgx.Tx) error {
			others, err = s.parkPaused(ctx, tx, t, others, parents)
			return err
		})
	}
	if err != nil {
		return nil, wrap(err, "ParkHalted(%q, %q)", t.Tenant, t.Name)
	}
	if now := s.Clock.Now(); t.Limited(now) { // other tasks may use their capacity
		s.Wakeups.Announce(t.Key(), now)
	}
	return others, nil
}

// halts are fan-outs that let no child begin: the paused ones, and the ones that are stopped or
// about to be.
type halts struct{ paused, stopped map[fanOutKey]bool }

func (h *halts) none() bool { return len(h.paused)+len(h.stopped) == 0 }

func (h *halts) queue(b *pgx.Batch, t *Type, parents []fanOutKey) {
	h.paused, h.stopped = map[fanOutKey]bool{}, map[fanOutKey]bool{}
	b.Queue(t.at(0, haltedSQL), parentArgs(t, parents)...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o, paused := fanOut{fanOutKey: fanOutKey{number: t.number}}, false
			err := rows.Scan(&o.id, &o.seq, &paused, &o.stopped, &o.rule, &o.count, &o.ended.failed)
			if err != nil {
				return err
			}
			switch {
			case o.stopped || o.failed():
				h.stopped[o.fanOutKey] = true
			case paused:
				h.paused[o.fanOutKey] = true
			}
		}
		return rows.Err()
	})
}

// split returns the ids of the children of stopped fan-outs, and the other leases.
func (h *halts) split(
	t *Type, leases []asyncflow.Lease,
) (ids []int64, others []asyncflow.Lease) {
	for i := range leases {
		if key, ok := parentOf(t, &leases[i]); ok && h.stopped[key] {
			ids = append(ids, leases[i].ID.Number)
		} else {
			others = append(others, leases[i])
		}
	}
	return ids, others
}

// cancelStopped cancels children of fan-outs that are stopped or about to be, before FollowUp comes
// to them. The parent isn't redriven until all of its children have ended, so that it needs no
// lock.
func (s *trees) cancelStopped(ctx context.Context, t *Type, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	var all []asyncflow.Settlement
	err := s.following(ctx, t, func(t *Type) error {
		all = nil
		return pgx.BeginFunc(ctx, s.of(t.Tenant), func(tx pgx.Tx) error {
			t, err := rollsNow(ctx, tx, t)
			for rest := ids; err == nil && len(rest) > 0; {
				roll := asyncflow.TaskID{Number: rest[0]}.Position()
				n := 1
				for n < len(rest) && (asyncflow.TaskID{Number: rest[n]}).Position() == roll {
					n++
				}
				var settled []asyncflow.Settlement
				settled, err = cancelAll(ctx, tx, t, rest[:n], childStopped, s.Clock.Now())
				all, rest = append(all, settled...), rest[n:]
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	s.countSettled(t.Key(), all...)
	s.freed(ctx, t, all)
	for _, settled := range all {
		s.watched.tell(t.Key(), settled.Lease.ID.Number)
	}
	s.tellFollowUp(t.Tenant)
	return nil
}

// haltedSQL reads which fan-outs are paused, stopped, or have failed children, and how many
// children failed: FollowUp's count, and the rows in `outbox` that it hasn't counted. So too many
// failures take effect with their commit, as a cancel does. Votes fail by their quorum, and
// failures before a redrive don't count: only FollowUp knows both.
const haltedSQL = `
SELECT o.id, o.seq, o.paused_at IS NOT NULL, o.stopped, o.rule, o.count, o.bad
FROM unnest($2::bigint[], $3::smallint[]) AS u (id, seq)
CROSS JOIN LATERAL (
  SELECT o.*, CASE WHEN o.closed OR o.again IS NOT NULL OR o.rule->'quorum' IS NOT NULL THEN 0
    ELSE o.failed + o.cancelled + (SELECT coalesce(sum(b.failed + b.cancelled), 0)
      FROM {outbox} b WHERE b.kind = 'children' AND b.failed + b.cancelled > 0
        AND b.type = o.type AND b.id = o.id AND b.fan_out = o.seq) END AS bad
  FROM {fan_outs} o WHERE o.type = $1 AND o.id = u.id AND o.seq = u.seq) o
WHERE o.paused_at IS NOT NULL OR o.stopped OR o.bad > 0`

// pausedSQL reads which fan-outs are paused.
const pausedSQL = `
SELECT o.id, o.seq FROM unnest($2::bigint[], $3::smallint[]) AS u (id, seq)
JOIN {fan_outs} o ON o.type = $1 AND o.id = u.id AND o.seq = u.seq
WHERE o.paused_at IS NOT NULL AND NOT o.stopped`

// parentsOf returns the fan-outs to which leased children belong.
func parentsOf(t *Type, leases []asyncflow.Lease) (all []fanOutKey) {
	for i := range leases {
		key, ok := parentOf(t, &leases[i])
		if ok && (len(all) == 0 || all[len(all)-1] != key) {
			all = append(all, key)
		}
	}
	return all
}

func parentOf(t *Type, l *asyncflow.Lease) (key fanOutKey, ok bool) {
	if c := l.Options.Child; c != nil {
		return fanOutKey{t.number, c.Parent, int16(c.Seq)}, true
	}
	return key, false
}

func parentArgs(t *Type, parents []fanOutKey) []any {
	return []any{t.number, column(parents, func(k *fanOutKey) int64 { return k.id }),
		column(parents, func(k *fanOutKey) int16 { return k.seq })}
}

// parkPaused locks the fan-outs meanwhile, so that a resume finds the rows in wait. A lease that no
// longer stands is left out of others, too.
func (s *trees) parkPaused(
	ctx context.Context, tx pgx.Tx, t *Type, leases []asyncflow.Lease, parents []fanOutKey,
) (others []asyncflow.Lease, err error) {
	paused, key := map[fanOutKey]bool{}, fanOutKey{number: t.number}
	rows, err := tx.Query(ctx, t.at(0, pausedSQL+` ORDER BY o.id, o.seq FOR SHARE OF o`),
		parentArgs(t, parents)...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&key.id, &key.seq}, func() error {
			paused[key] = true
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	var parked []asyncflow.Lease
	for _, l := range leases {
		if key, ok := parentOf(t, &l); ok && paused[key] {
			parked = append(parked, l)
		} else {
			others = append(others, l)
		}
	}
	return others, s.park(ctx, tx, t, parked)
}

// park moves children to `wait` until the end of a pause, if their leases stand.
func (s *trees) park(
	ctx context.Context, tx pgx.Tx, t *Type, parked []asyncflow.Lease,
) error {
	if len(parked) == 0 {
		return nil
	}
	ids := column(parked, func(l *asyncflow.Lease) int64 { return l.ID.Number })
	rows, err := tx.Query(ctx, t.at(0, takeLeaseSQL), ids,
		column(parked, func(l *asyncflow.Lease) int16 { return int16(l.Seq) }),
		column(parked, func(*asyncflow.Lease) int32 { return t.number }))
	if err != nil {
		return err
	}
	taken := map[int64]bool{}
	if err := collectIDs(rows, taken); err != nil {
		return err
	}
	now, ts := s.Clock.Now(), &tokens{}
	for i := range parked {
		l := &parked[i]
		if taken[l.ID.Number] {
			v := asyncflow.ParkFor(*l, asyncflow.WaitParent)
			ts.add(l.ID.Number, l.Seq, t.LineKeyOf(l.Options), v, t.placedAt(l, v, now), now)
		}
	}
	if len(ts.wait) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	ts.queue(b, t)
	return tx.SendBatch(ctx, b).Close()
}
