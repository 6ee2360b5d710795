package dispatcher

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/dispatcher/internal/rates"
	"github.com/asyncflow/asyncflow/store"
)

// leaseLimited is lease for a type with limits besides capacity.
func (d *Dispatcher) leaseLimited(
	ctx context.Context, t *store.Type, n int, now time.Time,
) (leases []asyncflow.Lease, next time.Time, more bool, err error) {
	of := rates.Key{Tenant: t.Tenant, Scope: "type", Name: t.Name}
	if !t.Rate.IsZero() {
		tokens, at := d.rates.Available(of, t.Rate.PerSecond(), now)
		if tokens == 0 {
			return nil, at, false, nil
		}
		n = min(n, tokens)
	}
	free := d.ledger.Free() + n
	var a *admission
	g, err := d.store.LeaseLimited(ctx, t, n, func(inFlight store.InFlight) store.Admission {
		a = d.admission(t, now, inFlight, free)
		return a
	})
	if !t.Rate.IsZero() {
		d.rates.Spend(of, t.Rate.PerSecond(), now, len(g.Leases))
	}
	switch {
	case g.Busy:
	case g.Blocked:
		d.blocked.set(t.Key(), true)
	case err == nil:
		d.blocked.set(t.Key(), false)
	}
	if a != nil && !a.again.IsZero() && (g.Next.IsZero() || a.again.Before(g.Next)) {
		g.Next = a.again
	}
	if len(g.Keys) > 0 {
		d.committer.freed.Add(t.Key(), g.Keys...)
	}
	return g.Leases, g.Next, g.Filed, err
}

// blockedTypes has the types that may have blocked tasks, by stage.
type blockedTypes struct {
	mu    sync.RWMutex
	types map[store.TypeKey]bool
}

func newBlockedTypes() *blockedTypes { return &blockedTypes{types: map[store.TypeKey]bool{}} }

func (b *blockedTypes) has(key store.TypeKey) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.types[key]
}

func (b *blockedTypes) set(key store.TypeKey, blocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if blocked {
		b.types[key] = true
	} else {
		delete(b.types, key)
	}
}

// forget drops the types that are gone.
func (b *blockedTypes) forget(gone func(store.TypeKey) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.types, func(key store.TypeKey, _ bool) bool { return gone(key) })
}

// admission decides which tasks of a limited type one lease takes. It considers the health, limits
// and rates of endpoints, and their shares of the node's capacity.
type admission struct {
	d        *Dispatcher
	t        *store.Type
	now      time.Time
	inFlight store.InFlight // by endpoint, on all nodes
	here     map[string]int // by endpoint, on this node
	free     int            // capacity of this node, including that for this lease
	again    time.Time      // when more may be admitted, even without a wake-up; zero: never
}

func (d *Dispatcher) admission(
	t *store.Type, now time.Time, inFlight store.InFlight, free int,
) *admission {
	return &admission{d: d, t: t, now: now, inFlight: inFlight,
		here: d.ledger.SendingTo(endpointIDs(t)), free: free}
}

func endpointIDs(t *store.Type) (ids []string) {
	for _, e := range t.AllEndpoints() {
		ids = append(ids, e.ID)
	}
	return ids
}

// plenty stands for an unlimited capacity.
const plenty = 1 << 30

// Capacity returns how many tasks of a stage may be admitted at most.
func (a *admission) Capacity(stage string) (sum int) {
	switch {
	case a.t.Claims(stage):
		return 0
	case a.t.WaitOf(stage) != nil:
		return plenty
	}
	endpoints := a.t.Endpoints(stage)
	for i := range endpoints {
		if e := &endpoints[i]; e.Serves() {
			sum += a.capacity(e)
		}
	}
	return sum
}

// capacity returns how many more tasks an endpoint may get.
func (a *admission) capacity(e *asyncflow.Endpoint) int {
	n := plenty
	bound := func(most, has int) { n = min(n, max(0, most-has)) }
	if most := e.Health.Capacity(a.now); most != asyncflow.Unlimited {
		bound(most, a.inFlight.Lately[e.ID])
		a.retryAt(e.Health, n)
	}
	if e.Limits.MaxInFlight > 0 {
		bound(e.Limits.MaxInFlight, a.inFlight.All[e.ID])
	}
	if a.t.OtherEndpoint(e.ID) {
		bound(a.here[e.ID]+ledger.EndpointRest(a.here[e.ID], a.free), a.here[e.ID])
	}
	if !e.Limits.Rate.IsZero() {
		tokens, at := a.d.rates.Available(a.endpointKey(e.ID), e.Limits.Rate.PerSecond(), a.now)
		bound(tokens, 0)
		if tokens == 0 {
			a.lookAt(at)
		}
	}
	return n
}

// endpointKey returns the key of an endpoint's rate.
func (a *admission) endpointKey(id string) rates.Key {
	return rates.Key{Tenant: a.t.Tenant, Scope: "endpoint", Name: id}
}

// retryAt sets when the health of an endpoint allows more tasks than n.
func (a *admission) retryAt(h asyncflow.Health, n int) {
	switch h.At(a.now) {
	case asyncflow.HealthOpen:
		a.lookAt(h.Until)
	case asyncflow.HealthHalfOpen: // another task may try it if the first hangs: see CountsSince
		if n == 0 && h.Pause == asyncflow.ShortOpen {
			a.lookAt(a.now.Add(asyncflow.ShortOpen / 4))
		}
	case asyncflow.HealthClosed: // it is ramped up
		a.lookAt(a.now.Add(asyncflow.RampStep))
	}
}

func (a *admission) lookAt(at time.Time) {
	if a.again.IsZero() || at.Before(a.again) {
		a.again = at
	}
}

// Admit picks an endpoint for the next task of a stage by the weights of the endpoints with
// capacity, or returns what blocks it.
func (a *admission) Admit(stage string) (string, asyncflow.WaitReason) {
	endpoints := a.t.Endpoints(stage)
	if i := a.t.StageIndex(stage); a.t.Claims(stage) {
		// A task that fans out; another transaction handles its children.
		if a.t.Stages[i].Spreads() != nil {
			return "", ""
		}
		return "", asyncflow.WaitClaimer
	}
	if a.t.WaitOf(stage) != nil {
		return "", ""
	}
	if !asyncflow.Serves(endpoints) {
		return "", asyncflow.WaitEndpoint
	}
	var free []*asyncflow.Endpoint
	reason := asyncflow.WaitUnhealthy
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Serves() {
			continue
		}
		if a.capacity(e) > 0 {
			free = append(free, e)
		}
		if state := e.Health.At(a.now); state != asyncflow.HealthOpen &&
			state != asyncflow.HealthDisabled {
			reason = asyncflow.WaitLimit
		}
	}
	e := asyncflow.Choose(free, rand.Float64())
	if e == nil {
		return "", reason
	}
	a.inFlight.Begin(e.ID)
	a.here[e.ID]++
	if !e.Limits.Rate.IsZero() {
		a.d.rates.Spend(a.endpointKey(e.ID), e.Limits.Rate.PerSecond(), a.now, 1)
	}
	return e.ID, ""
}

// AdmitKey reports whether the rate of a flow key allows another task. If not, the key's tasks are
// released when it does.
func (a *admission) AdmitKey(key string) bool {
	k := rates.Key{Tenant: a.t.Tenant, Scope: a.t.Name, Name: key}
	tokens, at := a.d.rates.Available(k, a.t.Flow.Rate.PerSecond(), a.now)
	if tokens == 0 {
		a.d.releaseAfter(k, at.Sub(a.now))
		return false
	}
	a.d.rates.Spend(k, a.t.Flow.Rate.PerSecond(), a.now, 1)
	return true
}

// longestPause bounds the time until a flow key is tried again: its rate may be another one by
// then.
const longestPause = 10 * time.Second

// releaseAfter releases a flow key after a while, unless the node stops before.
func (d *Dispatcher) releaseAfter(k rates.Key, pause time.Duration) {
	d.rates.After(k, min(pause, longestPause), func() { d.jobs.do(func() { d.releaseKey(k) }) })
}

// releaseKey releases as many blocked tasks of a flow key as its rate allows, and again after a
// while as long as there are some.
func (d *Dispatcher) releaseKey(k rates.Key) {
	t, err := d.store.Catalog.Type(k.Tenant, k.Scope)
	// The background jobs release what is still blocked.
	if err != nil || t.Flow == nil || t.Flow.Rate.IsZero() {
		return
	}
	n, pause := d.rates.Pace(t.Flow.Rate.PerSecond())
	ctx, cancel := context.WithTimeout(context.Background(), leaseTime)
	defer cancel()
	more, err := d.store.ReleaseKey(ctx, k.Tenant, k.Scope, k.Name, n)
	if err != nil {
		d.log.Warn("can't look for the next tasks of a flow key, trying again", "tenant", k.Tenant,
			"type", k.Scope, "error", err)
		pause = failurePause
	}
	if more {
		d.releaseAfter(k, pause)
	}
}
