package store

import (
	"sync"
	"time"
)

// marks are the low-water marks of all ready tables that this node leases from.
type marks struct {
	start time.Time // monotonic zero

	mu    sync.Mutex
	types map[TypeKey]map[int]*lowWater // by position
}

func newMarks() *marks { return &marks{start: time.Now(), types: map[TypeKey]map[int]*lowWater{}} }

// scan is a lease from one ready table, or a look at its head.
type scan struct {
	marks *marks
	mark  *lowWater
	looked
}

// begin begins a lease of what is due now.
func (m *marks) begin(key TypeKey, position int, now time.Time) *scan {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.types[key][position]
	if w == nil {
		w = &lowWater{}
		if m.types[key] == nil {
			m.types[key] = map[int]*lowWater{}
		}
		m.types[key][position] = w
	}
	for earlier := range m.types[key] {
		if earlier < position-1 { // its table is gone
			delete(m.types[key], earlier)
		}
	}
	at := time.Since(m.start)
	return &scan{marks: m, mark: w, looked: looked{from: w.begin(now, at), now: now, at: at}}
}

// taken is called when the rows are.
func (s *scan) taken() { s.took = time.Since(s.marks.start) - s.at }

// end ends a lease; its last is set if there may be more. It returns when the next one is
// worth while: next, unless rows that nobody told of are to be looked for before.
func (s *scan) end(next time.Time, err error) time.Time {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if err != nil {
		s.mark.undone()
		return next
	}
	s.mark.end(s.looked)
	if rest := s.mark.next(time.Since(s.marks.start)); rest >= 0 {
		if at := s.now.Add(s.took + rest); next.IsZero() || at.Before(next) {
			return at
		}
	}
	return next
}

// lower is called with every order_time from which on rows of a type were inserted.
func (m *marks) lower(key TypeKey, order time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.types[key] {
		w.lower(order)
	}
}

// reset is called when news of rows may have been missed.
func (m *marks) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, positions := range m.types {
		for _, w := range positions {
			w.reset()
		}
	}
}
