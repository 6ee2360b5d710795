package dispatcher

import (
	"context"
	"sync"
	"time"
)

// slots count how many more tasks the node may hold.
type slots struct {
	mu     sync.Mutex
	free   int
	all    int
	freed  chan struct{} // nil: nobody waits; closed when there are enough for one who does
	enough int           // for the one who waits for the fewest
}

// slotLinger is how long a leaser waits for more slots than a few: a lease costs
// nearly the same for 5 tasks as for 50.
const slotLinger = 2 * time.Millisecond

func newSlots(n int) *slots { return &slots{free: n, all: n} }

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
		if s.freed == nil {
			s.freed, s.enough = make(chan struct{}), enough
		}
		s.enough = min(s.enough, enough)
		return 0, s.freed
	}
	n := min(s.free, most)
	s.free -= n
	return n, nil
}

// give gives slots back.
func (s *slots) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.freed != nil && s.free >= s.enough {
		close(s.freed)
		s.freed = nil
	}
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
