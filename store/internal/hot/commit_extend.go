package hot

import (
	"cmp"
	"context"
	"encoding/json"
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
	// Knew is the end that the caller knew when it asked. If a later report moved it on since,
	// this one doesn't move it back.
	Knew       time.Time
	Checkpoint Checkpoint
	Seen       Seen
	// Sooner reports whether the lease ends sooner than without the change.
	Sooner bool
	// Stands is the result: the lease stands, with the new end.
	Stands bool
}

// Seen is what was seen of a running attempt. What is left out stays as it was.
type Seen struct {
	Beat     time.Time // of its last heartbeat
	Worker   string    // see asyncflow.WorkerName
	Endpoint string    // id of the endpoint that got it
}

// Checkpoint is what an attempt leaves for the next attempt of its stage.
type Checkpoint struct {
	Document json.RawMessage // nil: what was left stays
	Arrived  time.Time       // when a node got it; of an attempt's checkpoints the last one counts
}

// Or returns what was seen, and of what is left out what another says.
func (s Seen) Or(other Seen) Seen {
	return Seen{cmp.Or(s.Beat, other.Beat), cmp.Or(s.Worker, other.Worker),
		cmp.Or(s.Endpoint, other.Endpoint)}
}

// Later returns the one of two checkpoints that counts.
func (c Checkpoint) Later(other Checkpoint) Checkpoint {
	if c.Document == nil || other.Document != nil && other.Arrived.After(c.Arrived) {
		return other
	}
	return c
}

// leaseName names one lease of a task.
type leaseName struct {
	number int32 // of the type
	id     int64
	seq    int16
}

// queueExtensions adds the statements that move the ends of leases, and sets their results.
func queueExtensions(b *pgx.Batch, all []*Writes, now time.Time) {
	var plain, seen, checked extensions // checked come with checkpoints
	for _, w := range all {
		for _, item := range w.Extended {
			switch {
			case item.Checkpoint.Document == nil && item.Seen == (Seen{}):
				plain.add(w.Type.Number(), item)
			case item.Checkpoint.Document == nil:
				seen.add(w.Type.Number(), item)
				seen.see(item.Seen)
			default:
				checked.see(item.Seen)
				checked.add(w.Type.Number(), item)
				checked.documents = append(checked.documents, string(item.Checkpoint.Document))
				checked.arrived = append(checked.arrived, item.Checkpoint.Arrived)
			}
		}
	}
	t := all[0].Type
	if e := &plain; len(e.ids) > 0 {
		b.Queue(t.SQL(0, records.ExtendLeaseSQL), e.ids, e.seqs, e.untils, e.had, e.types,
			e.knew).Query(e.collect)
	}
	if e := &seen; len(e.ids) > 0 {
		b.Queue(t.SQL(0, records.ExtendSeenSQL), e.ids, e.seqs, e.untils, e.had, e.types,
			e.knew, e.beats, e.workers, e.endpoints).Query(e.collect)
	}
	if e := &checked; len(e.ids) > 0 {
		b.Queue(t.SQL(0, records.ExtendCheckedSQL), e.ids, e.seqs, e.untils, e.types, e.documents,
			e.arrived, now.Add(records.FirstCheck), e.knew, e.beats, e.workers,
			e.endpoints).Query(e.collect)
	}
}

// extensions holds the columns of what one statement extends.
type extensions struct {
	types     []int32
	ids       []int64
	seqs      []int16
	untils    []time.Time
	had       []*time.Time
	knew      []*time.Time
	documents []string
	arrived   []time.Time
	beats     []*time.Time
	workers   []*string
	endpoints []*string
	byName    map[leaseName]*Extension
}

func (e *extensions) add(number int32, item *Extension) {
	name := leaseName{number, item.ID.Number, int16(item.Seq)}
	e.types = append(e.types, number)
	e.ids = append(e.ids, name.id)
	e.seqs = append(e.seqs, name.seq)
	e.untils = append(e.untils, item.Until)
	e.had = append(e.had, item.Had)
	e.knew = append(e.knew, postgres.OrNull(item.Knew))
	if e.byName == nil {
		e.byName = map[leaseName]*Extension{}
	}
	e.byName[name] = item
	item.Stands = false // an earlier try that set it may be rolled back
}

func (e *extensions) see(s Seen) {
	e.beats = append(e.beats, postgres.OrNull(s.Beat))
	e.workers = append(e.workers, postgres.OrNull(s.Worker))
	e.endpoints = append(e.endpoints, postgres.OrNull(s.Endpoint))
}

// collect notes which leases stand.
func (e *extensions) collect(rows pgx.Rows) error {
	var name leaseName
	_, err := pgx.ForEachRow(rows, []any{&name.number, &name.id, &name.seq}, func() error {
		e.byName[name].Stands = true
		return nil
	})
	return err
}

// ExtendAgain moves the ends of leases after an earlier try. Repeating it changes nothing.
func (s *Path) ExtendAgain(ctx context.Context, t *config.Type, items []*Extension) error {
	b := &pgx.Batch{}
	queueExtensions(b, []*Writes{{Type: t, Extended: items}}, s.core.Clock.Now())
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
