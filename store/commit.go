package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Writes has the changes of one task type in one transaction. Commit tries all of them at once. If
// that fails, ExtendAgain, SettleAgain and InsertAgain find out what is left to do.
type Writes struct {
	Type *Type
	// New are tasks without idempotency keys, in the order of their ids.
	New []*Insertion
	// Extended are leases whose ends move, in the order of their tasks, one of each lease.
	Extended []*Extension
	// Settled are leases that end, in the order of their tasks, one of each task.
	Settled []*Ending

	tokens tokens
	leases []*asyncflow.Lease
	counts tally
	left   leftToDo // after the settlements
}

// Refused are the writes that Postgres has refused, from one index to before another one: those of
// a tenant.
type Refused struct{ From, To int }

// Commit writes all of it in one transaction and one round trip, or nothing. It fails when a
// lease that is to end stands no more, or a task has been inserted before.
//
// After an error, refused are the writes that Postgres has refused, so that nothing was written; or
// none: all of it may have been committed, or the fault may be with any of them.
//
// The writes must be sorted by tenant and type, which is the order in which they are locked.
func (s *hotPath) Commit(ctx context.Context, all []*Writes) (refused Refused, err error) {
	conn, err := s.hot(all[0].Type.Tenant).Acquire(ctx) // it takes that tenant's role
	if err != nil {
		return refused, err
	}
	defer conn.Release()
	now := s.Clock.Now()
	b := &pgx.Batch{}
	// That a statement has ended well means that all are prepared: pgx does that before.
	prepared, done := false, 0 // done: how many of the writes, whose statements have all ended well
	var ends []int             // of the tenants' writes
	for from := 0; from < len(all); {
		tenant, to := all[from].Type.Tenant, from+1
		for to < len(all) && all[to].Type.Tenant == tenant {
			to++
		}
		first := len(b.QueuedQueries)
		if from > 0 {
			if err := s.roles.QueueTenant(ctx, b, tenant); err != nil {
				return Refused{from, to}, err
			}
		}
		s.queueWrites(b, all[from:to], now)
		statements := b.QueuedQueries[first:]
		after(statements[0], func() { prepared = true })
		after(statements[len(statements)-1], func() { done = to })
		ends, from = append(ends, to), to
	}
	err = conn.Send(ctx, b)
	conn.Release()
	if err != nil {
		for _, w := range all {
			s.announceEnds(w.Type.Key(), w.leases) // they may stand nonetheless
			if len(w.leases) > 0 {
				err = s.doubt(err)
			}
		}
		if prepared && done < len(all) && postgres.RolledBack(err) {
			return Refused{done, ends[slices.IndexFunc(ends, func(to int) bool { return to > done })]}, err
		}
		return refused, err
	}
	for _, w := range all {
		s.announceWrites(w, now)
	}
	return refused, nil
}

// after calls do when a statement of a batch has ended well.
func after(statement *pgx.QueuedQuery, do func()) {
	read := statement.Fn
	statement.Fn = func(br pgx.BatchResults) (err error) {
		if read != nil {
			err = read(br)
		} else {
			_, err = br.Exec()
		}
		if err == nil {
			do()
		}
		return err
	}
}

// queueWrites adds the statements of one tenant's writes to a batch.
func (s *hotPath) queueWrites(b *pgx.Batch, all []*Writes, now time.Time) {
	queueExtensions(b, all)
	queueEndings(b, all)
	rows := rows{node: s.cfg.Node}
	for _, w := range all {
		queueTasks(b, w.Type, w.New)
		w.tokens, w.leases, w.counts = tokens{}, nil, tally{submitted: len(w.New)}
		w.left = leftToDo{}
		w.leases = addNew(&w.tokens, w.New, now)
		w.queueSettled(b, &rows, now)
		w.addFollowing(&rows, now)
	}
	rows.queue(b, now)
}

// addFollowing adds what follows from new and settled tasks: their token rows, the leases of those
// that begin at once, and the counts.
func (w *Writes) addFollowing(rows *rows, now time.Time) {
	rows.addTokens(w.Type, &w.tokens)
	if len(w.leases) > 0 {
		begin(w.leases, w.Type, now)
		rows.addLeases(w.Type, w.leases, nil)
	}
	rows.addTally(w.Type, w.counts)
}

// announceWrites announces ready tasks to dispatchers, leases that end sooner to governance, and
// changes to the callers that follow a task.
func (s *hotPath) announceWrites(w *Writes, now time.Time) {
	key := w.Type.Key()
	s.Wakeups.Announce(key, w.tokens.earliest)
	s.announceLeases(w.Type, w.leases)
	if len(w.Extended) > 0 {
		s.announceExtended(key, w.Extended)
	}
	if len(w.Settled) > 0 {
		s.announceSettled(w.Type, w.Settled, now)
	}
	s.tellLeft(w.Type.Tenant, w.left)
}

// announceLeases announces leases that have begun: the background jobs check when the first one
// ends.
func (s *hotPath) announceLeases(t *Type, leases []*asyncflow.Lease) {
	key := t.Key()
	for _, l := range leases {
		s.watched.tell(key, l.ID.Number)
	}
	s.announceEnds(key, leases)
	s.countLeased(t, len(leases))
}

// announceEnds announces to governance when the first of some leases ends.
func (s *hotPath) announceEnds(key TypeKey, leases []*asyncflow.Lease) {
	var first time.Time
	for _, l := range leases {
		if first.IsZero() || l.Until.Before(first) {
			first = l.Until
		}
	}
	s.Wakeups.Announce(key, first)
}

// Doubtful reports whether leases may have been committed that no node knows. Until a Lease has
// succeeded, no task should begin with its insert, or go on with its settlement.
func (s *hotPath) Doubtful() bool { return s.doubtful.Load() }

// Home returns the number of a tenant's home among the hot connections, from 0: of the one that has
// prepared the statements of its tables. Writes of tenants with the same home should go together.
func (s *hotPath) Home(tenant string) int { return s.hotPool.Home(tenant) }

// Distributed reports whether Postgres keeps tenants on several servers (Citus). A transaction
// should have one tenant then: those of several would be committed in two phases.
func (s *hotPath) Distributed() bool { return s.distributed }
