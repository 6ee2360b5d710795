package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Receiver is the dispatcher of this node, as far as it takes tasks over while they are
// submitted, or enter their next stage. They get their lease with their row, or where the one
// before ends, and don't wait in ready.
type Receiver interface {
	// Await waits, while it is worth while, for room for as many new tasks of a type as due
	// says, the first of which came at a time.
	Await(t *Type, due func() int, since time.Time)
	// Reserve keeps room for the first of n new tasks of a type that are due, in their
	// order, and returns for how many. It is 0 when others of the type may be due. It may
	// wait for room, but not long after a time; not at all if that is zero.
	Reserve(t *Type, n int, since time.Time) int
	// Keep keeps the room of n tasks of a type whose attempts have ended here for what they go
	// on with, and returns for how many. It is 0 when others of the type may be due. They give
	// their room back nonetheless, as soon as it is known what became of the batch.
	Keep(t *Type, n int) int
	// MayLinger tells whether so many attempts that have ended may wait to be written down
	// with more: others are under way, and there are plenty of slots, which these take, too.
	MayLinger(ended int) bool
	// Quiesce waits for the leases of a type that are under way, once it is paused; not
	// longer than ctx lasts.
	Quiesce(ctx context.Context, key TypeKey)
	// Receive hands over what was leased in room that was reserved, durably. What is left of
	// the room is free again.
	Receive(t *Type, room int, leases []asyncflow.Lease)
	// Resume is Receive for room that was kept.
	Resume(t *Type, room int, leases []asyncflow.Lease)
}

// quiesceTime bounds the wait for leases of a type that was paused.
const quiesceTime = 10 * time.Second

// quiesce waits for the leases of some types that are under way on this node, and began before
// they were paused: whatever is submitted from now on is not handed out here.
func (s *Store) quiesce(ctx context.Context, keys ...TypeKey) {
	if s.receiver == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quiesceTime)
	defer cancel()
	for _, key := range keys {
		s.receiver.Quiesce(ctx, key)
	}
}

// HandTo names who takes tasks over. Call it before tasks are submitted.
func (s *Store) HandTo(r Receiver) { s.receiver = r }

// handoff is the part of a batch, of new tasks or of settlements, that goes to the receiver;
// nil is none.
type handoff struct {
	s      *Store
	t      *Type
	due    time.Time // by when tasks were due
	now    time.Time // when the leases began
	room   int
	take   func(*Type, int, []asyncflow.Lease) // of the receiver
	last   place                               // of the last one in order that is handed off
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

// newHandoff returns the handoff of the first of n tasks that were due at a time, for as many
// as there is room; nil: there is none. end must be called when it is known what became of
// the batch.
func (s *Store) newHandoff(t *Type, due time.Time, n, room int, take func(*Type, int, []asyncflow.Lease)) *handoff {
	if room == 0 {
		return nil
	}
	return &handoff{s: s, t: t, due: due, now: s.Clock.Now(), room: room, take: take, leases: make([]asyncflow.Lease, 0, min(n, room))}
}

// handOff hands off new tasks that are due, as far as there is room. Patiently, it may wait
// for that.
func (s *Store) handOff(t *Type, items []*submitItem, patiently bool) *handoff {
	if s.receiver == nil || s.doubtful.Load() {
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
	h := s.newHandoff(t, now, n, s.receiver.Reserve(t, n, since), s.receiver.Receive)
	if h == nil {
		return nil
	}
	due := slices.DeleteFunc(slices.Clone(items), func(item *submitItem) bool { return !canHandOff(item, now) })
	slices.SortFunc(due, func(a, b *submitItem) int { return a.place().compare(b.place()) })
	for _, item := range due[:min(n, h.room)] {
		l := asyncflow.Lease{Seq: 1, Context: item.context}
		if item.options != nil {
			if err := json.Unmarshal([]byte(*item.options), &l.Options); err != nil {
				panic(err) // optionsText made it
			}
		}
		h.lease(l, item.place(), item.verdict)
	}
	return h.held()
}

// canHandOff tells whether a task is due and nothing but room is asked of it.
func canHandOff(item *submitItem, now time.Time) bool {
	return item.verdict.Kind == asyncflow.Retry && item.flowKey == "" && !item.verdict.OrderTime.After(now)
}

func (item *submitItem) place() place { return place{item.verdict.OrderTime, item.id} }

// handOn hands off tasks that have ended a stage and go on with the next one at once, as far
// as there is room.
func (s *Store) handOn(t *Type, items []settleItem) *handoff {
	if s.receiver == nil || len(t.Stages) == 1 || s.doubtful.Load() {
		return nil
	}
	now := s.Clock.Now()
	due := slices.DeleteFunc(slices.Clone(items), func(item settleItem) bool { return !canHandOn(t, item, now) })
	if len(due) == 0 {
		return nil
	}
	h := s.newHandoff(t, now, len(due), s.receiver.Keep(t, len(due)), s.receiver.Resume)
	if h == nil {
		return nil
	}
	slices.SortFunc(due, func(a, b settleItem) int { return a.place().compare(b.place()) })
	for _, item := range due[:min(len(due), h.room)] {
		l := asyncflow.Lease{Seq: item.Lease.Seq + 1, Options: item.Lease.Options, Context: item.nextContext()}
		h.lease(l, item.place(), item.Verdict)
	}
	return h.held()
}

// canHandOn tells whether a task goes on at once, nothing is asked of it but its slot, which it
// has, and what it goes on with is at hand.
func canHandOn(t *Type, item settleItem, now time.Time) bool {
	return item.held && item.Verdict.Kind == asyncflow.Advance && !item.Verdict.OrderTime.After(now) && t.FlowKeyOf(item.Lease.Options) == "" &&
		len(item.nextContext()) > 0 && t.Serves(item.Verdict.Stage)
}

func (item settleItem) place() place { return place{item.Verdict.OrderTime, item.Lease.ID.Number} }

// nextContext returns what a task goes on with, if it is at hand: the output of its stage, or
// else what that stage was sent with.
func (item settleItem) nextContext() json.RawMessage {
	if len(item.Outcome.Output) > 0 {
		return item.Outcome.Output
	}
	return item.Lease.Context
}

// lease adds the lease of a task, which is to be the last one in order by now.
func (h *handoff) lease(l asyncflow.Lease, p place, v asyncflow.Verdict) {
	l.ID, l.OrderTime = asyncflow.TaskID{Type: h.t.Name, Number: p.id}, p.at
	l.Stage, l.Attempt = h.t.Place(v.Stage, v.Attempt)
	h.leases, h.last = append(h.leases, l), p
}

// held sets how long the leases stand.
func (h *handoff) held() *handoff {
	hold(h.leases, h.t, h.now)
	return h
}

// has tells whether a new task of the batch is handed off.
func (h *handoff) has(item *submitItem) bool {
	return h != nil && canHandOff(item, h.due) && item.place().compare(h.last) <= 0
}

// hasSettled tells whether a settled task of the batch is handed off.
func (h *handoff) hasSettled(item settleItem) bool {
	return h != nil && canHandOn(h.t, item, h.due) && item.place().compare(h.last) <= 0
}

// end hands the leases over, unless the batch failed. If it was committed after all, they
// run out and are rescued.
func (h *handoff) end(err error) {
	if h == nil {
		return
	}
	until := slices.MinFunc(h.leases, func(a, b asyncflow.Lease) int { return a.Until.Compare(b.Until) }).Until
	h.s.Wakeups.Announce(h.t.Key(), until) // for governance, which looks then
	if h.s.doubt(err) != nil {
		h.leases = nil
	}
	h.s.moved(h.t.Key(), len(h.leases))
	for _, l := range h.leases {
		h.s.watched.tell(h.t.Key(), l.ID.Number)
	}
	h.take(h.t, h.room, h.leases)
}
