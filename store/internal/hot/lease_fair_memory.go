package hot

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// fairMemory is what a node remembers of its leases of fair types. Without it, leases cost more and
// file tasks of the same keys again.
type fairMemory struct {
	mu  sync.Mutex
	all map[config.TypeKey]*fairType
}

// fairType is what a node remembers of one type.
type fairType struct {
	mu      sync.Mutex
	backlog bool // many tasks were due
	known   keyMarks
	keyless keylessSweep
	beside  fillTurns
	filing  filing
	// firstDue is the order_time of the first due task at the last lease, if tasks with a head
	// start go before the turns; zero: it isn't known.
	firstDue time.Time
}

// ofType returns what is remembered of a type.
func (m *fairMemory) ofType(key config.TypeKey) *fairType {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[config.TypeKey]*fairType{}
	}
	if m.all[key] == nil {
		m.all[key] = &fairType{}
	}
	return m.all[key]
}

// forget drops the types that are gone.
func (m *fairMemory) forget(gone func(config.TypeKey) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.all {
		if gone(key) {
			delete(m.all, key)
		}
	}
}
