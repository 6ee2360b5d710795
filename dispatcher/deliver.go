package dispatcher

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// start starts the attempts of tasks with committed leases and reserved capacity. The capacity is
// given back when they are settled, or answered with 202.
func (d *Dispatcher) start(t *store.Type, leases []asyncflow.Lease) {
	now := currentType(d.store, t)
	for _, l := range leases {
		// Another node may have registered an endpoint this second.
		if now.FansOut(l) == nil && !now.Serves(l.Stage) && !now.Claims(l.Stage) {
			d.workers.Do(func() { d.beginWithPast(d.refreshed(t), leases) })
			return
		}
	}
	if slices.ContainsFunc(leases, func(l asyncflow.Lease) bool { return asksForPast(now, l) }) {
		d.workers.Do(func() { d.beginWithPast(now, leases) })
		return
	}
	d.begin(now, leases)
}

// begin starts the attempts of tasks of a type as it is now.
func (d *Dispatcher) begin(t *store.Type, leases []asyncflow.Lease) {
	defer d.ledger.Begun(t.Key(), len(leases))
	if why := stopped(t); why != "" && len(leases) > 0 {
		d.giveBack(t, leases, why)
		return
	}
	leases = d.withoutExpired(t, d.withoutHalted(t, leases))
	now := d.store.Clock.Now()
	var together map[string][]asyncflow.Lease // by endpoint
	for i, l := range leases {
		if rule := t.FansOut(l); rule != nil {
			d.workers.Do(func() { d.fanOut(t, l, *rule) })
			continue
		}
		if wait := t.WaitOf(l.Stage); wait != nil {
			d.workers.Do(func() { d.awaitSignal(t, l, *wait) })
			continue
		}
		switch e, blocked, why := endpointFor(t, l, now); {
		case blocked != "":
			o := released(why)
			d.settle(t, asyncflow.Settlement{Lease: l, Outcome: o,
				Verdict: asyncflow.ParkFor(l, blocked).Bound(l, o)})
		case e.Batch.IsZero() || l.Options.Notification != nil:
			d.workers.Do(func() { d.attempt(t, e, leases[i:i+1:i+1]) })
		default:
			if together == nil {
				together = map[string][]asyncflow.Lease{}
			}
			if together[e.ID] == nil {
				together[e.ID] = make([]asyncflow.Lease, 0, len(leases)-i)
			}
			together[e.ID] = append(together[e.ID], l)
		}
	}
	if together == nil {
		return
	}
	for _, e := range t.AllEndpoints() {
		if some := together[e.ID]; len(some) > 0 {
			d.gather(t, &e, some)
		}
	}
}

// stopped returns why no task of a type may be sent; "": they may.
func stopped(t *store.Type) string {
	switch {
	case t.Suspended():
		return "the tenant is suspended"
	case t.Paused():
		return "the task type is paused"
	}
	return ""
}

// endpointFor returns the endpoint of a leased task: the one that the lease is for, or another of
// the stage's endpoints, picked by weight. If none takes it, endpointFor returns the reason, also
// in words.
func endpointFor(
	t *store.Type, l asyncflow.Lease, now time.Time,
) (e *asyncflow.Endpoint, blocked asyncflow.WaitReason, why string) {
	if t.StageIndex(l.Stage) < 0 {
		return e, asyncflow.WaitEndpoint, "the task type has no stage " + l.Stage + " any more"
	}
	if t.Claims(l.Stage) { // it was in line when the stage got its mode, or is a child
		return e, asyncflow.WaitClaimer, "workers ask for the tasks of stage " + l.Stage
	}
	switch e, blocked = choose(t.Endpoints(l.Stage), l.Endpoint, now); blocked {
	case "":
		return e, "", ""
	case asyncflow.WaitEndpoint:
		return e, blocked, "no endpoint is registered for stage " + l.Stage
	default:
		return e, blocked, "no endpoint of stage " + l.Stage + " is well"
	}
}

// attempt sends leased tasks of a stage to an endpoint, in one request, and settles each outcome.
func (d *Dispatcher) attempt(t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease) {
	why := stopped(currentType(d.store, t)) // since the lease began
	if d.stopping.Err() != nil {
		why = "the node is stopping"
	}
	if why != "" {
		d.giveBack(t, leases, why)
		return
	}
	if slices.ContainsFunc(leases, func(l asyncflow.Lease) bool { return l.Unsent }) {
		leases = d.beginSending(t, leases)
	}
	leases = d.withoutExpired(t, leases) // perhaps it waited to be sent
	deliveries := d.deliveries(t, e, leases)
	if len(deliveries) == 0 {
		return
	}
	d.ledger.Sending(e.ID, len(deliveries))
	outcomes := d.sender.Send(d.sending, deliveries)
	d.ledger.Sending(e.ID, -len(deliveries))
	if d.sending.Err() == nil {
		d.breakers.examine(&deliveries[0], outcomes[0]) // the answer was the same for all
	}
	d.conclude(t, deliveries, outcomes)
}

// beginSending writes down that leases are sent, and returns the leases that still stand. It gives
// the remaining ones back.
func (d *Dispatcher) beginSending(t *store.Type, leases []asyncflow.Lease) []asyncflow.Lease {
	ctx, cancel := context.WithTimeout(d.sending, leaseTime)
	defer cancel()
	standing, err := d.store.BeginSending(ctx, t, leases)
	why := "the lease ran out before the task was sent"
	if err != nil {
		why = "it can't be written that the task is sent: " + err.Error()
		standing = nil
	}
	var sent, others []asyncflow.Lease
	for _, l := range leases {
		if standing[store.LeaseName{ID: l.ID.Number, Seq: l.Seq}] {
			sent = append(sent, l)
		} else {
			others = append(others, l)
		}
	}
	d.giveBack(t, others, why)
	return sent
}

// deliveries returns the deliveries of leased tasks. Tasks with a lease that runs out before the
// stage's time limit are given back: the node or the database was too slow.
func (d *Dispatcher) deliveries(
	t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease,
) []asyncflow.Delivery {
	now := d.store.Clock.Now()
	if len(leases) == 0 {
		return nil
	}
	stage := t.Stages[t.StageIndex(leases[0].Stage)]
	links := t.LinksAfter(stage.Name)
	all := make([]asyncflow.Delivery, 0, len(leases))
	for i, l := range leases {
		if l.Until.Sub(now) < stage.Timeout.Std() {
			d.giveBack(t, leases[i:i+1], "too little was left of the lease to send it")
			continue
		}
		leases[i].Context = nil // it would keep the contexts of the whole lease in memory
		leases[i].Past = nil
		all = append(all, asyncflow.Delivery{Tenant: t.Tenant, Lease: l,
			TypeVersion: t.Version, MaxAttempts: t.MaxAttempts(l.Stage, l.Options), At: now,
			Endpoint: e, Timeout: stage.Timeout.Std(),
			Deadline: l.Options.Lifetime.EndsBefore(now.Add(stage.MaxProcessingTime.Std())),
			Links:    links})
	}
	d.store.CountDeliveries(t.Key(), all)
	return all
}

// choose picks the endpoint that a lease is for, if that one may get tasks. If the lease is for
// none, it picks one that may, by weight.
func choose(
	endpoints []asyncflow.Endpoint, wanted string, now time.Time,
) (e *asyncflow.Endpoint, blocked asyncflow.WaitReason) {
	if !asyncflow.Serves(endpoints) {
		return nil, asyncflow.WaitEndpoint
	}
	var few [4]*asyncflow.Endpoint
	well := few[:0]
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Serves() || e.Health.Capacity(now) == 0 {
			continue
		}
		if e.ID == wanted {
			return e, ""
		}
		well = append(well, e)
	}
	if wanted != "" { // the capacity of other endpoints was not checked
		return nil, asyncflow.WaitUnhealthy
	}
	if e = asyncflow.Choose(well, rand.Float64()); e == nil {
		return nil, asyncflow.WaitUnhealthy
	}
	return e, ""
}
