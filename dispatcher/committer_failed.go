package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// failedWrites handles failed writes: the database may be unreachable, a table locked, some data
// refused, a lease lost, or a commit unconfirmed. It retries them by type and kind, apart from all
// other writes, until they succeed or time out. Later writes of the same type and kind wait
// meanwhile. So a failing type doesn't affect other types. If a table is locked, all writes of its
// tenant wait, see committer_locked.go.
type failedWrites struct {
	c       *Committer
	mu      sync.Mutex
	waiting map[kindKey]*waitingWrites
	locked  map[string]*waitingWrites // of tenants, see hold
	probes  chan struct{}             // one value for each try, see probe
}

// waitingWrites keeps the writes that wait for parts of their type and kind that are written apart.
type waitingWrites struct {
	parts   int
	writes  []*write
	sweepAt int // at this length, writes whose callers no longer wait are dropped
}

type kindKey struct {
	store.TypeKey
	kind kind
}

// kind is a kind of writes.
type kind int

const (
	inserts kind = iota
	extends
	settles
)

func (w *write) kind() kind {
	switch {
	case w.insert != nil:
		return inserts
	case w.extend != nil:
		return extends
	}
	return settles
}

const (
	// SubmitPatience bounds the tries to write a task, and to find out whether a commit happened,
	// from the time of the submit.
	SubmitPatience = 10 * time.Second
	// settlePatience bounds the tries to write settlements and extensions. After that the leases
	// run out and are rescued.
	settlePatience = time.Minute
	// The pause between two tries doubles from firstTry to lastTry.
	firstTry, lastTry = 10 * time.Millisecond, time.Second
)

func newFailedWrites(c *Committer) *failedWrites {
	return &failedWrites{c: c, waiting: map[kindKey]*waitingWrites{},
		locked: map[string]*waitingWrites{}, probes: make(chan struct{}, lockProbes)}
}

// divert keeps the writes that must wait for earlier ones, and returns the rest.
func (a *failedWrites) divert(batch []*write) []*write {
	batch = a.divertTypes(batch)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.locked) == 0 {
		return batch
	}
	return slices.DeleteFunc(batch, func(w *write) bool {
		return a.locked[w.key.Tenant].addIfWaiting(w)
	})
}

// divertTypes keeps the writes that must wait for earlier ones of their type and kind, and returns
// the rest.
func (a *failedWrites) divertTypes(batch []*write) []*write {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		return batch
	}
	return slices.DeleteFunc(batch, func(w *write) bool {
		return a.waiting[kindKey{w.key, w.kind()}].addIfWaiting(w)
	})
}

// addIfWaiting adds a write, and returns true, unless w is nil: then nothing waits.
func (w *waitingWrites) addIfWaiting(next *write) bool {
	if w == nil {
		return false
	}
	w.add(next)
	return true
}

// add adds a write, which waits for settlePatience at most. While the database hangs, callers try
// again and again; add drops their earlier tries.
func (w *waitingWrites) add(next *write) {
	switch until := time.Now().Add(settlePatience); {
	case next.settle != nil && next.settle.until.IsZero():
		next.settle.until = until
	case next.extend != nil && next.extend.until.IsZero():
		next.extend.until = until
	}
	if len(w.writes) >= w.sweepAt {
		w.writes = dropLate(w.writes)
		w.sweepAt = 2*len(w.writes) + commitMost
	}
	w.writes = append(w.writes, next)
}

// put retries a failed part by itself.
func (a *failedWrites) put(p *part) {
	if len(p.inserts) > 0 {
		a.apart(kindKey{p.key, inserts}, func() { a.insert(p) })
	}
	if len(p.extends) > 0 {
		a.apart(kindKey{p.key, extends}, func() { a.extend(p) })
	}
	if len(p.settles) > 0 {
		a.apart(kindKey{p.key, settles}, func() { a.settle(p) })
	}
}

// apart runs do in a goroutine, and then queues the writes that came meanwhile.
func (a *failedWrites) apart(key kindKey, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := a.waiting[key]
	if waiting == nil {
		waiting = &waitingWrites{}
		a.waiting[key] = waiting
	}
	waiting.parts++
	a.c.writes.AddPending(1) // drain waits for this, too
	go func() {
		defer a.c.writes.AddPending(-1)
		do()
		a.c.add(key.TypeKey, a.end(key, waiting)...)
	}()
}

// end ends a part that was written apart. After the last one of its type and kind, it returns the
// writes that waited.
func (a *failedWrites) end(key kindKey, waiting *waitingWrites) []*write {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting.parts--; waiting.parts > 0 {
		return nil
	}
	delete(a.waiting, key)
	return waiting.writes
}

// typeOf returns a part's type from the catalog.
func (a *failedWrites) typeOf(p *part) (*store.Type, error) {
	return a.c.store.Catalog.Type(p.key.Tenant, p.key.Type)
}

func (a *failedWrites) extend(p *part) {
	ctx, cancel := context.WithTimeout(a.c.writing, settlePatience)
	defer cancel()
	err := a.c.persist(ctx, "extend", p.key, isFinal, func() error {
		t, err := a.typeOf(p)
		if err != nil {
			return err
		}
		return a.c.store.ExtendAgain(ctx, t, extensions(p.extends))
	})
	a.c.extended(p, err)
}

func (a *failedWrites) settle(p *part) {
	ctx, cancel := context.WithTimeout(a.c.writing, settlePatience)
	defer cancel()
	for ; len(p.settles) > 0; p = settlesOf(p.key, p.repeated) {
		a.settleSome(ctx, p, p.settles)
	}
}

// settleSome settles leases. If Postgres refuses their data, it halves them until only the refused
// one fails.
func (a *failedWrites) settleSome(ctx context.Context, p *part, items []*ending) {
	halving(items, func(items []*ending) error {
		var t *store.Type
		err := a.c.persist(ctx, "settle", p.key, isFinal, func() (err error) {
			if t, err = a.typeOf(p); err != nil {
				return err
			}
			return a.c.store.SettleAgain(ctx, t, endings(items))
		})
		if err != nil {
			return err
		}
		a.c.start(t, a.c.settled(t, items))
		return nil
	}, func(items []*ending, err error) {
		for _, e := range items {
			e.fail(err)
		}
	})
}

func (a *failedWrites) insert(p *part) {
	ctx, cancel := context.WithDeadline(a.c.writing, lastUntil(p.inserts))
	defer cancel()
	a.c.insertApart(ctx, p.key, p.inserts, insertion{
		what: "submit", final: isFinal,
		insert: func(t *store.Type, items []*store.Insertion) error {
			return a.c.store.InsertAgain(ctx, t, items)
		},
		ended: func(t *store.Type, items []*submission) { a.c.start(t, inserted(items)) },
		failed: func(items []*submission, err error) {
			endAll(items, uncertain(err))
		},
	})
}

// isFinal reports whether another try would fail as well.
func isFinal(err error) bool {
	var known *asyncflow.Error
	ours := errors.As(err, &known) && known.Err == nil && known.Code != asyncflow.CodeUnavailable
	return ours || store.IsDataError(err) || store.IsRefused(err)
}

// persist runs one transaction until it commits, fails for good or ctx ends. do must be safe to
// repeat after a commit whose answer was lost. A tenant gets few tries at a time: each takes a hot
// connection, and there may be a thousand types in a tenant.
func (c *Committer) persist(
	ctx context.Context, what string, key store.TypeKey, final func(error) bool, do func() error,
) error {
	try := func() error {
		defer c.tenantSlots.Acquire(key.Tenant)()
		return do()
	}
	err := try()
	for pause := firstTry; err != nil && !final(err) && ctx.Err() == nil; {
		c.log.Warn("trying again", "what", what, "tenant", key.Tenant, "type", key.Type, "error",
			err)
		sleep.For(ctx, pause)
		pause = min(2*pause, lastTry)
		err = try()
	}
	return err
}
