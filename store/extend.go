package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// extendItem is a lease whose time is to be moved.
type extendItem struct {
	id    int64
	seq   int
	until time.Time
	had   *time.Time // only if the lease still has this end; nil: whichever
	// sooner says that the lease ends sooner than it would have.
	sooner bool
	done   func(stands bool, err error)
}

// Extend moves the time of a lease, if it still stands, and calls done with whether it does.
// Governance hears of one that ends sooner by that.
func (s *Store) Extend(tenant string, l asyncflow.Lease, until time.Time, done func(stands bool, err error)) {
	s.accepted.extended(acceptedKeyOf(tenant, l.ID, l.Seq))
	s.extends.add(TypeKey{tenant, l.ID.Type}, extendItem{l.ID.Number, l.Seq, until, nil, until.Before(l.Until), done})
}

func (s *Store) writeExtends(ctx context.Context, key TypeKey, items []extendItem) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	slices.SortFunc(items, func(a, b extendItem) int { // one order of locks for all batches
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.seq, b.seq), a.rank()-b.rank(), a.until.Compare(b.until))
	})
	standing, err := s.extendLeases(ctx, key, items)
	s.Wakeups.Announce(key, soonest(items, s.Clock.Now()))
	for _, item := range items {
		s.watched.tell(key, item.id)
		item.done(standing[leaseKey{item.id, int16(item.seq)}], err)
	}
}

// soonest returns when the first lease ends of those that end sooner by some items: ahead, so
// that governance takes it for a time to look at; zero: none does.
func soonest(items []extendItem, now time.Time) (at time.Time) {
	for _, item := range items {
		if item.sooner && (at.IsZero() || item.until.Before(at)) {
			at = item.until
		}
	}
	if ahead := now.Add(time.Millisecond); !at.IsZero() && at.Before(ahead) {
		return ahead
	}
	return at
}

// rank orders the items of a lease: one with a condition gives way to those without.
func (i extendItem) rank() int {
	if i.had != nil {
		return 0
	}
	return 1
}

// leaseKey names one lease of a task.
type leaseKey struct {
	id  int64
	seq int16
}

// extendLeases tries until the database answers: repeating it changes nothing. Of several
// items of a lease the last counts.
func (s *Store) extendLeases(ctx context.Context, key TypeKey, items []extendItem) (map[leaseKey]bool, error) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return nil, err
	}
	var ids []int64
	var seqs []int16
	var untils []time.Time
	var had []*time.Time
	for i, item := range items {
		if i+1 < len(items) && items[i+1].id == item.id && items[i+1].seq == item.seq {
			continue
		}
		ids, seqs, untils, had = append(ids, item.id), append(seqs, int16(item.seq)), append(untils, item.until), append(had, item.had)
	}
	standing := map[leaseKey]bool{}
	err = s.persist(ctx, "extend", key, func() error {
		rows, err := s.hot(key).Query(ctx, t.tables.at(0, extendLeaseSQL), ids, seqs, untils, had)
		if err != nil {
			return err
		}
		var k leaseKey
		_, err = pgx.ForEachRow(rows, []any{&k.id, &k.seq}, func() error {
			standing[k] = true
			return nil
		})
		return err
	})
	return standing, wrap(err, "Extend(%q, %q)", key.Tenant, key.Type)
}
