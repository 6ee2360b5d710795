package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// ParkPaused moves those of some leased tasks to wait whose parents are paused, as if they had not
// been leased, and returns the others. If none of the tasks is a child, it asks nothing.
func (s *Store) ParkPaused(
	ctx context.Context, t *Type, leases []asyncflow.Lease,
) (others []asyncflow.Lease, err error) {
	parents := parentsOf(t, leases)
	if len(parents) == 0 {
		return leases, nil
	}
	paused := false
	b := &pgx.Batch{}
	b.Queue(t.at(0, `SELECT EXISTS (`+pausedSQL+`)`), parentArgs(t, parents)...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&paused) })
	if err = s.hot(t.Tenant).Send(ctx, b); err == nil && !paused {
		return leases, nil
	}
	if err == nil {
		err = pgx.BeginFunc(ctx, s.of(t.Tenant), func(tx pgx.Tx) error {
			others, err = s.parkPaused(ctx, tx, t, leases, parents)
			return err
		})
	}
	if err != nil {
		return nil, wrap(err, "ParkPaused(%q, %q)", t.Tenant, t.Name)
	}
	if now := s.Clock.Now(); t.Limited(now) { // other tasks may use their capacity
		s.Wakeups.Announce(t.Key(), now)
	}
	return others, nil
}

// pausedSQL reads those of some fan-outs that are paused.
const pausedSQL = `
SELECT o.id, o.seq FROM unnest($2::bigint[], $3::smallint[]) AS u (id, seq)
JOIN {fan_outs} o ON o.type = $1 AND o.id = u.id AND o.seq = u.seq
WHERE o.paused_at IS NOT NULL AND NOT o.stopped`

// parentsOf returns the fan-outs of which some of the leased tasks are children.
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
func (s *Store) parkPaused(
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

// park moves those of some children whose leases stand to wait, until the end of a pause.
func (s *Store) park(
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
