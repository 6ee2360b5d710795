package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

const (
	// AdmitPatience is how long new tasks wait for capacity, and for the end of a line that just
	// began: tasks that go in line cost up to a third more. They don't wait if deliveries of their
	// type take longer than that, or if its line began longer ago.
	AdmitPatience = 100 * time.Millisecond
	// serveMost is the most types that serve tries when capacity is given back.
	serveMost = 64
)

// waiter waits for capacity.
type waiter struct {
	ask     Ask
	granted chan int // with a buffer for one
}

// Await takes capacity for up to a.N tasks, and returns for how many. If a.Least tasks are without
// it yet but will get it soon, it waits up to patience, and then takes what there is. New tasks of
// a type get capacity in the order of their arrival.
func (l *Ledger) Await(ctx context.Context, a Ask, patience time.Duration) int {
	l.mu.Lock()
	n := l.mostOnArrival(a)
	if n >= a.Least || patience <= 0 || !l.soon(a, n) {
		n = l.settleFor(a, n)
		l.mu.Unlock()
		return n
	}
	w := &waiter{a, make(chan int, 1)}
	l.enter(w)
	l.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case n := <-w.granted:
		return n
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.leave(w)
	if at < 0 {
		return <-w.granted
	}
	n = 0
	if at == 0 {
		n, _ = l.most(a)
	}
	n = l.settleFor(a, n)
	l.serve() // the waiters behind it
	return n
}

// mostOnArrival returns how many tasks an ask may get on arrival: new tasks don't overtake waiting
// ones of their type.
func (l *Ledger) mostOnArrival(a Ask) int {
	if a.New && len(l.waiting[a.Type]) > 0 {
		return 0
	}
	n, _ := l.most(a)
	return n
}

// settleFor takes capacity for n tasks. If n is 0, it marks the type to be woken later.
func (l *Ledger) settleFor(a Ask, n int) int {
	l.reserve(a, n)
	if n == 0 && !a.New {
		l.refused[a.Type] = struct{}{}
	}
	return n
}

// soon reports whether an ask that would get n tasks now should wait for more. A lease should if
// there is some capacity. New tasks should if all of them would get capacity at the end of the
// tasks in flight of their type, and if these are quick.
func (l *Ledger) soon(a Ask, n int) bool {
	u := l.usage(a.Type)
	switch empty, busy := l.line(a.Type); {
	case !a.New:
		return n > 0
	case !l.newAllowed, u.meanDuration > AdmitPatience, a.Limits.Type < l.capacity:
		return false
	case !empty:
		active := u.inFlight > 0 || a.Now.Sub(u.quick) < AdmitPatience
		return busy < AdmitPatience && active && l.later(a, u) > 0
	}
	return l.later(a, u) >= a.N
}

// later returns how many tasks an ask could get if no task of its type were in flight.
func (l *Ledger) later(a Ask, u *usage) int {
	ofTenant := l.tenants[a.Type.Tenant]
	free := l.free + u.inFlight
	n := min(a.Limits.Tenant-ofTenant+u.inFlight, typeRest(0, ofTenant-u.inFlight, free))
	bytes, has := l.bytesOf(u)
	n = min(n, int(bytesShare*(bytes+has)/(bytesShare+1)/u.mean()))
	if len(a.Endpoints) > 1 {
		n = min(n, shareRest(endpointShare, 0, free))
	}
	return n
}

// enter queues a waiter behind the other waiters of its type. A lease goes first: its tasks stand
// in line, so they came before all new ones.
func (l *Ledger) enter(w *waiter) {
	queue := l.waiting[w.ask.Type]
	at := len(queue)
	if !w.ask.New {
		at = 0
	}
	l.waiting[w.ask.Type] = slices.Insert(queue, at, w)
}

// leave removes a waiter, and returns how many were before it; less than 0: it was served.
func (l *Ledger) leave(w *waiter) int {
	queue := l.waiting[w.ask.Type]
	at := slices.Index(queue, w)
	if at >= 0 {
		l.shorten(w.ask.Type, slices.Delete(queue, at, at+1))
	}
	return at
}

func (l *Ledger) shorten(key store.TypeKey, queue []*waiter) {
	if len(queue) == 0 {
		delete(l.waiting, key)
		return
	}
	l.waiting[key] = queue
}

// Serve grants capacity to waiting asks after the end of a line.
func (l *Ledger) Serve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve()
}

// serve grants capacity to waiting asks, within a type in the order of their arrival. New tasks
// that can't expect more soon get what there is.
func (l *Ledger) serve() {
	seen := 0
	for key, queue := range l.waiting { // map order: begins at a random type
		if seen++; seen > serveMost || l.free <= 0 {
			return
		}
		served := 0
		for _, w := range queue {
			n, _ := l.most(w.ask)
			if n < w.ask.Least && (!w.ask.New || l.soon(w.ask, n)) {
				break
			}
			w.granted <- l.settleFor(w.ask, n)
			served++
		}
		if served > 0 {
			l.shorten(key, slices.Delete(queue, 0, served))
		}
	}
}

// signal wakes the callers of awaitQuiet: something is over.
func (l *Ledger) signal() {
	if l.quiet != nil {
		close(l.quiet)
		l.quiet = nil
	}
}

// awaitQuiet waits until holds returns true, or until ctx ends. Begun and Release trigger a check.
func (l *Ledger) awaitQuiet(ctx context.Context, holds func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !holds() && ctx.Err() == nil {
		if l.quiet == nil {
			l.quiet = make(chan struct{})
		}
		quiet := l.quiet
		l.mu.Unlock()
		select {
		case <-quiet:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// AwaitLeases waits until the leases of a type that are under way are done, or until ctx ends.
func (l *Ledger) AwaitLeases(ctx context.Context, key store.TypeKey) {
	l.awaitQuiet(ctx, func() bool { return l.types[key] == nil || l.types[key].leasing == 0 })
}

// AwaitEmpty waits until nothing is in flight.
func (l *Ledger) AwaitEmpty() {
	l.awaitQuiet(context.Background(), func() bool { return l.free == l.capacity })
}
