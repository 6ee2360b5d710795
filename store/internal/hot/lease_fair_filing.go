package hot

import (
	"slices"

	"github.com/asyncflow/asyncflow"
)

// The turn belongs to the keys with a started task. A lease that only files tasks, as their stages
// are without capacity, keeps it. While there is capacity in other stages, keys behind the filed
// ones may offer tasks for them. So a lease deals on past the tasks that it files, and if it still
// starts nothing, the next lease of the node looks further on. As soon as other stages have
// capacity, it looks from the turn again.

// filing is how far the leases of a node came that only filed tasks.
type filing struct {
	last   turn     // the turn that they kept
	closed []string // the stages without capacity
	at     turn     // where the next lease goes on
}

// start returns the turn after which a lease looks for keys.
func (f filing) start(last turn, closed []string) turn {
	if len(f.closed) > 0 && f.last == last && slices.Equal(f.closed, closed) {
		return f.at
	}
	return last
}

// open counts the tasks in stages with capacity; all count if there is none anywhere.
func (f *fairTake) open(found []Candidate) (n int) {
	if f.saturated {
		return len(found)
	}
	for _, c := range found {
		if !slices.Contains(f.closed, c.Stage) {
			n++
		}
	}
	return n
}

// onlyFiled reports whether a lease starts nothing and keeps the turn. Keys that their own limits
// block are passed, unless the lease saw all due tasks.
func (f *fairTake) onlyFiled(found []Candidate) bool {
	for _, c := range found {
		if c.Blocked == "" {
			return false
		}
	}
	passes := func(c Candidate) bool { return c.Blocked == asyncflow.WaitFlow }
	return f.saturated || f.seen || len(f.closed) > 0 && !slices.ContainsFunc(found, passes)
}

// noteBeside remembers the last turn beside the walk: that of the last task that was started.
func (f *fairTake) noteBeside(leases []asyncflow.Lease) {
	m := &f.memory.beside
	if len(f.beside) == 0 {
		return
	}
	started := map[int64]bool{}
	for _, l := range leases {
		started[l.ID.Number] = true
	}
	for _, c := range slices.Backward(f.beside) {
		if started[c.ID.Number] {
			m.last, m.filing = c.turn, filing{}
			return
		}
	}
	m.filing = filing{}
	if !f.saturated {
		m.filing = filing{m.last, f.closed, f.beside[len(f.beside)-1].turn}
	}
}
