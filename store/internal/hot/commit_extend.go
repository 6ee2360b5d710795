package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
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

// leaseName names one lease of a task.
type leaseName struct {
	number int32 // of the type
	id     int64
	seq    int16
}

// queueExtensions adds the statement that moves the ends of leases, and sets their results.
func queueExtensions(b *pgx.Batch, all []*Writes) {
	var types []int32
	var ids []int64
	var seqs []int16
	var untils []time.Time
	var had []*time.Time
	byName := map[leaseName]*Extension{}
	for _, w := range all {
		for _, item := range w.Extended {
			k := leaseName{w.Type.Number(), item.ID.Number, int16(item.Seq)}
			types = append(types, k.number)
			ids = append(ids, k.id)
			seqs = append(seqs, k.seq)
			untils = append(untils, item.Until)
			had = append(had, item.Had)
			byName[k] = item
			item.Stands = false // an earlier try that set it may be rolled back
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(all[0].Type.SQL(0, records.ExtendLeaseSQL), ids, seqs, untils, had, types).
		Query(func(rows pgx.Rows) error {
			var k leaseName
			_, err := pgx.ForEachRow(rows, []any{&k.number, &k.id, &k.seq}, func() error {
				byName[k].Stands = true
				return nil
			})
			return err
		})
}

// ExtendAgain moves the ends of leases after an earlier try. Repeating it changes nothing.
func (s *Path) ExtendAgain(ctx context.Context, t *config.Type, items []*Extension) error {
	b := &pgx.Batch{}
	queueExtensions(b, []*Writes{{Type: t, Extended: items}})
	if err := s.core.HotDB(t.Tenant).Send(ctx, b); err != nil {
		return postgres.Wrap(err, "ExtendAgain(%q, %q)", t.Tenant, t.Name)
	}
	s.announceExtended(t.Key(), items)
	return nil
}

// announceExtended announces the first end of the leases that end sooner to the background jobs,
// and the changes to the callers that follow a task.
func (s *Path) announceExtended(key config.TypeKey, items []*Extension) {
	s.core.Wakeups.Announce(key, soonest(items, s.core.Clock.Now()))
	for _, item := range items {
		s.core.Watchers.Tell(key, item.ID.Number)
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
