package store

import (
	"context"
	"slices"
	"sync"
	"time"
)

// aside has submits whose keys other transactions hold, such as one that submits by SQL and
// stays open. They are tried again and again apart from all others, in one batch of a type at a
// time, which waits for none of the keys, until asidePatience is over. What comes with the same
// keys joins them.
type aside struct {
	ctx     context.Context
	store   *Store
	mu      sync.Mutex
	queues  map[TypeKey]*asideQueue // of types that have some
	pending sync.WaitGroup          // for the items
}

const (
	asidePatience = 2 * time.Second
	// asidePause is how long the next try waits.
	asidePause = 25 * time.Millisecond
	// asideMost and asideBytes bound what a type has aside. What is more is refused at once.
	asideMost  = 200
	asideBytes = 4 << 20
)

type asideQueue struct {
	items []asideItem
	bytes int
	keys  map[string]int // of the items, with how many have it
}

type asideItem struct {
	*submitItem
	until time.Time // when to give it up
}

func newAside(ctx context.Context, s *Store) *aside {
	return &aside{ctx: ctx, store: s, queues: map[TypeKey]*asideQueue{}}
}

// join puts those items aside whose keys some that are there have, and returns the others.
func (a *aside) join(key TypeKey, items []*submitItem) []*submitItem {
	a.mu.Lock()
	q := a.queues[key]
	if q == nil {
		a.mu.Unlock()
		return items
	}
	var known, others []*submitItem
	for _, item := range items {
		if q.keys[item.key.key] > 0 {
			known = append(known, item)
		} else {
			others = append(others, item)
		}
	}
	a.mu.Unlock()
	a.put(key, known)
	return others
}

// put puts items aside, as far as there is room.
func (a *aside) put(key TypeKey, items []*submitItem) {
	if len(items) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[key]
	if q == nil {
		q = &asideQueue{keys: map[string]int{}}
		a.queues[key] = q
		go a.run(key, q)
	}
	until := time.Now().Add(asidePatience)
	for _, item := range items {
		if len(q.items) >= asideMost || q.bytes+item.size() > asideBytes {
			item.refuse()
			continue
		}
		a.pending.Add(1)
		q.items, q.bytes = append(q.items, asideItem{item, until}), q.bytes+item.size()
		q.keys[item.key.key]++
	}
}

// refuse tells an item that its key is held.
func (item *submitItem) refuse() {
	item.result.Err = heldError(nil)
	item.call.done(1)
}

// run tries the items of a type until there are none.
func (a *aside) run(key TypeKey, q *asideQueue) {
	for {
		sleep(a.ctx, asidePause)
		a.mu.Lock()
		batch := q.items
		if len(batch) == 0 {
			delete(a.queues, key)
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		a.try(key, q, slices.Clone(batch))
	}
}

// try tries items, and keeps those whose keys are still held and whose time is not over.
func (a *aside) try(key TypeKey, q *asideQueue, batch []asideItem) {
	items := make([]*submitItem, len(batch))
	for i, item := range batch {
		items[i] = item.submitItem
	}
	still := map[*Submitted]*submitItem{} // one that went to another roll is a copy
	for _, item := range a.store.writeKeys(a.ctx, key, items, true) {
		still[item.result] = item
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	later := q.items[len(batch):] // which have come meanwhile
	q.items = nil
	for _, item := range batch {
		if held := still[item.result]; held != nil && time.Now().Before(item.until) {
			q.items = append(q.items, asideItem{held, item.until})
			continue
		} else if held != nil {
			held.refuse()
		}
		a.pending.Done()
		q.bytes -= item.size()
		if q.keys[item.key.key]--; q.keys[item.key.key] == 0 {
			delete(q.keys, item.key.key)
		}
	}
	q.items = append(q.items, later...)
}

// drain waits until nothing is aside any more.
func (a *aside) drain() { a.pending.Wait() }
