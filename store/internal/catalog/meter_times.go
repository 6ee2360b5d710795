package catalog

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Times counts on this node, since they were taken last, how long tasks waited to be started and
// how long they took.
type Times struct {
	mu     sync.Mutex
	counts map[TimesKey]*TimesCounts
}

// TimesCounts are counts of a type in a stage.
type TimesCounts struct {
	asyncflow.Latencies
	LateVotes     int64         // that came after the decision
	ClosedWindows int64         // calls that got no task as the window of their claimer was used up
	Attempts      int64         // that ended
	Busy          time.Duration // how long they had a worker, added up
}

// TimesKey names what Times counts: how long the tasks of a type were due in a stage, or, without a
// stage, how long it took from their submit to their end.
type TimesKey struct {
	config.TypeKey
	Stage string
}

// Count calls do with the counts of a key. The first one after Take takes a kilobyte.
func (t *Times) Count(key TimesKey, do func(*TimesCounts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(t.countsOf(key))
}

// countsOf returns the counts of a key. The caller holds t.mu.
func (t *Times) countsOf(key TimesKey) *TimesCounts {
	c := t.counts[key]
	if c == nil {
		c = &TimesCounts{}
		if t.counts == nil {
			t.counts = map[TimesKey]*TimesCounts{}
		}
		t.counts[key] = c
	}
	return c
}

// Take returns the counts, and starts again from zero.
func (t *Times) Take() map[TimesKey]*TimesCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	t.counts = nil
	return counts
}

// CountStarted counts n tasks of a type that are sent, or handed out, by how long they were due.
// started returns the lease of the i-th task and when it was started.
func (s *Core) CountStarted(
	key config.TypeKey, n int, started func(i int) (*asyncflow.Lease, time.Time),
) {
	meter := s.Config.Meter.Type(key)
	s.Times.mu.Lock()
	defer s.Times.mu.Unlock()
	var stage string
	var counts *TimesCounts // of the stage
	for i := range n {
		l, at := started(i)
		if l.DueAt.IsZero() {
			continue
		}
		if counts == nil || stage != l.Stage {
			stage = l.Stage
			counts = s.Times.countsOf(TimesKey{key, stage})
		}
		wait := max(0, at.Sub(l.DueAt))
		counts.Add(wait)
		meter.Started(stage, wait)
	}
}

// countEnd counts the time from the submit of a task to its end, unless it was cancelled: nobody
// waited for that.
func (s *Core) countEnd(key config.TypeKey, settled *asyncflow.Settlement, now time.Time) {
	final := settled.Verdict.Final()
	created := settled.Lease.CreatedAt
	if final == "" || final == asyncflow.StatusCancelled || created.IsZero() {
		return
	}
	took := max(0, now.Sub(created))
	s.Times.Count(TimesKey{key, ""}, func(c *TimesCounts) { c.Add(took) })
}

// countAttempt counts how long an attempt had a worker, if the worker ended it. The length of any
// other attempt says nothing of the work.
func (s *Core) countAttempt(key config.TypeKey, settled *asyncflow.Settlement) {
	switch settled.Outcome.Kind {
	case asyncflow.OutcomeDone, asyncflow.OutcomeFailed, asyncflow.OutcomeRejected,
		asyncflow.OutcomeSnoozed:
		took := settled.Outcome.Duration
		s.Times.Count(TimesKey{key, settled.Lease.Stage}, func(c *TimesCounts) {
			c.Attempts++
			c.Busy += took
		})
	}
}
