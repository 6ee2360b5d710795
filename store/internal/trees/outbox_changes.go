package trees

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// changesOf returns what the transaction does with a type.
func (f *followUp) changesOf(t *config.Type) *typeChanges {
	if f.byType[t.Number()] == nil {
		f.byType[t.Number()] = &typeChanges{t: t, begin: Beginning{Type: t}}
	}
	return f.byType[t.Number()]
}

// settle adds a settlement of a task after the deletion of its token row, and the token row that
// follows.
func (f *followUp) settle(t *config.Type, s asyncflow.Settlement) {
	changes := f.changesOf(t)
	changes.settled = append(changes.settled, s)
	switch {
	case s.Verdict.Final() != "":
	case s.Verdict.Kind == asyncflow.Advance:
		changes.begin.Settled = append(changes.begin.Settled, s)
	default:
		f.line(changes, s)
	}
}

// line puts a task in line after its settlement.
func (f *followUp) line(changes *typeChanges, s asyncflow.Settlement) {
	key := changes.t.LineKeyOf(s.Lease.Options)
	changes.tokens.Add(s.Lease.ID.Number, s.Lease.Seq+1, key, s.Verdict, f.now, f.now)
}

// announceReady announces the tasks that the transaction put in line. If its end is unknown, they
// may stand there, and no other transaction tells of them.
func (f *followUp) announceReady() {
	for _, changes := range f.byType {
		f.s.core.Wakeups.Announce(changes.t.Key(), changes.tokens.Earliest)
	}
}

// announce announces what else the transaction did.
func (f *followUp) announce() {
	f.s.hot.ChargeSubmits(f.tenant, f.charged)
	for _, changes := range f.byType {
		key := changes.t.Key()
		settled := append(changes.settled, changes.written...)
		f.s.core.CountSettled(key, settled...)
		hot.AnnounceFreed(f.ctx, f.s.hot, changes.t, settled)
		for _, settled := range settled {
			f.s.core.Watchers.Tell(key, settled.Lease.ID.Number)
		}
		for _, id := range changes.changed {
			f.s.core.Watchers.Tell(key, id)
		}
	}
}

// The transaction of a FollowUp never waits for numbers of tasks: it may itself lock the row of the
// roll they come from, or keep the tenant at its place, and another connection would wait for it.
// If too few are at hand, it is rolled back, the numbers are taken, and it is tried again with
// them. Each try has the numbers of all before it, so each gets further.

// run are consecutive numbers that were taken for a FollowUp.
type run struct {
	set      config.TypeKey // of the table set
	position int            // of the roll
	first    int64
	n, used  int
}

// is reports whether the numbers are of the open roll of a type.
func (r *run) is(t *config.Type) bool { return r.set == t.Set().Key() && r.position == t.End }

// missingNumbers is the error of a transaction for which too few numbers are at hand.
type missingNumbers struct {
	t *config.Type
	n int
}

func (m *missingNumbers) Error() string {
	return fmt.Sprintf("%d numbers of %q are to be taken before the transaction", m.n, m.t.Name)
}

// takeNumbers returns the first of n consecutive fresh numbers of the open roll of a type, or
// missingNumbers.
func (f *followUp) takeNumbers(t *config.Type, n int) (int64, error) {
	for _, r := range f.runs {
		if r.is(t) && r.n-r.used >= n {
			r.used += n
			return r.first + int64(r.used-n), nil
		}
	}
	if first, ok := f.s.hot.RunAtHand(t, n); ok {
		return first, nil
	}
	return 0, &missingNumbers{t, n}
}

// takeRun takes numbers for the next try of a FollowUp, outside of any transaction of it.
func (s *Trees) takeRun(ctx context.Context, missing *missingNumbers) (*run, error) {
	t, first, err := s.hot.AllotRun(ctx, missing.t, missing.n)
	if err != nil {
		return nil, err
	}
	return &run{set: t.Set().Key(), position: t.End, first: first, n: missing.n}, nil
}
