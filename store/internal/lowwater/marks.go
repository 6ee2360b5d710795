package lowwater

import (
	"sync"
	"time"
)

// Marks are the low-water marks of all ready tables that this node leases from, by task
// type (K) and position. It is safe for concurrent use.
type Marks[K comparable] struct {
	start time.Time // monotonic zero

	mu    sync.Mutex
	types map[K]map[int]*lowWater // by position
}

// NewMarks returns no marks.
func NewMarks[K comparable]() *Marks[K] {
	return &Marks[K]{start: time.Now(), types: map[K]map[int]*lowWater{}}
}

// Scan is a lease from one ready table, or a look at its head.
type Scan struct {
	mu    *sync.Mutex
	start time.Time // monotonic zero
	mark  *lowWater
	looked
}

// Begin begins a lease of the rows that are due now.
func (m *Marks[K]) Begin(key K, position int, now time.Time) *Scan {
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
	return &Scan{mu: &m.mu, start: m.start, mark: w, looked: looked{
		mark: w.mark, from: w.begin(now, at), now: now, at: at,
	}}
}

// From returns the order_time at which the lease begins to look; zero: everywhere.
func (s *Scan) From() time.Time { return s.from }

// Persist says that the next lease looks where this one does, however often it fails.
func (s *Scan) Persist() { s.persists = true }

// Taken is called when the statement that takes the rows is done.
func (s *Scan) Taken() { s.took = time.Since(s.start) - s.at }

// Left says that rows may be left: last is the greatest order_time that the lease took, or
// that of the head it saw. Zero: nothing is left.
func (s *Scan) Left(last time.Time) { s.last = last }

// End ends the lease. It returns when the next one is worthwhile: next, unless a lease has
// to look for rows that nobody announced before then.
func (s *Scan) End(next time.Time, err error) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.Taken() // also if it failed before all statements were done
		s.mark.undone(s.looked)
		return next
	}
	s.mark.end(s.looked)
	if rest := s.mark.next(time.Since(s.start)); rest >= 0 {
		if at := s.now.Add(s.took + rest); next.IsZero() || at.Before(next) {
			return at
		}
	}
	return next
}

// Lower is called with the order_time from which on rows of a type were inserted.
func (m *Marks[K]) Lower(key K, order time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.types[key] {
		w.lower(order)
	}
}

// Reset is called when the node may have missed announcements of rows.
func (m *Marks[K]) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, positions := range m.types {
		for _, w := range positions {
			w.reset()
		}
	}
}

// Forget drops the marks of types that are gone.
func (m *Marks[K]) Forget(gone func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.types {
		if gone(key) {
			delete(m.types, key)
		}
	}
}
