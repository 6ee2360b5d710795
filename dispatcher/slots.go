package dispatcher

import (
	"context"
	"sync"
	"time"
)

// slots count how many more tasks the node may hold.
type slots struct {
	mu    sync.Mutex
	free  int
	all   int
	freed chan struct{} // closed and replaced when slots are given back
}

// slotLinger is how long a leaser waits for more slots than a few: a lease costs
// nearly the same for 5 tasks as for 50.
const slotLinger = 2 * time.Millisecond

func newSlots(n int) *slots { return &slots{free: n, all: n, freed: make(chan struct{})} }

// take takes up to most slots: as soon as an eighth of all (or most) are free, or
// what is free after slotLinger. It returns 0 when ctx ends.
func (s *slots) take(ctx context.Context, most int) int {
	enough := min(most, max(s.all/8, 1))
	linger := time.NewTimer(slotLinger)
	defer linger.Stop()
	for {
		n, freed := s.tryTake(most, enough)
		if n > 0 {
			return n
		}
		select {
		case <-ctx.Done():
			return 0
		case <-freed:
		case <-linger.C:
			enough = 1
		}
	}
}

func (s *slots) tryTake(most, enough int) (int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free < enough {
		return 0, s.freed
	}
	n := min(s.free, most)
	s.free -= n
	return n, nil
}

// give gives slots back.
func (s *slots) give(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	close(s.freed)
	s.freed = make(chan struct{})
}

// rest returns how many slots are free.
func (s *slots) rest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// held returns how many slots are taken.
func (s *slots) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all - s.free
}
