package store

import (
	"context"
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
}

// Commit writes all of it in one transaction and one round trip, or nothing. It fails when a
// lease that is to end stands no more, or a task has been inserted before.
//
// After an error, refused is the index of the writes that Postgres has refused, so that nothing was
// written; or -1: all of it may have been committed, or the fault may be with any of them.
//
// The writes must be sorted by tenant and type, which is the order in which they are locked.
func (s *Store) Commit(ctx context.Context, all []*Writes) (refused int, err error) {
	conn, err := s.hot(all[0].Type.Key()).Acquire(ctx)
	if err != nil {
		return -1, err
	}
	defer conn.Release()
	now, tenant := s.Clock.Now(), all[0].Type.Tenant // whose role conn takes
	b := &pgx.Batch{}
	// That a statement has ended well means that all are prepared: pgx does that before.
	prepared, done := false, 0 // done: how many of the writes, whose statements have all ended well
	for i, w := range all {
		if w.Type.Tenant != tenant {
			tenant = w.Type.Tenant
			if err := s.roles.QueueTenant(ctx, b, tenant); err != nil {
				return -1, err
			}
		}
		first := len(b.QueuedQueries)
		s.queueWrites(b, w, now)
		if statements := b.QueuedQueries[first:]; len(statements) > 0 {
			after(statements[0], func() { prepared = true })
			after(statements[len(statements)-1], func() { done = i + 1 })
		}
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
			return done, err
		}
		return -1, err
	}
	for _, w := range all {
		s.announceWrites(w, now)
	}
	return -1, nil
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

// queueWrites adds the statements of one task type to a batch.
func (s *Store) queueWrites(b *pgx.Batch, w *Writes, now time.Time) {
	t := w.Type
	w.tokens, w.leases = tokens{most: len(w.New)}, nil
	counts := tally{submitted: len(w.New)}
	if len(w.Extended) > 0 {
		queueExtensions(b, t, w.Extended)
	}
	if len(w.Settled) > 0 {
		queueEndings(b, t, w.Settled)
	}
	if len(w.New) > 0 {
		queueTasks(b, t, w.New)
		w.leases = append(w.leases, w.tokens.addNew(w.New, now)...)
	}
	if len(w.Settled) > 0 {
		w.leases = append(w.leases, queueSettled(b, t, w.Settled, &w.tokens, &counts, now)...)
	}
	s.queueFollowing(b, w, counts, now)
}

// queueFollowing adds what follows from new and settled tasks: their token rows, the leases of those
// that begin at once, and the counts.
func (s *Store) queueFollowing(b *pgx.Batch, w *Writes, counts tally, now time.Time) {
	w.tokens.queue(b, w.Type)
	if len(w.leases) > 0 {
		begin(w.leases, w.Type, now)
		s.queueLeases(b, w.Type, w.leases, nil, now)
	}
	counts.queue(b, w.Type, now)
}

// announceWrites announces ready tasks to dispatchers, leases that end sooner to governance, and
// changes to the callers that follow a task.
func (s *Store) announceWrites(w *Writes, now time.Time) {
	key := w.Type.Key()
	s.Wakeups.Announce(key, w.tokens.earliest)
	s.announceLeases(key, w.leases)
	if len(w.Extended) > 0 {
		s.announceExtended(key, w.Extended)
	}
	if len(w.Settled) > 0 {
		s.announceSettled(w.Type, w.Settled, now)
	}
}

// announceLeases announces leases that have begun: the background jobs check when the first one
// ends.
func (s *Store) announceLeases(key TypeKey, leases []*asyncflow.Lease) {
	for _, l := range leases {
		s.watched.tell(key, l.ID.Number)
	}
	s.announceEnds(key, leases)
	s.countLeased(key, len(leases))
}

// announceEnds announces to governance when the first of some leases ends.
func (s *Store) announceEnds(key TypeKey, leases []*asyncflow.Lease) {
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
func (s *Store) Doubtful() bool { return s.doubtful.Load() }

// Homes returns the number of hot connections. Home returns the one that has prepared the
// statements of a task type. Writes of types with the same home should go together.
func (s *Store) Homes() int { return s.hotPool.Size() }

// Home returns the number of a task type's home among the hot connections, from 0.
func (s *Store) Home(key TypeKey) int { return s.hotPool.Home(key.Tenant, key.Type) }
