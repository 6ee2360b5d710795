package store

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Receiver is the dispatcher of this node, as far as it takes new tasks over while they
// are submitted. They get their lease with their row, and never wait in ready.
type Receiver interface {
	// Await waits, while it is worth while, for room for as many new tasks of a type as due
	// says, the first of which came at a time.
	Await(t *Type, due func() int, since time.Time)
	// Reserve keeps room for the first of n new tasks of a type that are due, in their
	// order, and returns for how many. It is 0 when others of the type may be due. It may
	// wait for room, but not long after a time; not at all if that is zero.
	Reserve(t *Type, n int, since time.Time) int
	// MayLinger tells whether so many attempts that have ended may wait to be written down
	// with more: others are under way, and there are plenty of slots, which these take, too.
	MayLinger(ended int) bool
	// Receive hands over what was leased in that room, durably. What is left of the room is
	// free again.
	Receive(t *Type, room int, leases []asyncflow.Lease)
}

// HandTo names who takes new tasks over. Call it before tasks are submitted.
func (s *Store) HandTo(r Receiver) { s.receiver = r }

// handoff is the part of a batch of new tasks that goes to the receiver; nil is none.
type handoff struct {
	s      *Store
	t      *Type
	due    time.Time // by when tasks were due
	now    time.Time // when the leases began
	room   int
	last   *submitItem // the last one in order that has a place
	leases []asyncflow.Lease
}

// awaitRoom waits for room for the new tasks of a batch that is still growing.
func (s *Store) awaitRoom(key TypeKey, batch func() []*submitItem) {
	t, err := s.Catalog.Type(key.Tenant, key.Type)
	if s.receiver == nil || err != nil { // the latter shows when they are inserted
		return
	}
	s.receiver.Await(t, func() int {
		n, _ := dueOf(batch(), s.Clock.Now())
		return n
	}, batch()[0].created)
}

// dueOf returns how many of a batch are due, and when the first of the batch came.
func dueOf(items []*submitItem, now time.Time) (n int, since time.Time) {
	since = now
	for _, item := range items {
		if canHandOff(item, now) {
			n++
		}
		if item.created.Before(since) {
			since = item.created
		}
	}
	return n, since
}

// handOff asks the receiver for room for those of a batch that are due; patiently, it may
// wait for that. end must be called when it is known what became of the batch.
func (s *Store) handOff(t *Type, items []*submitItem, patiently bool) *handoff {
	if s.receiver == nil {
		return nil
	}
	now := s.Clock.Now() // the batch may have been tried before, or waited for keys
	n, since := dueOf(items, now)
	if n == 0 {
		return nil
	}
	if !patiently {
		since = time.Time{}
	}
	h := &handoff{s: s, t: t, due: now, room: s.receiver.Reserve(t, n, since), now: s.Clock.Now()}
	if h.room == 0 {
		return nil
	}
	due := slices.DeleteFunc(slices.Clone(items), func(item *submitItem) bool { return !canHandOff(item, now) })
	slices.SortFunc(due, inOrder)
	due = due[:min(h.room, n)]
	h.last = due[len(due)-1]
	h.lease(due)
	return h
}

// canHandOff tells whether a task is due and nothing but room is asked of it.
func canHandOff(item *submitItem, now time.Time) bool {
	return item.verdict.Kind == asyncflow.Retry && item.flowKey == "" && !item.verdict.OrderTime.After(now)
}

func inOrder(a, b *submitItem) int {
	return cmp.Or(a.verdict.OrderTime.Compare(b.verdict.OrderTime), cmp.Compare(a.id, b.id))
}

func (h *handoff) lease(items []*submitItem) {
	h.leases = make([]asyncflow.Lease, len(items))
	for i, item := range items {
		l := asyncflow.Lease{ID: asyncflow.TaskID{Type: h.t.Name, Number: item.id}, Seq: 1,
			OrderTime: item.verdict.OrderTime, Context: item.context}
		l.Stage, l.Attempt = h.t.Place(item.verdict.Stage, item.verdict.Attempt)
		if item.options != nil {
			if err := json.Unmarshal([]byte(*item.options), &l.Options); err != nil {
				panic(err) // optionsText made it
			}
		}
		h.leases[i] = l
	}
	hold(h.leases, h.t, h.now)
}

// has tells whether an item of the batch is handed off.
func (h *handoff) has(item *submitItem) bool {
	return h != nil && canHandOff(item, h.due) && inOrder(item, h.last) <= 0
}

// end hands the leases over, unless the batch failed. If it was committed after all, they
// run out and are rescued.
func (h *handoff) end(err error) {
	if h == nil {
		return
	}
	h.s.Wakeups.Announce(h.t.Key(), h.leases[0].Until) // for governance, which looks then
	if err != nil {
		h.leases = nil
	}
	h.s.moved(h.t.Key(), len(h.leases))
	for _, l := range h.leases {
		h.s.watched.tell(h.t.Key(), l.ID.Number)
	}
	h.s.receiver.Receive(h.t, h.room, h.leases)
}
