package news

import (
	"sync"
	"sync/atomic"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Watchers are notified after this node changes a task that they follow. While nobody follows a
// task, a change costs one atomic load.
type Watchers struct {
	Following atomic.Int32
	mu        sync.Mutex
	waiters   map[taskKey][]chan struct{}
}

type taskKey struct {
	config.TypeKey
	number int64
}

// NewWatchers returns the watchers of a node: none yet.
func NewWatchers() *Watchers { return &Watchers{waiters: map[taskKey][]chan struct{}{}} }

// Follow returns a channel with an entry if this node changed the task since the last entry was
// taken, and a function that ends it.
func (w *Watchers) Follow(key config.TypeKey, number int64) (<-chan struct{}, func()) {
	k := taskKey{key, number}
	ch := make(chan struct{}, 1)
	w.Following.Add(1)
	w.mu.Lock()
	w.waiters[k] = append(w.waiters[k], ch)
	w.mu.Unlock()
	return ch, func() { w.unfollow(k, ch) }
}

func (w *Watchers) unfollow(k taskKey, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Following.Add(-1)
	list := w.waiters[k]
	for i, other := range list {
		if other == ch {
			w.waiters[k] = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(w.waiters[k]) == 0 {
		delete(w.waiters, k)
	}
}

// Tell notifies the watchers of a task. Call it after the change is committed.
func (w *Watchers) Tell(key config.TypeKey, number int64) {
	if w.Following.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.waiters[taskKey{key, number}] {
		select {
		case ch <- struct{}{}:
		default: // it has an entry that was not taken yet
		}
	}
}
