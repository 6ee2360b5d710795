package trees

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// FollowUp is a transaction that does some of what earlier ones of a tenant have left to do. Its
// caller says which tasks begin at once on this node, before Commit writes either the lease of a
// task or its row in line. Otherwise each task that begins would first get a row in line, and a
// second transaction would have to take it from there.
//
// Rows are locked until Commit: in between the caller waits for nothing.
type FollowUp struct {
	work *followUp
	more bool  // it took as many rows as it may
	row  int64 // the seq of the first row; 0: none was taken
	err  error // why it has failed
	done bool  // the transaction has ended
}

// Beginning are tasks of a type that may begin, or go on with their next stage, at once.
type Beginning struct {
	Type *config.Type
	// New are new tasks. The caller gives leases to tasks that begin; the others go in line.
	New []*hot.Insertion
	// Settled are settlements after which tasks may go on. Next has the lease of each that does, or
	// nil for one that goes in line; the slice itself may be nil.
	Settled []asyncflow.Settlement
	Next    []*asyncflow.Lease
	// Leases are all leases that Commit wrote, or tried to.
	Leases []*asyncflow.Lease
}

// FollowUpRows is how many rows of the outbox one transaction handles.
const FollowUpRows = 500

// FollowServer names the worker of Citus at which a tenant's FollowUps are; "": they go over
// DATABASE_URL.
func (s *Trees) FollowServer(tenant string) string { return s.core.StraightTo(tenant) }

// BeginFollowUp takes up to n rows of a tenant's outbox and handles them, up to the point where the
// caller says which tasks begin. Call Commit in any case: it also says what has failed so far.
func (s *Trees) BeginFollowUp(ctx context.Context, tenant string, n int) *FollowUp {
	var runs []*run
	for {
		u := s.tryFollowUp(ctx, tenant, n, runs)
		var missing *missingNumbers
		if !errors.As(u.err, &missing) {
			return u
		}
		u.Rollback()
		more, err := s.takeRun(ctx, missing)
		if err == nil && !more.is(missing.t) { // or else no try would find them
			err = config.ErrElsewhere
		}
		if err != nil {
			u.err = err
			return u
		}
		for _, r := range runs {
			r.used = 0
		}
		runs = append(runs, more)
	}
}

// tryFollowUp is BeginFollowUp with the numbers that were taken for it. If they and those at hand
// are too few, the error has a missingNumbers.
func (s *Trees) tryFollowUp(ctx context.Context, tenant string, n int, runs []*run) *FollowUp {
	u := &FollowUp{work: s.newFollowUp(ctx, tenant)}
	u.work.runs = runs
	u.work.tx, u.err = s.core.FollowDB(tenant).Begin(ctx)
	if u.err != nil {
		u.done = true
		return u
	}
	taken, err := u.work.take(n)
	if err == nil && len(taken) > 0 {
		u.more = len(taken) == n
		u.row = taken[0].Seq
		err = u.work.handle(taken)
	}
	u.err = err
	return u
}

// MayBegin returns the tasks that may begin at once, in the order of their types.
func (u *FollowUp) MayBegin() (all []*Beginning) {
	if u.err != nil {
		return nil
	}
	for _, changes := range u.work.byType {
		if len(changes.begin.New)+len(changes.begin.Settled) > 0 {
			all = append(all, &changes.begin)
		}
	}
	slices.SortFunc(all, func(a, b *Beginning) int {
		return cmp.Compare(a.Type.Number(), b.Type.Number())
	})
	return all
}

// Row is the first row that the transaction took; 0: it took none.
func (u *FollowUp) Row() int64 { return u.row }

// Committed reports whether Commit has committed the transaction. Otherwise its leases don't stand,
// as far as is known.
func (u *FollowUp) Committed() bool { return u.done && u.err == nil }

// Again is after how long the caller calls FollowUp again, as the next row is due then; 0: none is
// due soon.
func (u *FollowUp) Again() time.Duration {
	next := u.work.next
	for _, r := range u.work.outbox {
		if !r.Due.IsZero() && (next.IsZero() || r.Due.Before(next)) {
			next = r.Due
		}
	}
	if next.IsZero() || next.Sub(u.work.now) > followSoon {
		return 0
	}
	return next.Sub(u.work.now) + time.Millisecond // the clock may go slower than a timer
}

// Commit writes everything, and reports whether there may be more to do. After an error the
// transaction may be committed all the same.
func (u *FollowUp) Commit() (more bool, err error) {
	f := u.work
	if u.err == nil {
		u.err = u.commit()
	}
	u.Rollback()
	if f.announceLeases(u.err == nil) && u.err != nil {
		u.err = hot.NoteFailure(f.s.hot, f.tenant, u.err)
	}
	if u.err != nil {
		if !postgres.RolledBack(u.err) {
			f.announceReady()
		}
		return false, postgres.Wrap(u.err, "FollowUp(%q)", f.tenant)
	}
	f.announceReady()
	f.announce()
	if err = f.s.await(f.ctx, f.tenant, slices.Collect(maps.Keys(f.await))); err != nil {
		return false, postgres.Wrap(err, "FollowUp(%q)", f.tenant) // a later one looks again anyway
	}
	now := func(r records.OutboxRow) bool { return r.Due.IsZero() }
	return u.more || slices.ContainsFunc(f.outbox, now) || f.leftByEnds(), nil
}

// leftByEnds reports whether the ends of tasks in the transaction left something to do: they may be
// children of others.
func (f *followUp) leftByEnds() bool {
	for _, changes := range f.byType {
		left := func(s asyncflow.Settlement) bool { return records.NeedsFollowUp(changes.t, &s) }
		if slices.ContainsFunc(changes.settled, left) ||
			slices.ContainsFunc(changes.written, left) {
			return true
		}
	}
	return false
}

// commit writes what the transaction collected, and commits it.
func (u *FollowUp) commit() error {
	if u.row != 0 {
		if err := u.work.write(); err != nil {
			return err
		}
	}
	u.done = true
	return u.work.tx.Commit(u.work.ctx)
}

// Rollback ends the transaction unless Commit has.
func (u *FollowUp) Rollback() {
	if u.done {
		return
	}
	u.done = true
	_ = u.work.tx.Rollback(u.work.ctx)
}

// begin adds the leases of tasks of a type that begin or go on at once. The other tasks go in line.
func (f *followUp) begin(changes *typeChanges) {
	b := &changes.begin
	b.Leases = hot.AddNew(&changes.tokens, b.New, f.now)
	for i, s := range b.Settled {
		if b.Next != nil && b.Next[i] != nil {
			b.Leases = append(b.Leases, b.Next[i])
		} else {
			f.line(changes, s)
		}
	}
	hot.BeginLeases(b.Leases, changes.t, f.now)
}

// announceLeases announces the leases of the transaction, and reports whether there are any. If its
// end is unknown, they may stand.
func (f *followUp) announceLeases(committed bool) (any bool) {
	for _, changes := range f.byType {
		leases := changes.begin.Leases
		if len(leases) == 0 {
			continue
		}
		any = true
		if committed {
			hot.AnnounceLeases(f.s.hot, changes.t, leases)
		} else {
			hot.AnnounceEnds(f.s.hot, changes.t.Key(), leases)
		}
	}
	return any
}
