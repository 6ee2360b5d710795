package governance

import (
	"time"

	"github.com/asyncflow/asyncflow/store"
)

const (
	// longestQuietRolls is the longest time for which a node leaves alone the rolls of a tenant
	// with tasks that come and go, since none can become full meanwhile. A busy type gets tables
	// of its own that much later.
	longestQuietRolls = time.Minute
	// mostTasks is more tasks a second than a table set gets.
	mostTasks = 50_000
)

// withLiveTasks returns in how many cleared rolls there are live tasks, as far as is known. No step
// of them can be taken before such a task goes on, which is news of the tenant: a task may wait for
// a year.
func withLiveTasks(rolls []store.Roll) (n int) {
	for _, r := range rolls {
		if r.ReadyDropped && r.IdleSince.IsZero() {
			n++
		}
	}
	return n
}

// fullAt returns when the open roll of a table set is full at the earliest.
func (j *rollJob) fullAt(set *store.TableSet, open store.Roll) time.Time {
	most, _ := j.store.Catalog.RollSize(set)
	room := max(0, most-open.MaxTasks)
	return j.store.Clock.Now().Add(time.Duration(room) * time.Second / mostTasks)
}

// restUntil returns when the next step of a set's rolls is due if no task comes or goes; zero:
// never. ok is false if one may be due at any time.
func (j *rollJob) restUntil(set *store.TableSet, rolls []store.Roll) (at time.Time, ok bool) {
	open := rolls[len(rolls)-1]
	closed := rolls[:len(rolls)-1]
	if set.Closed {
		closed = rolls
	} else if _, age := j.store.Catalog.RollSize(set); open.MaxTasks > 0 {
		at = open.OpenedAt.Add(age)
	}
	if !set.Closed && j.awaitsSearch(set) {
		if soon := open.OpenedAt.Add(searchAfter); at.IsZero() || soon.Before(at) {
			at = soon
		}
	}
	for i, r := range closed {
		if !r.ReadyDropped {
			return at, false
		}
		kept := j.store.Catalog.Retention(set, r.Position)
		old := r.TrimAt // of its oldest tasks that may go
		switch {
		case i == 0 && !r.IdleSince.IsZero():
			old = earlier(old, r.IdleSince.Add(kept))
		case !r.RemainingSince.IsZero():
			old = earlier(old, r.RemainingSince.Add(store.CompactAfter(kept)))
		}
		at = earlier(at, old)
	}
	return at, true
}

// earlier returns the earlier one of two times; a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
