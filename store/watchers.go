package store

import (
	"sync"
	"sync/atomic"
)

// finals tells those who wait for a task that it has become final on this node.
// While nobody waits it costs one atomic load a settlement.
type finals struct {
	waiting atomic.Int32
	mu      sync.Mutex
	waiters map[finalKey][]chan struct{}
}

type finalKey struct {
	TypeKey
	number int64
}

func newFinals() *finals { return &finals{waiters: map[finalKey][]chan struct{}{}} }

// await returns a channel that is closed when the task becomes final, and a
// function that gives it up.
func (f *finals) await(key TypeKey, number int64) (<-chan struct{}, func()) {
	k, ch := finalKey{key, number}, make(chan struct{})
	f.waiting.Add(1)
	f.mu.Lock()
	f.waiters[k] = append(f.waiters[k], ch)
	f.mu.Unlock()
	return ch, func() { f.giveUp(k, ch) }
}

func (f *finals) giveUp(k finalKey, ch chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting.Add(-1)
	list := f.waiters[k]
	for i, other := range list {
		if other == ch {
			f.waiters[k] = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(f.waiters[k]) == 0 {
		delete(f.waiters, k)
	}
}

func (f *finals) tell(key TypeKey, number int64) {
	if f.waiting.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := finalKey{key, number}
	for _, ch := range f.waiters[k] {
		close(ch)
	}
	delete(f.waiters, k)
}
