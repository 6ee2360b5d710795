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

// Writes holds the changes of one task type in one transaction. Commit tries all of them at once.
// If that fails, ExtendAgain, SettleAgain and InsertAgain find out what is left to do.
type Writes struct {
	Type *config.Type
	// New are tasks without idempotency keys, in the order of their ids.
	New []*Insertion
	// Extended are leases with ends that move, in the order of their tasks, one of each lease.
	Extended []*Extension
	// Settled are leases that end, in the order of their tasks, one of each task.
	Settled []*Ending

	Tokens records.Tokens
	Leases []*asyncflow.Lease
	Counts records.Tally
	left   pendingFollowUp // after the settlements
}

// Refused are the writes that Postgres, or this node, refused, from one index to before another
// one: the writes of a tenant.
type Refused struct{ From, To int }

// Commit writes all of it in one transaction and one round trip, or nothing. It fails when a lease
// that is to end stands no more, or a task was inserted before.
//
// After an error, refused are the writes that were refused, so that nothing was written; or
// none: all of it may be committed, or the fault may be with any of them.
//
// The writes must be sorted by tenant and type, which is the order in which they are locked.
func (s *Path) Commit(ctx context.Context, all []*Writes) (refused Refused, err error) {
	conn, err := s.core.HotDB(all[0].Type.Tenant).Acquire(ctx) // it takes that tenant's role
	if err != nil {
		return refused, err
	}
	defer conn.Release()
	now := s.core.Clock.Now()
	b := &pgx.Batch{}
	// When a statement ends well, all are prepared: pgx does that before.
	prepared := false
	done := 0      // how many of the writes: all their statements ended well
	var ends []int // of the tenants' writes
	for from := 0; from < len(all); {
		tenant := all[from].Type.Tenant
		to := from + 1
		for to < len(all) && all[to].Type.Tenant == tenant {
			to++
		}
		if slices.ContainsFunc(all[from:to], func(w *Writes) bool {
			return isLater(w.Type, w.Settled)
		}) {
			return Refused{from, to}, config.ErrElsewhere // SettleAgain reads the catalog anew
		}
		first := len(b.QueuedQueries)
		if from > 0 {
			if err := s.core.Roles.QueueTenant(ctx, b, tenant); err != nil {
				return Refused{from, to}, err
			}
		}
		s.queueWrites(b, all[from:to], now)
		statements := b.QueuedQueries[first:]
		after(statements[0], func() { prepared = true })
		after(statements[len(statements)-1], func() { done = to })
		ends = append(ends, to)
		from = to
	}
	err = conn.Send(ctx, b)
	conn.Release()
	if err != nil {
		for _, w := range all {
			AnnounceEnds(s, w.Type.Key(), w.Leases) // they may stand nonetheless
			if len(w.Leases) > 0 {
				err = NoteFailure(s, w.Type.Tenant, err)
			}
		}
		if prepared && done < len(all) && postgres.RolledBack(err) {
			return Refused{done, ends[slices.IndexFunc(ends,
				func(to int) bool { return to > done })]}, err
		}
		return refused, err
	}
	for _, w := range all {
		s.announceWrites(w, now)
	}
	return refused, nil
}

// after calls do when a statement of a batch ends well.
func after(statement *pgx.QueuedQuery, do func()) {
	read := statement.Fn
	statement.Fn = func(br pgx.BatchResults) (err error) {
		if read != nil {
			err = read(br)
		} else {
			_, err = br.Exec()
		}
		if err != nil {
			return err
		}
		do()
		return nil
	}
}

// queueWrites adds the statements of one tenant's writes to a batch.
func (s *Path) queueWrites(b *pgx.Batch, all []*Writes, now time.Time) {
	queueExtensions(b, all, now)
	queueEndings(b, all)
	rows := records.Inserts{Node: s.core.Config.Node}
	for _, w := range all {
		QueueTasks(b, w.Type, w.New)
		w.Tokens = records.Tokens{}
		w.Counts = records.Tally{Submitted: len(w.New)}
		w.left = pendingFollowUp{}
		w.Leases = AddNew(&w.Tokens, w.New, now)
		w.queueSettled(b, &rows, now)
		w.AddFollowing(&rows, now)
	}
	rows.Queue(b, now)
}

// AddFollowing adds what follows from new and settled tasks: their token rows, the leases of tasks
// that begin at once, and the counts.
func (w *Writes) AddFollowing(rows *records.Inserts, now time.Time) {
	rows.AddTokens(w.Type, &w.Tokens)
	if len(w.Leases) > 0 {
		BeginLeases(w.Leases, w.Type, now)
		rows.AddLeases(w.Type, w.Leases, nil)
	}
	rows.AddTally(w.Type, w.Counts)
}

// announceWrites announces ready tasks to dispatchers, leases that end sooner to governance, and
// changes to the callers that follow a task.
func (s *Path) announceWrites(w *Writes, now time.Time) {
	key := w.Type.Key()
	s.core.Wakeups.Announce(key, w.Tokens.Earliest)
	AnnounceLeases(s, w.Type, w.Leases)
	if len(w.Extended) > 0 {
		s.announceExtended(key, w.Extended)
	}
	if len(w.Settled) > 0 {
		s.announceSettled(w.Type, w.Settled, now)
	}
	s.tellPending(w.Type.Tenant, w.left)
}

// AnnounceLeases announces begun leases: the background jobs check when the first one ends.
func AnnounceLeases(s *Path, t *config.Type, leases []*asyncflow.Lease) {
	key := t.Key()
	for _, l := range leases {
		s.core.Watchers.Tell(key, l.ID.Number)
	}
	AnnounceEnds(s, key, leases)
	s.countLeased(t, len(leases))
}

// AnnounceEnds announces to governance when the first of some leases ends.
func AnnounceEnds(s *Path, key config.TypeKey, leases []*asyncflow.Lease) {
	var first time.Time
	for _, l := range leases {
		if first.IsZero() || l.Until.Before(first) {
			first = l.Until
		}
	}
	s.core.Wakeups.Announce(key, first)
}

// HasUnknownLeases reports whether the server of a tenant may have committed leases that no node
// knows. Until a Lease succeeds there, no task should begin with its insert, or go on with its
// settlement.
func (s *Path) HasUnknownLeases(tenant string) bool {
	_, unknown := s.unknownLeases.Load(s.core.Server(tenant))
	return unknown
}

// Home returns the number of a tenant's home among the hot connections, from 0: the home prepares
// the statements of its tables. Writes of tenants with the same home should go together.
func (s *Path) Home(tenant string) int { return s.core.Home(tenant) }

// Distributed reports whether a transaction should be of one tenant, see Core.
func (s *Path) Distributed() bool { return s.core.Distributed() }
