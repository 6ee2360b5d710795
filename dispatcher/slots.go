package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// slots count how many more tasks the node may hold.
type slots struct {
	mu     sync.Mutex
	free   int
	all    int
	freed  chan struct{} // nil: nobody waits; closed when there are enough for one who does
	enough int           // for the one who waits for the fewest

	gives int                        // how often some were given back
	short map[store.TypeKey]struct{} // types that wait for that
	wake  func(store.TypeKey)        // is called with each of them
}

// slotLinger is how long a leaser waits for more slots than a few: a lease costs
// nearly the same for 5 tasks as for 50.
const slotLinger = 2 * time.Millisecond

func newSlots(n int, wake func(store.TypeKey)) *slots {
	return &slots{free: n, all: n, short: map[store.TypeKey]struct{}{}, wake: wake}
}

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
	if most == 0 {
		return 0, nil
	}
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

// takeAhead takes slots that are about to be given back: until they are, fewer than none may
// be free.
func (s *slots) takeAhead(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free -= n
}

// give gives slots back.
func (s *slots) give(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.free += n
	s.gives++
	if s.freed != nil && s.free >= s.enough {
		close(s.freed)
		s.freed = nil
	}
	var short map[store.TypeKey]struct{}
	if len(s.short) > 0 {
		short, s.short = s.short, map[store.TypeKey]struct{}{}
	}
	s.mu.Unlock()
	for key := range short {
		s.wake(key)
	}
}

// given returns how often slots were given back.
func (s *slots) given() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gives
}

// await has a type woken when slots are given back that there was no room for: at once,
// if some were since it was looked at.
func (s *slots) await(key store.TypeKey, gives int) {
	s.mu.Lock()
	late := s.gives != gives
	if !late {
		s.short[key] = struct{}{}
	}
	s.mu.Unlock()
	if late {
		s.wake(key)
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
