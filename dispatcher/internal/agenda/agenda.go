package agenda

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// Agenda knows the time of the next lease of each task type. A leaser takes a type; no other leaser
// gets it until it is put back.
type Agenda[K comparable] struct {
	now   func() time.Time
	retry time.Duration

	mu      sync.Mutex
	entries map[K]*entry[K]
	heap    entryHeap[K]
	changed chan struct{} // closed and replaced when the head gets earlier
}

type entry[K comparable] struct {
	key   K
	at    time.Time // of the next lease; zero: not on the heap
	after time.Time // no lease before this, even after a wake-up
	index int       // on the heap; -1: not on it
	taken bool
	fills time.Time // when a task was about to be put in line since it was taken; zero: none was
	empty bool      // the last lease found nothing due
	busy  time.Time // since (or from) when something may be due; zero: always
}

// New returns an empty agenda. now returns the database's time, and retry is after what time a type
// is leased that was about to get a task, if nobody wakes it.
func New[K comparable](now func() time.Time, retry time.Duration) *Agenda[K] {
	return &Agenda[K]{
		now:     now,
		retry:   retry,
		entries: map[K]*entry[K]{},
		changed: make(chan struct{}),
	}
}

// Wake moves a type's next lease to at, if it is later than that.
func (a *Agenda[K]) Wake(key K, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[key]
	if e == nil {
		e = &entry[K]{key: key, index: -1}
		a.entries[key] = e
	}
	a.move(e, at)
}

// move makes an entry's time earlier. The caller holds a.mu.
func (a *Agenda[K]) move(e *entry[K], at time.Time) {
	if at.Before(e.after) {
		at = e.after
	}
	if !e.at.IsZero() && !at.Before(e.at) {
		return
	}
	e.at = at
	if e.empty {
		e.busy = at
		if now := a.now(); now.After(at) {
			e.busy = now
		}
	}
	switch {
	case e.taken: // Put will use it
		return
	case e.index < 0:
		heap.Push(&a.heap, e)
	default:
		heap.Fix(&a.heap, e.index)
	}
	if e.index == 0 {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// Next waits until a type is due, and takes the type.
func (a *Agenda[K]) Next(ctx context.Context) (K, bool) {
	var none K
	for {
		key, rest, changed, ok := a.head()
		if ok {
			return key, true
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return none, false
		}
	}
}

// head takes the first type if it is due. Otherwise it returns the time until then, and a channel
// that is closed when another type becomes first.
func (a *Agenda[K]) head() (K, time.Duration, chan struct{}, bool) {
	var none K
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.heap) == 0 {
		return none, time.Hour, a.changed, false
	}
	e := a.heap[0]
	if rest := e.at.Sub(a.now()); rest > 0 {
		return none, rest, a.changed, false
	}
	heap.Pop(&a.heap)
	e.taken = true
	e.empty = false
	e.at = time.Time{}
	e.fills = time.Time{}
	return e.key, 0, nil, true
}

// Put gives a type back. Its next lease is at a time (zero: when it is woken), but not before
// after.
func (a *Agenda[K]) Put(key K, at, after time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[key]
	e.taken = false
	e.after = after
	woken := e.at
	e.at = time.Time{}
	for _, t := range []time.Time{woken, at} {
		if !t.IsZero() {
			a.move(e, t)
		}
	}
}

// Drained records that nothing of a type was due, unless a task was about to be put in line
// meanwhile. The type must be with the caller.
func (a *Agenda[K]) Drained(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.entries[key]; e.fills.IsZero() {
		e.empty = true
	} else {
		e.busy = e.fills
	}
}

// Filling records that a due task is about to be put in line. If no wake-up follows, because the
// write failed, a lease is tried after a while.
func (a *Agenda[K]) Filling(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[key]
	now := a.now()
	switch {
	case e == nil || !e.fills.IsZero():
		return
	case e.empty:
		e.empty = false
		e.busy = now
	case e.taken:
		e.fills = now
	default:
		return
	}
	a.move(e, now.Add(a.retry))
}

// Idle reports whether nothing of a type is due, as far as this node knows. If something may be,
// busy is for how long.
func (a *Agenda[K]) Idle(key K) (idle bool, busy time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[key]
	if e == nil {
		return false, math.MaxInt64
	}
	now := a.now()
	switch {
	case e.empty && e.taken: // a leaser is about to check
		return false, 0
	case e.empty && (e.at.IsZero() || e.at.After(now)):
		return true, 0
	default:
		return false, now.Sub(e.busy)
	}
}

// Forget drops a deleted type. The caller must have taken it.
func (a *Agenda[K]) Forget(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
}

// ForgetAll drops the types that are gone and with no leaser.
func (a *Agenda[K]) ForgetAll(gone func(K) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, e := range a.entries {
		if e.taken || !gone(key) {
			continue
		}
		if e.index >= 0 {
			heap.Remove(&a.heap, e.index)
		}
		delete(a.entries, key)
	}
}

// Len returns the number of types that the agenda keeps.
func (a *Agenda[K]) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(len(a.entries), len(a.heap))
}

// entryHeap is a heap by time.
type entryHeap[K comparable] []*entry[K]

func (h entryHeap[K]) Len() int           { return len(h) }
func (h entryHeap[K]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entryHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *entryHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *entryHeap[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	e.index = -1
	*h = old[:len(old)-1]
	return e
}
