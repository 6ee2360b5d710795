package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// heldKeys keeps submits whose idempotency keys another transaction holds: a batch on another node,
// or a submit by SQL that stays open. heldKeys tries the submits again, apart from all other
// writes, in one batch of a type at a time, until heldPatience is over and each had leastTries. The
// first tries wait for keys in their order, as another batch soon ends; later tries don't wait. New
// submits with the same keys join them. A try meets only so many locked keys, and begins with the
// keys that no try reached.
type heldKeys struct {
	c        *Committer
	patience time.Duration // heldPatience

	mu      sync.Mutex
	queues  map[store.TypeKey]*heldQueue // of types with such submits
	pending sync.WaitGroup               // for the items
}

const (
	heldPatience = 2 * time.Second
	// heldPause is the pause before the next try.
	heldPause = 25 * time.Millisecond
	// heldMost and heldBytes bound the keys and the submits of a type that are kept. Further ones
	// are refused at once. A submit counts as itemBytes more than its context.
	heldMost  = 2000
	heldBytes = 16 << 20
	itemBytes = 1 << 10
	// heldTries is how many tries of a submit wait for its key. leastTries is how many tries it
	// gets in any case: where the batch with its key takes longer than heldPatience, because the
	// machine is busy, tries take as much longer.
	heldTries  = 3
	leastTries = 10
	// heldRounds is how many transactions a try takes at most: each meets up to 10 locked keys.
	// unseenTries is how many tries a submit gets if all of them met other locked keys first: about
	// 400 of them. The tries end after unseenPatience.
	heldRounds     = 2
	unseenTries    = 20
	unseenPatience = SubmitPatience / 2
)

type heldQueue struct {
	items []heldItem
	bytes int
	keys  map[string]int // keys of the items, with the number of their items
}

type heldItem struct {
	*submission
	giveUp time.Time
	tries  int
	seen   bool // a try found its key locked
}

// goesOn reports whether an item gets another try.
func (i heldItem) goesOn(now time.Time) bool {
	early := i.tries < leastTries || now.Before(i.giveUp)
	unseen := !i.seen && i.tries < unseenTries &&
		now.Before(i.until.Add(unseenPatience-SubmitPatience))
	return early || unseen
}

func (i heldItem) size() int { return i.submission.size() + itemBytes }

func newHeldKeys(c *Committer) *heldKeys {
	return &heldKeys{c: c, patience: heldPatience, queues: map[store.TypeKey]*heldQueue{}}
}

// join keeps the items with the key of a kept item, and returns the remaining items.
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

// put keeps as many items as the bounds allow, and refuses the remaining ones.
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
	giveUp := time.Now().Add(h.patience)
	for _, item := range items {
		held := heldItem{submission: item, giveUp: giveUp}
		tooManyKeys := len(q.keys) >= heldMost && q.keys[item.Key.Name] == 0
		if tooManyKeys || q.bytes+held.size() > heldBytes {
			item.end(heldError(nil))
			continue
		}
		h.pending.Add(1)
		q.items = append(q.items, held)
		q.bytes += held.size()
		q.keys[item.Key.Name]++
	}
}

// run tries the items of a type until none is left.
func (h *heldKeys) run(key store.TypeKey, q *heldQueue) {
	for {
		sleep.For(h.c.writing, heldPause)
		h.mu.Lock()
		batch := q.items[:min(len(q.items), commitMost)]
		if len(batch) == 0 {
			delete(h.queues, key)
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		h.try(key, q, slices.Clone(batch))
	}
}

// try tries the first items. It keeps an item if its key is still locked and its time isn't over.
func (h *heldKeys) try(key store.TypeKey, q *heldQueue, batch []heldItem) {
	var ordered, unseen, seen []*submission
	for i, item := range batch {
		switch {
		case item.tries < heldTries:
			ordered = append(ordered, item.submission)
		case item.seen:
			seen = append(seen, item.submission)
		default:
			unseen = append(unseen, item.submission)
		}
		batch[i].tries++
	}
	held := h.c.insertKeyed(h.c.writing, key, ordered, store.KeysAgain)
	if len(unseen) == 0 {
		unseen, seen = seen, nil
	}
	held = append(held, h.insertApart(key, unseen)...)
	still := map[*submission]bool{}
	for _, item := range append(held, seen...) {
		still[item] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q.items = q.items[len(batch):] // some came meanwhile
	for _, item := range batch {
		held := still[item.submission]
		item.seen = item.seen || !item.Key.Unseen
		if held && item.goesOn(time.Now()) {
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
}

// insertApart inserts the items with free keys, and returns the remaining ones: with Key.Unseen if
// it hasn't come to their keys.
func (h *heldKeys) insertApart(key store.TypeKey, items []*submission) (held []*submission) {
	for range heldRounds {
		var unseen []*submission
		for _, item := range h.c.insertKeyed(h.c.writing, key, items, store.KeysApart) {
			if item.Key.Unseen {
				unseen = append(unseen, item)
			} else {
				held = append(held, item)
			}
		}
		if items = unseen; len(items) == 0 {
			break
		}
	}
	return append(held, items...)
}

// drain waits until no submit waits for its key.
func (h *heldKeys) drain() { h.pending.Wait() }
