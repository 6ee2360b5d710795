package hot

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Ending is a lease that ends as its settlement says.
type Ending struct {
	*asyncflow.Settlement
	// Next is the lease with which the task goes on with its next stage. nil: it goes in line,
	// unless its verdict is final.
	Next *asyncflow.Lease
	// Settled is the result.
	Settled Settled

	ended bool // by SettleAgain, which needn't check again
}

// Settled is the result of a settlement.
type Settled struct {
	// Stale reports whether the lease no longer stood and another outcome was written before
	// (another output is another outcome). Then nothing was changed.
	Stale bool
	// Written is the outcome in the journal for the lease's seq, if the lease no longer stood;
	// "" if there is none (yet).
	Written asyncflow.OutcomeKind
	Err     error
}

// columns returns the types, ids and seqs of leases that end.
func columns(all []*Writes) (types []int32, ids []int64, seqs []int16) {
	for _, w := range all {
		for _, item := range w.Settled {
			types = append(types, w.Type.Number())
			ids = append(ids, item.Lease.ID.Number)
			seqs = append(seqs, int16(item.Lease.Seq))
		}
	}
	return types, ids, seqs
}

// queueEndings ends leases, or fails if one of them no longer stands.
func queueEndings(b *pgx.Batch, all []*Writes) {
	t := all[0].Type
	switch types, ids, seqs := columns(all); len(ids) {
	case 0:
	case 1:
		b.Queue(t.SQL(0, records.EndOneLeaseSQL), ids[0], seqs[0], types[0])
	default:
		b.Queue(t.SQL(0, records.EndLeasesSQL), ids, seqs, len(ids), types)
	}
}

// queueSettled adds what follows from ended leases: journal rows, token rows, counts, and the
// leases of the tasks that go on at once.
func (w *Writes) queueSettled(b *pgx.Batch, rows *records.Inserts, now time.Time) {
	t := w.Type
	for _, item := range w.Settled {
		rows.AddJournal(t, item.Settlement)
		if rows.AddFollowUp(t, item.Settlement) {
			w.left.add(t, item.Settlement)
		}
		w.Counts.Count(item.Settlement)
		switch {
		case item.Verdict.Final() != "":
		case item.Next != nil:
			w.Leases = append(w.Leases, item.Next)
		default:
			w.Tokens.Add(item.Lease.ID.Number, item.Lease.Seq+1, t.LineKeyOf(item.Lease.Options),
				item.Verdict, config.LineTime(t, &item.Lease, item.Verdict, now), now)
		}
	}
	if t.Flow != nil && len(w.Settled) > 0 {
		records.QueueBlocks(b, t, settlementsOf(w.Settled))
	}
}

func settlementsOf(items []*Ending) []asyncflow.Settlement {
	all := make([]asyncflow.Settlement, len(items))
	for i, item := range items {
		all[i] = *item.Settlement
	}
	return all
}

// announceSettled announces the tasks of ended leases.
func (s *Path) announceSettled(t *config.Type, items []*Ending, now time.Time) {
	meter := s.core.Config.Meter.Type(t.Key())
	for _, item := range items {
		s.core.CountOne(t.Key(), meter, item.Settlement, now)
		s.core.Watchers.Tell(t.Key(), item.Lease.ID.Number)
	}
	if t.Limited(now) { // other tasks may use their capacity
		s.core.Wakeups.Announce(t.Key(), now)
	}
}

// SettleAgain settles the leases that still stand, and finds out how the remaining ones ended,
// since an earlier try may be committed. If Postgres refuses the data of one, it fails as a whole.
// Otherwise it sets each item's result.
func (s *Path) SettleAgain(ctx context.Context, t *config.Type, items []*Ending) error {
	var ended map[int64]bool
	var w *Writes
	items = slices.DeleteFunc(slices.Clone(items), func(item *Ending) bool { return item.ended })
	if isLater(t, items) {
		now, err := s.core.Refreshed(ctx, t)
		if err != nil {
			return postgres.Wrap(err, "SettleAgain(%q, %q)", t.Tenant, t.Name)
		}
		t = now
	}
	err := s.core.FollowRolls(ctx, t, func(now *config.Type) (err error) {
		t = now
		w = &Writes{Type: now}
		ended, err = s.trySettle(ctx, w, items)
		return err
	})
	if err != nil {
		return postgres.Wrap(err, "SettleAgain(%q, %q)", t.Tenant, t.Name)
	}
	s.announceWrites(w, s.core.Clock.Now())
	for _, item := range items {
		item.ended = ended[item.Lease.ID.Number]
	}
	err = s.explainStale(ctx, t, slices.DeleteFunc(items,
		func(item *Ending) bool { return item.ended }))
	return postgres.Wrap(err, "SettleAgain(%q, %q)", t.Tenant, t.Name)
}

// isLater reports whether a task is in a later roll than this node knows. The type may have another
// table set there: its journal isn't the one of that position in the known set.
func isLater(t *config.Type, items []*Ending) bool {
	return slices.ContainsFunc(items, func(item *Ending) bool {
		return item.Lease.ID.Position() > t.End
	})
}

// trySettle is one transaction of two round trips. It returns the tasks of the leases that it
// ended.
func (s *Path) trySettle(ctx context.Context, w *Writes, items []*Ending) (map[int64]bool, error) {
	conn, err := s.core.HotDB(w.Type.Tenant).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // ends the connection if the transaction is still open
	ended := make(map[int64]bool, len(items))
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	types, ids, seqs := columns([]*Writes{{Type: w.Type, Settled: items}})
	b.Queue(w.Type.SQL(0, records.TakeLeaseSQL), ids, seqs, types).Query(func(rows pgx.Rows) error {
		return CollectIDs(rows, ended)
	})
	if err := conn.Send(ctx, b); err != nil {
		return nil, err
	}
	now := s.core.Clock.Now()
	w.Settled = slices.DeleteFunc(slices.Clone(items), func(item *Ending) bool {
		return !ended[item.Lease.ID.Number]
	})
	b = &pgx.Batch{}
	rows := records.Inserts{Node: s.core.Config.Node}
	w.queueSettled(b, &rows, now)
	w.AddFollowing(&rows, now)
	rows.Queue(b, now)
	b.Queue("COMMIT")
	err = conn.Send(ctx, b)
	if err != nil && len(w.Leases) > 0 {
		AnnounceEnds(s, w.Type.Key(), w.Leases)
		return nil, NoteFailure(s, w.Type.Tenant, err)
	}
	return ended, err
}

// explainStale handles settlements of missing leases. If the same outcome stands in the journal for
// that seq, it is this very settlement (the answer of its COMMIT was lost), or a repeated report.
func (s *Path) explainStale(ctx context.Context, t *config.Type, items []*Ending) error {
	confirmed := false // everything written so far is durable
	for _, item := range items {
		written, same, err := s.writtenAs(ctx, t, item.Lease.ID, item.Lease.Seq, item.Outcome)
		if err == nil && same && !confirmed {
			err = s.core.ConfirmHot(ctx, t.Tenant)
			confirmed = err == nil
		}
		if err != nil {
			return err
		}
		item.Settled = Settled{Stale: !same, Written: written}
		if same { // its announcement may be missing
			s.core.Watchers.Tell(t.Key(), item.Lease.ID.Number)
			if item.Verdict.Final() == "" {
				s.core.Wakeups.Announce(t.Key(), item.Verdict.OrderTime)
			}
			s.tellEnds(t, []asyncflow.Settlement{*item.Settlement})
		}
	}
	return nil
}

// CollectIDs reads ids into a set.
func CollectIDs(rows pgx.Rows, into map[int64]bool) error {
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
		into[id] = true
		return nil
	})
	return err
}

// AnnounceTakenEnds announces and counts settlements of leases that were taken.
func AnnounceTakenEnds(
	ctx context.Context, s *Path, t *config.Type, settled []asyncflow.Settlement,
	ts *records.Tokens,
) {
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	s.core.CountSettled(t.Key(), settled...)
	AnnounceFreed(ctx, s, t, settled)
	for _, settlement := range settled {
		s.core.Watchers.Tell(t.Key(), settlement.Lease.ID.Number)
	}
}
