package dispatcher

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// admission decides which tasks of a guarded type one lease takes, by the health, the
// limits and the rates of endpoints, and by how many of the node's slots they have.
type admission struct {
	d        *Dispatcher
	t        *store.Type
	now      time.Time
	inFlight store.InFlight // by endpoint, on all nodes
	here     map[string]int // by endpoint, on this node
	free     int            // slots of this node, those for this lease included
	again    time.Time      // when more may be admitted, whatever else happens; zero: never
}

func (d *Dispatcher) admission(t *store.Type, now time.Time, inFlight store.InFlight, free int) *admission {
	return &admission{d: d, t: t, now: now, inFlight: inFlight, here: d.crowd.counts(t), free: free}
}

// plenty is a room without bound.
const plenty = 1 << 30

// Room returns how many tasks of a stage may be admitted at most.
func (a *admission) Room(stage string) (sum int) {
	endpoints := a.t.Endpoints(stage)
	for i := range endpoints {
		if e := &endpoints[i]; e.Serves() {
			sum += a.room(e)
		}
	}
	return sum
}

// room returns how many more tasks an endpoint may have.
func (a *admission) room(e *asyncflow.Endpoint) int {
	room := plenty
	bound := func(most, has int) { room = min(room, max(0, most-has)) }
	if most := e.Health.Room(a.now); most != asyncflow.Unbounded {
		bound(most, a.inFlight.Lately[e.ID])
		a.retryAt(e.Health)
	}
	if e.Limits.MaxInFlight > 0 {
		bound(e.Limits.MaxInFlight, a.inFlight.All[e.ID])
	}
	if a.t.OtherEndpoint(e.ID) {
		bound(a.here[e.ID]+slotRoom(endpointShare, a.here[e.ID], a.free), a.here[e.ID])
	}
	if !e.Limits.Rate.IsZero() {
		tokens, at := a.d.rates.look(rateKey{a.t.Tenant, "endpoint", e.ID}, e.Limits.Rate.PerSecond(), a.now)
		bound(tokens, 0)
		if tokens == 0 {
			a.lookAt(at)
		}
	}
	return room
}

// retryAt takes in when the health of an endpoint allows more.
func (a *admission) retryAt(h asyncflow.Health) {
	switch h.At(a.now) {
	case asyncflow.HealthOpen:
		a.lookAt(h.Until)
	case asyncflow.HealthClosed: // it is ramped up
		a.lookAt(a.now.Add(asyncflow.RampStep))
	}
}

func (a *admission) lookAt(at time.Time) {
	if a.again.IsZero() || at.Before(a.again) {
		a.again = at
	}
}

// Admit picks an endpoint for the next task of a stage by the weights of those that have
// room, or tells what keeps it.
func (a *admission) Admit(stage string) (string, asyncflow.WaitReason) {
	endpoints := a.t.Endpoints(stage)
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
		if a.room(e) > 0 {
			free = append(free, e)
		}
		if state := e.Health.At(a.now); state != asyncflow.HealthOpen && state != asyncflow.HealthDisabled {
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
		a.d.rates.take(rateKey{a.t.Tenant, "endpoint", e.ID}, e.Limits.Rate.PerSecond(), a.now, 1)
	}
	return e.ID, ""
}

// AdmitKey tells whether the rate of a flow key allows another task. If not, the key is
// looked at again when it does.
func (a *admission) AdmitKey(key string) bool {
	k := rateKey{a.t.Tenant, a.t.Name, key}
	tokens, at := a.d.rates.look(k, a.t.Flow.Rate.PerSecond(), a.now)
	if tokens == 0 {
		a.d.unholdAfter(k, at.Sub(a.now))
		return false
	}
	a.d.rates.take(k, a.t.Flow.Rate.PerSecond(), a.now, 1)
	return true
}

// longestPause bounds the time until a flow key is looked at again: its rate may have been
// changed.
const longestPause = 10 * time.Second

// unholdAfter has a flow key looked at after a while, unless the node stops before.
func (d *Dispatcher) unholdAfter(k rateKey, pause time.Duration) {
	d.rates.after(k, min(pause, longestPause), func() { d.chores.do(func() { d.unhold(k) }) })
}

// unhold has as many tasks of a flow key that are held go on as its rate allows, and
// again after a while as long as there are some.
func (d *Dispatcher) unhold(k rateKey) {
	t, err := d.store.Catalog.Type(k.tenant, k.of)
	if err != nil || t.Flow == nil || t.Flow.Rate.IsZero() { // governance sees to what is still held
		return
	}
	n, pause := d.rates.pace(t.Flow.Rate.PerSecond())
	ctx, cancel := context.WithTimeout(context.Background(), leaseTime)
	defer cancel()
	more, err := d.store.Unhold(ctx, k.tenant, k.of, k.name, n)
	if err != nil {
		d.log.Warn("can't look for the next tasks of a flow key, trying again", "tenant", k.tenant, "type", k.of, "error", err)
		pause = failurePause
	}
	if more {
		d.unholdAfter(k, pause)
	}
}
