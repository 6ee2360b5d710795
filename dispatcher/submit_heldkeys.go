package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// heldKeys keeps submits whose idempotency keys other transactions hold, such as a transaction that
// submits by SQL and stays open. It tries them again, apart from all others and without waiting for
// a key, in one batch of a type at a time, until heldPatience is over. New submits with the same
// keys join them.
type heldKeys struct {
	c       *Committer
	mu      sync.Mutex
	queues  map[store.TypeKey]*heldQueue // of types with such submits
	pending sync.WaitGroup               // for the items
}

const (
	heldPatience = 2 * time.Second
	// heldPause is the pause before the next try.
	heldPause = 25 * time.Millisecond
	// heldMost and heldBytes bound the submits of a type that are kept. Further ones are refused at
	// once.
	heldMost  = 200
	heldBytes = 4 << 20
)

type heldQueue struct {
	items []heldItem
	bytes int
	keys  map[string]int // keys of the items, with the number of items that have it
}

type heldItem struct {
	*submission
	giveUp time.Time
}

func newHeldKeys(c *Committer) *heldKeys {
	return &heldKeys{c: c, queues: map[store.TypeKey]*heldQueue{}}
}

// join keeps the items with a key that a kept item has, and returns the others.
func (h *heldKeys) join(key store.TypeKey, items []*submission) []*submission {
	h.mu.Lock()
	q := h.queues[key]
	if q == nil {
		h.mu.Unlock()
		return items
	}
	var known, others []*submission
	for _, item := range items {
		if q.keys[item.Key.Name] > 0 {
			known = append(known, item)
		} else {
			others = append(others, item)
		}
	}
	h.mu.Unlock()
	h.put(key, known)
	return others
}

// put keeps as many items as the bounds allow, and refuses the others.
func (h *heldKeys) put(key store.TypeKey, items []*submission) {
	if len(items) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[key]
	if q == nil {
		q = &heldQueue{keys: map[string]int{}}
		h.queues[key] = q
		go h.run(key, q)
	}
	giveUp := time.Now().Add(heldPatience)
	for _, item := range items {
		if len(q.items) >= heldMost || q.bytes+item.size() > heldBytes {
			item.end(heldError(nil))
			continue
		}
		h.pending.Add(1)
		q.items, q.bytes = append(q.items, heldItem{item, giveUp}), q.bytes+item.size()
		q.keys[item.Key.Name]++
	}
}

// run tries the items of a type until none is left.
func (h *heldKeys) run(key store.TypeKey, q *heldQueue) {
	for {
		sleep(h.c.writing, heldPause)
		h.mu.Lock()
		batch := q.items
		if len(batch) == 0 {
			delete(h.queues, key)
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		h.try(key, q, slices.Clone(batch))
	}
}

// try tries items. It keeps those whose keys are still locked and whose time isn't over.
func (h *heldKeys) try(key store.TypeKey, q *heldQueue, batch []heldItem) {
	items := make([]*submission, len(batch))
	for i, item := range batch {
		items[i] = item.submission
	}
	still := map[*submission]bool{}
	for _, item := range h.c.insertKeyed(h.c.writing, key, items, true) {
		still[item] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	later := q.items[len(batch):] // these have come meanwhile
	q.items = nil
	for _, item := range batch {
		held := still[item.submission]
		if held && time.Now().Before(item.giveUp) {
			q.items = append(q.items, item)
			continue
		}
		if held {
			item.end(heldError(nil))
		}
		h.pending.Done()
		q.bytes -= item.size()
		if q.keys[item.Key.Name]--; q.keys[item.Key.Name] == 0 {
			delete(q.keys, item.Key.Name)
		}
	}
	q.items = append(q.items, later...)
}

// drain waits until no submit waits for its key.
func (h *heldKeys) drain() { h.pending.Wait() }
