package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Extension moves the end of a lease if the lease still stands.
type Extension struct {
	ID    asyncflow.TaskID
	Seq   int
	Until time.Time
	Had   *time.Time // move it only from this end; nil: from any
	// Sooner reports whether the lease ends sooner than it would have.
	Sooner bool
	// Stands is the result: the lease stands, and has the new end.
	Stands bool
}

// leaseKey names one lease of a task.
type leaseKey struct {
	id  int64
	seq int16
}

// queueExtensions adds the statement that moves the ends of leases, and sets their results.
func queueExtensions(b *pgx.Batch, t *Type, items []*Extension) {
	ids, seqs := make([]int64, len(items)), make([]int16, len(items))
	untils, had := make([]time.Time, len(items)), make([]*time.Time, len(items))
	byKey := make(map[leaseKey]*Extension, len(items))
	for i, item := range items {
		k := leaseKey{item.ID.Number, int16(item.Seq)}
		ids[i], seqs[i], untils[i], had[i], byKey[k] = k.id, k.seq, item.Until, item.Had, item
		item.Stands = false // an earlier try may have been rolled back
	}
	b.Queue(t.tables.at(0, extendLeaseSQL), ids, seqs, untils, had).Query(func(rows pgx.Rows) error {
		var k leaseKey
		_, err := pgx.ForEachRow(rows, []any{&k.id, &k.seq}, func() error {
			byKey[k].Stands = true
			return nil
		})
		return err
	})
}

// ExtendAgain moves the ends of leases after an earlier try. Repeating it changes nothing.
func (s *Store) ExtendAgain(ctx context.Context, t *Type, items []*Extension) error {
	b := &pgx.Batch{}
	queueExtensions(b, t, items)
	if err := s.hot(t.Key()).Send(ctx, b); err != nil {
		return wrap(err, "ExtendAgain(%q, %q)", t.Tenant, t.Name)
	}
	s.announceExtended(t.Key(), items)
	return nil
}

// announceExtended announces the first end of the leases that end sooner to the background jobs,
// and the changes to the callers that follow a task.
func (s *Store) announceExtended(key TypeKey, items []*Extension) {
	s.Wakeups.Announce(key, soonest(items, s.Clock.Now()))
	for _, item := range items {
		s.watched.tell(key, item.ID.Number)
	}
}

// soonest returns the first end of the leases that end sooner, in the future, so that the
// background jobs check then; zero: none ends sooner.
func soonest(items []*Extension, now time.Time) (at time.Time) {
	for _, item := range items {
		if item.Sooner && (at.IsZero() || item.Until.Before(at)) {
			at = item.Until
		}
	}
	if ahead := now.Add(time.Millisecond); !at.IsZero() && at.Before(ahead) {
		return ahead
	}
	return at
}
