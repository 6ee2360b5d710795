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

// sweep is the longest time between two visits of a type. It is less than Soon, so that a task
// that waits for a time is promoted before that time, although nobody announces it.
const sweep = asyncflow.Soon * 4 / 5

// attention knows which task types are worth a visit. Most of a thousand types have nothing to do
// at a time, so visiting each every few seconds would cost more than it gains.
//
// Nodes announce every task that becomes ready, to other nodes by NOTIFY. A task gets a lease from
// ready, together with its insert, or where its last lease ends; the latter two are announced as
// well. The sweep makes up for lost announcements.
type attention struct {
	all bool // other nodes announce nothing: every type is always visited
	now func() time.Time

	mu    sync.Mutex
	heard map[store.TypeKey]bool      // something has happened since the last visit
	ahead map[store.TypeKey]time.Time // something will happen, at the announced time
	seen  map[store.TypeKey]visit
}

// visit is what the last visit of a type found.
type visit struct {
	store.Overview
	at    time.Time // the time of the visit
	again time.Time // the time of the next visit, whatever happens
}

func newAttention(s *store.Store) *attention {
	a := &attention{
		all: !s.Notified(), now: s.Clock.Now,
		heard: map[store.TypeKey]bool{},
		ahead: map[store.TypeKey]time.Time{},
		seen:  map[store.TypeKey]visit{},
	}
	s.Wakeups.Subscribe(a.hear, a.forget)
	return a
}

// hear records that a type is worth a visit from a time on.
func (a *attention) hear(key store.TypeKey, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !at.After(a.now()) {
		a.heard[key] = true
	} else if known, ok := a.ahead[key]; !ok || at.Before(known) {
		a.ahead[key] = at
	}
}

// forget makes every type worth a visit, because announcements may have been missed.
func (a *attention) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.seen)
}

// pick returns the names of a tenant's types that are worth a visit now. A type that stays busy is
// picked again after every; at once if a lease has run out, or at an announced time.
func (a *attention) pick(
	types map[string]*store.Type, now time.Time, every time.Duration,
) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name, t := range types {
		seen, known := a.seen[t.Key()]
		at, announced := a.ahead[t.Key()]
		announced = announced && !at.After(now)
		worth := a.all || a.heard[t.Key()] || seen.busy(t, now)
		if known && !announced && !seen.runsOut(now) && !(worth && now.Sub(seen.at) >= every) {
			continue
		}
		names = append(names, name)
		delete(a.heard, t.Key())
		if announced {
			delete(a.ahead, t.Key())
		}
	}
	return names
}

// runsOut reports whether a lease that the visit found has run out. Later leases are announced.
func (v visit) runsOut(now time.Time) bool { return !v.Lease.IsZero() && !now.Before(v.Lease) }

// busy reports whether the type has, or had, something that may need governance.
func (v visit) busy(t *store.Type, now time.Time) bool {
	return v.runsOut(now) || !v.Ready.IsZero() || !now.Before(v.again) ||
		!v.Wait.IsZero() && v.Wait.Before(now.Add(asyncflow.Soon)) ||
		len(v.BlockedStages) > 0 && t.Limited(now) ||
		len(served(t, v.BlockedStages, now)) > 0 || v.BlockedKeys
}

// keep records a visit of the picked types of a tenant. overviews is empty if the visit failed.
// The next sweeps of tenants are spread over some time.
func (a *attention) keep(
	tenant string, picked []string, overviews []store.Overview, now time.Time,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range picked {
		delete(a.seen, store.TypeKey{Tenant: tenant, Type: name})
	}
	again := now.Add(sweep - time.Duration(rand.Int64N(int64(sweep/4))))
	for _, o := range overviews {
		key := o.Type.Key()
		o.Type = nil // it would become outdated
		a.seen[key] = visit{o, now, again}
	}
}

// tidy forgets types that no longer exist.
func (a *attention) tidy(tenants map[string]map[string]*store.Type) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := func(key store.TypeKey) bool { return tenants[key.Tenant][key.Type] == nil }
	maps.DeleteFunc(a.seen, func(key store.TypeKey, _ visit) bool { return gone(key) })
	maps.DeleteFunc(a.heard, func(key store.TypeKey, _ bool) bool { return gone(key) })
	maps.DeleteFunc(a.ahead, func(key store.TypeKey, _ time.Time) bool { return gone(key) })
}

// overviews visits those types of a tenant that attention picks.
func (g *Governor) overviews(
	ctx context.Context, tenant string, every time.Duration,
) ([]store.Overview, error) {
	now := g.store.Clock.Now()
	names := g.attention.pick(g.store.Catalog.TypesOf(tenant), now, every)
	seen, err := g.store.Overviews(ctx, tenant, names)
	g.attention.keep(tenant, names, seen, now)
	return seen, err
}
