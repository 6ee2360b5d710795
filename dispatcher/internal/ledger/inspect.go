package ledger

// This file has what tests of the dispatcher need to see and to set.

import "github.com/asyncflow/asyncflow/store"

// Counts are what a ledger counts of all types together.
type Counts struct {
	Bytes   int // of the contexts and outputs of tasks in flight
	Waiting int // asks for new tasks that wait for capacity
	Types   int // with data that the ledger keeps
}

// Counts returns what the ledger counts now.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Counts{Bytes: l.bytes, Types: max(len(l.types), l.quick.Len())}
	for _, queue := range l.waiting {
		for _, w := range queue {
			if w.ask.New {
				c.Waiting++
			}
		}
	}
	return c
}

// Leasing returns how many tasks of a type are in flight whose leases aren't committed yet.
func (l *Ledger) Leasing(key store.TypeKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.types[key]; u != nil {
		return u.leasing
	}
	return 0
}

// Occupy takes capacity for n tasks of a type, whether or not there is any.
func (l *Ledger) Occupy(key store.TypeKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserve(Ask{Type: key}, n)
}

// ForgetDurations makes the ledger forget how long deliveries of a type took.
func (l *Ledger) ForgetDurations(key store.TypeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage(key).meanDuration = 0
}
