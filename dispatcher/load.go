package dispatcher

import (
	"sync"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// load bounds the memory for the contexts of the tasks that the node has under way, and for
// the outputs of those that have ended, or what they go on with, until that is written. How long they are shows once
// a task is leased or has ended: before, it is taken to be like those of its type lately. So
// what is under way may be over the bound by what some have above that average.
type load struct {
	most int

	mu     sync.Mutex
	bytes  int                       // of all contexts and outputs
	types  map[store.TypeKey]int     // of those of a type; without zeros
	coming map[store.TypeKey]int     // tasks for which room is reserved; without zeros
	mean   map[store.TypeKey]float64 // bytes of a task of a type lately: its context, or its output
}

const (
	// unknownContext is how many bytes a context of a type is taken to have of which there
	// were none.
	unknownContext = 64 << 10
	// loadShare is the part that a type gets of what others leave: four fifths, as of slots.
	loadShare = 4
)

func newLoad(most int) *load {
	return &load{most: most, types: map[store.TypeKey]int{}, coming: map[store.TypeKey]int{}, mean: map[store.TypeKey]float64{}}
}

// meanOf returns the bytes that a task of a type is taken to have. l.mu is held.
func (l *load) meanOf(key store.TypeKey) float64 {
	if mean, ok := l.mean[key]; ok {
		return mean
	}
	return unknownContext
}

// room returns how many more tasks of a type may be leased: one at least, if it has none
// and not all is taken.
func (l *load) room(key store.TypeKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, has := l.shares(key)
	room := int((loadShare*free - has) / (loadShare + 1) / l.meanOf(key))
	if has == 0 && (free > 0 || l.bytes == 0) {
		room = max(room, 1)
	}
	return max(0, room)
}

// roomLater returns how many tasks of a type there is room for once those have ended that
// it has now.
func (l *load) roomLater(key store.TypeKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	free, has := l.shares(key)
	return int(loadShare * (free + has) / (loadShare + 1) / l.meanOf(key))
}

// shares returns how many bytes are free, and how many a type has. l.mu is held.
func (l *load) shares(key store.TypeKey) (free, has float64) {
	free = float64(l.most - l.bytes)
	for other, n := range l.coming {
		free -= float64(n) * l.meanOf(other)
	}
	return free, float64(l.types[key]) + float64(l.coming[key])*l.meanOf(key)
}

// expect takes in that room for tasks of a type is reserved, or (n < 0) is not any more.
func (l *load) expect(key store.TypeKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserve(key, n)
}

// reserve is expect with l.mu held.
func (l *load) reserve(key store.TypeKey, n int) {
	if l.coming[key] += n; l.coming[key] == 0 {
		delete(l.coming, key)
	}
}

// begin takes in tasks that were leased in room that was reserved.
func (l *load) begin(key store.TypeKey, leases []asyncflow.Lease) {
	if len(leases) == 0 {
		return
	}
	sum := 0
	for i := range leases {
		sum += len(leases[i].Context)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserve(key, -len(leases))
	l.add(key, sum)
	l.learn(key, sum, len(leases))
}

// learn takes in how many bytes some tasks of a type had. l.mu is held.
func (l *load) learn(key store.TypeKey, bytes, tasks int) {
	mean := max(1, float64(bytes)/float64(tasks))
	if before, ok := l.mean[key]; ok && before > mean { // one that falls may rise again
		mean = (3*before + mean) / 4
	}
	l.mean[key] = mean
}

// answered takes in that so many bytes of tasks of a type that have ended are kept until they
// are written, their outputs or what they go on with, in place of their contexts.
func (l *load) answered(key store.TypeKey, tasks, contexts, kept int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(key, kept-contexts)
	if kept > contexts {
		l.learn(key, kept, tasks)
	}
}

// end takes in that so many bytes of a type are no longer needed.
func (l *load) end(key store.TypeKey, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(key, -bytes)
}

// add counts bytes. l.mu is held.
func (l *load) add(key store.TypeKey, bytes int) {
	l.bytes += bytes
	if l.types[key] += bytes; l.types[key] == 0 {
		delete(l.types, key)
	}
}

// forget drops what is known of a type that is gone.
func (l *load) forget(key store.TypeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mean, key)
}
