package governance

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// sweep is the longest time between two visits of a tenant where Postgres doesn't tell what
// happened. It is less than Soon, so that a task that waits for a time is promoted before that
// time, although nobody announces it.
var sweep = asyncflow.Soon * 4 / 5

// revisit is the longest time between two visits of a tenant in any case.
const revisit = 10 * time.Minute

// attention knows which task types are worth a visit. There is nothing to do for most of ten
// thousand types at a time, so visiting each every few seconds would cost more than it gains.
//
// A type is worth a visit if its last visit found something to do, or if somebody announced a task:
// nodes announce every task that becomes ready, to other nodes by NOTIFY. Announcements may get
// lost. So all types of a tenant are visited, too, when Postgres counted new token rows there, see
// activity.
type attention struct {
	mu      sync.Mutex
	news    *store.Listener // of announced tasks
	tenants map[string]*watch
}

// watch is what is known of a tenant.
type watch struct {
	known  bool      // all its types were visited
	tokens uint64    // the activity of the tokens before that visit
	at     time.Time // of that visit
	again  time.Time // when all types are visited again, whatever happens

	tasks uint64               // announced ones, ever
	heard map[string]bool      // types with changes since their last visit
	ahead map[string]time.Time // types with something due, and the announced time
	seen  map[string]visit     // what was found, of the types with anything
}

// visit is what the last visit of a type found.
type visit struct {
	store.Overview
	at time.Time // the time of the visit
}

func newAttention(s *store.Store) *attention {
	return &attention{tenants: map[string]*watch{},
		news: s.Wakeups.Listen(store.Topics{Tasks: true})}
}

// watchOf returns what is known of a tenant. mu must be locked.
func (a *attention) watchOf(tenant string) *watch {
	w := a.tenants[tenant]
	if w == nil {
		w = &watch{heard: map[string]bool{}, ahead: map[string]time.Time{},
			seen: map[string]visit{}}
		a.tenants[tenant] = w
	}
	return w
}

// hear records which types are worth a visit after some news, and from what time on. If
// announcements may have been missed, that is every type. The caller has locked mu.
func (a *attention) hear(news store.News) {
	for key, announced := range news.Ready {
		w := a.watchOf(key.Tenant)
		w.tasks += uint64(announced.Tasks)
		if !announced.Due.IsZero() {
			w.heard[key.Type] = true
		}
		at := announced.Later
		if known, ok := w.ahead[key.Type]; !at.IsZero() && (!ok || at.Before(known)) {
			w.ahead[key.Type] = at
		}
	}
	if news.Lost {
		for _, w := range a.tenants {
			w.known = false
		}
	}
}

// announced returns how many tasks of each tenant were announced.
func (a *attention) announced() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hear(a.news.Read())
	all := make(map[string]uint64, len(a.tenants))
	for tenant, w := range a.tenants {
		all[tenant] = w.tasks
	}
	return all
}

// pick returns the names of a tenant's types that are worth a visit now, and whether these are all.
// tokens is the activity of its tokens. A type that stays busy is picked again after every; at once
// if a lease ran out, or at an announced time.
func (a *attention) pick(
	tenant string, types map[string]*store.Type, tokens uint64, now time.Time, every time.Duration,
) (names []string, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hear(a.news.Read())
	w := a.watchOf(tenant)
	if !w.known || (w.tokens != tokens || !now.Before(w.again)) && now.Sub(w.at) >= every {
		clear(w.heard)
		maps.DeleteFunc(w.ahead, func(_ string, at time.Time) bool { return !at.After(now) })
		return slices.Collect(maps.Keys(types)), true
	}
	for name := range w.candidates(now) {
		t := types[name]
		if t == nil {
			w.drop(name)
			continue
		}
		seen, visited := w.seen[name]
		at, announced := w.ahead[name]
		announced = announced && !at.After(now)
		worth := (w.heard[name] || seen.busy(t, now)) && (!visited || now.Sub(seen.at) >= every)
		if !announced && !seen.runsOut(now) && !worth {
			continue
		}
		names = append(names, name)
		delete(w.heard, name)
		if announced {
			delete(w.ahead, name)
		}
	}
	return names, false
}

// candidates returns the types that may be worth a visit.
func (w *watch) candidates(now time.Time) map[string]bool {
	all := maps.Clone(w.heard)
	for name, at := range w.ahead {
		if !at.After(now) {
			all[name] = true
		}
	}
	for name := range w.seen {
		all[name] = true
	}
	return all
}

// drop forgets a type that is gone.
func (w *watch) drop(name string) {
	delete(w.heard, name)
	delete(w.ahead, name)
	delete(w.seen, name)
}

// runsOut reports whether a lease that the visit found ran out. Later leases are announced.
func (v visit) runsOut(now time.Time) bool { return !v.Lease.IsZero() && !now.Before(v.Lease) }

// busy reports whether there is, or was, something in the type that may need governance.
func (v visit) busy(t *store.Type, now time.Time) bool {
	return v.runsOut(now) || !v.Ready.IsZero() && !t.Paused() && !t.Suspended() ||
		!v.Wait.IsZero() && v.Wait.Before(now.Add(asyncflow.Soon)) ||
		len(v.BlockedStages) > 0 && t.Limited(now) ||
		len(served(t, v.BlockedStages, now)) > 0 || v.BlockedKeys
}

// keep records a visit of the picked types of a tenant, or of all. The next visits of all types of
// several tenants are spread over some time.
func (a *attention) keep(
	tenant string, picked []string, all bool, tokens uint64, overviews []store.Overview,
	now time.Time,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.watchOf(tenant)
	if all {
		clear(w.seen)
		w.known, w.tokens, w.at = true, tokens, now
		w.again = now.Add(revisit - time.Duration(rand.Int64N(int64(revisit/2))))
	}
	for _, name := range picked {
		delete(w.seen, name)
	}
	for _, o := range overviews {
		if name := o.Type.Name; o.Any() || !all {
			o.Type = nil // it would become outdated
			w.seen[name] = visit{o, now}
		}
	}
}

// failed records that a visit failed.
func (a *attention) failed(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchOf(tenant).known = false
}

// tidy forgets tenants that no longer exist.
func (a *attention) tidy(tenants map[string]map[string]*store.Type) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.tenants, func(tenant string, _ *watch) bool { return tenants[tenant] == nil })
}

// overviews visits the types of a tenant that attention picks.
func (s *shared) overviews(
	ctx context.Context, tenant string, types map[string]*store.Type, tokens uint64,
	every time.Duration,
) ([]store.Overview, error) {
	now := s.store.Clock.Now()
	names, all := s.attention.pick(tenant, types, tokens, now, every)
	seen, err := s.store.Overviews(ctx, tenant, names)
	if err != nil {
		s.attention.failed(tenant)
		return nil, err
	}
	s.attention.keep(tenant, names, all, tokens, seen, now)
	return seen, nil
}
