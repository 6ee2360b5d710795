package governance

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// sweep is the longest time for which a type is not looked at. It is less than Soon, so
// that a task which waits for a time is promoted before that, though nobody tells of it.
const sweep = asyncflow.Soon * 4 / 5

// attention keeps which task types are worth a look: of a thousand types most have
// nothing to do at a time, and a look at each every few seconds would cost more than
// that little is worth. Whatever puts a task into ready is told of, by NOTIFY from other
// nodes, and only from there a task gets a lease, or with its row, or where the lease before
// ends: both are told of, too. News that got lost are made good by the sweep.
type attention struct {
	all bool // there are no news from other nodes: all types are always looked at
	now func() time.Time

	mu    sync.Mutex
	heard map[store.TypeKey]bool      // something has happened since the last look
	ahead map[store.TypeKey]time.Time // something will, at a time that was told
	seen  map[store.TypeKey]sight
}

// sight is what was seen of a type.
type sight struct {
	store.Overview
	at    time.Time // when it was seen
	again time.Time // when it is to be looked at, whatever happens
}

func newAttention(s *store.Store) *attention {
	a := &attention{all: !s.Notified(), now: s.Clock.Now, heard: map[store.TypeKey]bool{}, ahead: map[store.TypeKey]time.Time{},
		seen: map[store.TypeKey]sight{}}
	s.Wakeups.Subscribe(a.hear, a.forget)
	return a
}

// hear takes in that a type is worth a look from a time on.
func (a *attention) hear(key store.TypeKey, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !at.After(a.now()) {
		a.heard[key] = true
	} else if known, ok := a.ahead[key]; !ok || at.Before(known) {
		a.ahead[key] = at
	}
}

// forget has every type looked at again: news may have been missed.
func (a *attention) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.seen)
}

// pick returns the names of those types of a tenant that are worth a look. What is heard
// of them from now on makes them so again. A type that goes on being worth it is looked at
// once in a while; at once, when a lease runs out, or at a time that was told.
func (a *attention) pick(types map[string]*store.Type, now time.Time, every time.Duration) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name, t := range types {
		seen, known := a.seen[t.Key()]
		at, told := a.ahead[t.Key()]
		told = told && !at.After(now)
		worth := a.all || a.heard[t.Key()] || seen.busy(t, now)
		if known && !told && !seen.runsOut(now) && !(worth && now.Sub(seen.at) >= every) {
			continue
		}
		names = append(names, name)
		delete(a.heard, t.Key())
		if told {
			delete(a.ahead, t.Key())
		}
	}
	return names
}

// runsOut reports whether a lease has run out, as far as was seen. Of leases that are made
// later there is news.
func (s sight) runsOut(now time.Time) bool { return !s.Lease.IsZero() && !now.Before(s.Lease) }

// busy reports whether there is, or was, something that may need governance.
func (s sight) busy(t *store.Type, now time.Time) bool {
	return s.runsOut(now) || !s.Ready.IsZero() || !now.Before(s.again) ||
		!s.Wait.IsZero() && s.Wait.Before(now.Add(asyncflow.Soon)) ||
		len(s.Held) > 0 && t.Limited(now) || len(served(t, s.Held, now)) > 0 || s.HeldKeys
}

// keep keeps what was seen of the types of a tenant that were picked; nothing, where
// the look failed. The sweeps of tenants are spread over some time.
func (a *attention) keep(tenant string, picked []string, overviews []store.Overview, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range picked {
		delete(a.seen, store.TypeKey{Tenant: tenant, Type: name})
	}
	again := now.Add(sweep - time.Duration(rand.Int64N(int64(sweep/4))))
	for _, o := range overviews {
		key := o.Type.Key()
		o.Type = nil // it gets old
		a.seen[key] = sight{o, now, again}
	}
}

// tidy forgets types that are gone.
func (a *attention) tidy(tenants map[string]map[string]*store.Type) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := func(key store.TypeKey) bool { return tenants[key.Tenant][key.Type] == nil }
	maps.DeleteFunc(a.seen, func(key store.TypeKey, _ sight) bool { return gone(key) })
	maps.DeleteFunc(a.heard, func(key store.TypeKey, _ bool) bool { return gone(key) })
	maps.DeleteFunc(a.ahead, func(key store.TypeKey, _ time.Time) bool { return gone(key) })
}

// overviews looks at those types of a tenant that are worth it, and were not looked at lately.
func (g *Governor) overviews(ctx context.Context, tenant string, every time.Duration) ([]store.Overview, error) {
	now := g.store.Clock.Now()
	names := g.attention.pick(g.store.Catalog.TypesOf(tenant), now, every)
	seen, err := g.store.Overviews(ctx, tenant, names)
	g.attention.keep(tenant, names, seen, now)
	return seen, err
}
