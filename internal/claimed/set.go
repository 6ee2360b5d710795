// Package claimed keeps a program's claims in a stage: the program works on some, and others go on
// elsewhere. A call for more names them all, so that no claim comes twice.
package claimed

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Set is the claims of one stage. One goroutine calls WaitForCapacity and Take; the other methods
// are safe for concurrent use.
type Set struct {
	most    int
	open    func(ctx context.Context, id, token string) bool
	allOpen func()

	mu    sync.Mutex
	seqs  map[string]int // of all claims, by task
	later []openClaim    // claims that go on elsewhere; the first one is the next to ask about
	freed chan struct{}  // gets a value after a change
}

// openClaim is a claim; its work goes on elsewhere.
type openClaim struct{ id, token string }

const (
	// askPause is how long a full set waits before it asks about more claims, and askAtOnce is
	// about how many.
	askPause  = time.Second
	askAtOnce = 20
)

// New returns a set with a capacity of most claims. When the set is full, it asks open about the
// claims that go on elsewhere, one after the other. If all are still open, it calls allOpen.
func New(most int, open func(ctx context.Context, id, token string) bool, allOpen func()) *Set {
	return &Set{most: most, open: open, allOpen: allOpen, seqs: map[string]int{},
		freed: make(chan struct{}, 1)}
}

// Take adds a claim. It returns false if the claim is known. Another attempt of a task replaces the
// claim of the task that went on elsewhere.
func (s *Set) Take(id string, seq int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.seqs[id]
	isIt := func(e openClaim) bool { return e.id == id }
	if known && last != seq && slices.ContainsFunc(s.later, isIt) {
		s.later = slices.DeleteFunc(s.later, isIt)
		known = false
	}
	if !known {
		s.seqs[id] = seq
	}
	return !known
}

// End drops a claim that was worked on.
func (s *Set) End(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seqs, id)
	s.change()
}

// Later notes that the work on a claim goes on elsewhere. The token is that of its callback.
func (s *Set) Later(id, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, openClaim{id, token})
	s.change()
}

// IDs returns the tasks of all claims.
func (s *Set) IDs() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.seqs {
		all = append(all, id)
	}
	return all
}

// WaitForCapacity waits until fewer than atOnce claims are worked on, and the set isn't full. It
// returns how many more may be taken; 0: ctx is over.
func (s *Set) WaitForCapacity(ctx context.Context, atOnce int) int {
	asked, reported := 0, false
	for ctx.Err() == nil {
		s.mu.Lock()
		later := len(s.later)
		busy := len(s.seqs) - later
		free := min(atOnce-busy, s.most-len(s.seqs))
		s.mu.Unlock()
		switch {
		case free > 0:
			return free
		case busy >= atOnce || later == 0:
			s.wait(ctx, nil)
			continue
		case asked >= later:
			if !reported {
				s.allOpen()
				reported = true
			}
			s.wait(ctx, time.After(askPause))
		}
		asked += s.ask(ctx, min(later, askAtOnce))
	}
	return 0
}

// ask asks about the first n claims elsewhere. It drops ended claims, and puts open ones last.
func (s *Set) ask(ctx context.Context, n int) int {
	for range n {
		s.mu.Lock()
		// Take and WaitForCapacity, which shorten the list, are called by one goroutine
		one := s.later[0]
		s.mu.Unlock()
		open := s.open(ctx, one.id, one.token)
		s.mu.Lock()
		s.later = s.later[1:]
		if open {
			s.later = append(s.later, one)
		} else {
			delete(s.seqs, one.id)
		}
		s.mu.Unlock()
	}
	return n
}

func (s *Set) wait(ctx context.Context, timer <-chan time.Time) {
	select {
	case <-s.freed:
	case <-timer:
	case <-ctx.Done():
	}
}

// change wakes WaitForCapacity. mu must be locked.
func (s *Set) change() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
