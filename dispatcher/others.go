package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A node that takes requests would begin all of its new tasks itself, and nodes that only dispatch
// would be idle beside it. So it begins only its part of them at once, and leaves the rest in line.
// The other nodes are woken for them as ever, and this one only after their head start. What stands
// in line for the others doesn't keep further new tasks from beginning here. If the others don't
// take a task by then, this node takes it, and leaves nothing for a while.

const (
	// othersFirst is how long the tasks in line are left to the others. They hear of them within 50
	// ms, and lease at once if their capacity allows.
	othersFirst = 500 * time.Millisecond
	// keepTime is how long a node leaves nothing after it found what the others had not taken.
	keepTime = 5 * time.Second
	// fewTasks in flight are no load to share: a task that comes alone begins at once.
	fewTasks = 8
)

// others is what a node leaves to nodes that only dispatch.
type others struct {
	mu      sync.Mutex
	part    float64   // of a task that this node is still to begin itself
	keeping time.Time // until then nothing is left to them
}

// few returns how many tasks in flight a node keeps to itself.
func (d *Dispatcher) few() int { return min(fewTasks, d.cfg.Concurrency/8) }

// leaves reports whether this node leaves tasks to others, and its own part of them.
func (d *Dispatcher) leaves(now time.Time) (part float64, leaves bool) {
	part = d.store.OwnShare()
	if part == 1 || d.cfg.Poll > 0 { // the others would not hear of them
		return 1, false
	}
	d.others.mu.Lock()
	defer d.others.mu.Unlock()
	return part, !now.Before(d.others.keeping)
}

// ownPart returns how many of n new tasks this node should begin itself.
func (d *Dispatcher) ownPart(n int, now time.Time) int {
	part, leaves := d.leaves(now)
	if !leaves {
		return n
	}
	few := min(n, max(0, d.few()-d.ledger.Present()))
	d.others.mu.Lock()
	defer d.others.mu.Unlock()
	d.others.part += part * float64(n-few)
	own := int(d.others.part)
	d.others.part -= float64(own)
	return few + own
}

// wakeTime returns when this node looks for tasks that are due at a time.
func (d *Dispatcher) wakeTime() func(due time.Time) time.Time {
	now := d.store.Clock.Now()
	_, leaves := d.leaves(now)
	if !leaves || d.ledger.Present() < d.few() {
		return func(due time.Time) time.Time { return due }
	}
	return func(due time.Time) time.Time {
		if due.Before(now) {
			due = now
		}
		return due.Add(othersFirst)
	}
}

// noteLeft looks for tasks among leases that the others didn't take during their head start.
func (d *Dispatcher) noteLeft(t *store.Type, leases []asyncflow.Lease, now time.Time) {
	if _, leaves := d.leaves(now); !leaves || d.standsInLine(t) {
		return
	}
	if !slices.ContainsFunc(leases, func(l asyncflow.Lease) bool { return wasLeft(l, now) }) {
		return
	}
	d.others.mu.Lock()
	defer d.others.mu.Unlock()
	d.others.keeping = now.Add(keepTime)
}

// wasLeft reports whether others could take a task, and did not. A task may also wait for its flow
// key, for its endpoint, or for another attempt.
func wasLeft(l asyncflow.Lease, now time.Time) bool {
	return l.Options.FlowKey == "" && l.Endpoint == "" && l.Attempt == 1 &&
		!l.DueAt.IsZero() && now.Sub(l.DueAt) >= othersFirst
}
