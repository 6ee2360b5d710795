package dispatcher

import (
	"math/rand/v2"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// start takes over tasks of a type that were leased, for which room was reserved: it has
// their attempts begun. The room is given back when the tasks are settled.
func (d *Dispatcher) start(t *store.Type, leases []asyncflow.Lease) {
	defer d.underway.add(t.Key(), -len(leases))
	d.load.begin(t.Key(), leases)
	t = d.latest(t, leases)
	if why := stopped(t); why != "" && len(leases) > 0 {
		d.giveBack(t, leases, why)
		return
	}
	now := d.store.Clock.Now()
	var together map[string][]asyncflow.Lease // by endpoint
	for i, l := range leases {
		switch e, held, why := place(t, l, now); {
		case held != "":
			d.finish(t, asyncflow.Settlement{Lease: l, Outcome: released(why), Verdict: asyncflow.ParkFor(l, held)})
		case e.Batch.IsZero():
			d.crew.do(func() { d.attempt(t, e, leases[i:i+1:i+1]) })
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

// stopped returns why nothing of a type is to be sent; "": it may be.
func stopped(t *store.Type) string {
	switch {
	case t.Suspended():
		return "the tenant is suspended"
	case t.Paused():
		return "the task type is paused"
	}
	return ""
}

// place returns the endpoint of a leased task: the one that the lease is for, or another
// of the stage's by their weights; or what holds it back, and why in words.
func place(t *store.Type, l asyncflow.Lease, now time.Time) (e *asyncflow.Endpoint, held asyncflow.WaitReason, why string) {
	if t.StageIndex(l.Stage) < 0 {
		return e, asyncflow.WaitEndpoint, "the task type has no stage " + l.Stage + " any more"
	}
	switch e, held = choose(t.Endpoints(l.Stage), l.Endpoint, now); held {
	case "":
		return e, "", ""
	case asyncflow.WaitEndpoint:
		return e, held, "no endpoint is registered for stage " + l.Stage
	default:
		return e, held, "no endpoint of stage " + l.Stage + " is well"
	}
}

// attempt sends leased tasks of a stage to an endpoint, in one request, and settles what
// came of each.
func (d *Dispatcher) attempt(t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease) {
	why := stopped(d.current(t)) // since the lease began
	if d.stopping.Err() != nil {
		why = "the node is stopping"
	}
	if why != "" {
		d.giveBack(t, leases, why)
		return
	}
	deliveries := d.deliveries(t, e, leases)
	if len(deliveries) == 0 {
		return
	}
	d.crowd.add(e.ID, len(deliveries))
	outcomes := d.sender.Send(d.sending, deliveries)
	d.crowd.add(e.ID, -len(deliveries))
	if d.sending.Err() == nil {
		d.examine(&deliveries[0], outcomes[0]) // whose answer was that to all
	}
	d.conclude(t, deliveries, outcomes)
}

// deliveries returns what is to be sent. Tasks whose lease runs out before the stage's time
// limit are given back: the node, or the database, was held up.
func (d *Dispatcher) deliveries(t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease) []asyncflow.Delivery {
	now := d.store.Clock.Now()
	stage := t.Stages[t.StageIndex(leases[0].Stage)]
	all := make([]asyncflow.Delivery, 0, len(leases))
	for i, l := range leases {
		if l.Until.Sub(now) < stage.Timeout.Std() {
			d.giveBack(t, leases[i:i+1], "too little was left of the lease to send it")
			continue
		}
		leases[i].Context = nil // else what was leased with others would stay in memory for them
		all = append(all, asyncflow.Delivery{Tenant: t.Tenant, Lease: l, MaxAttempts: t.MaxAttempts(l.Stage, l.Options), At: now,
			Endpoint: e, Timeout: stage.Timeout.Std(), Deadline: now.Add(stage.MaxProcessingTime.Std())})
	}
	return all
}

// choose picks the endpoint that a lease is for, if it may have tasks; without one, one
// that may, by their weights.
func choose(endpoints []asyncflow.Endpoint, wanted string, now time.Time) (e *asyncflow.Endpoint, held asyncflow.WaitReason) {
	if !asyncflow.Serves(endpoints) {
		return nil, asyncflow.WaitEndpoint
	}
	var few [4]*asyncflow.Endpoint
	well := few[:0]
	for i := range endpoints {
		e := &endpoints[i]
		if !e.Serves() || e.Health.Room(now) == 0 {
			continue
		}
		if e.ID == wanted {
			return e, ""
		}
		well = append(well, e)
	}
	if wanted != "" { // nobody has asked whether another has room for it
		return nil, asyncflow.WaitUnhealthy
	}
	if e = asyncflow.Choose(well, rand.Float64()); e == nil {
		return nil, asyncflow.WaitUnhealthy
	}
	return e, ""
}

// accept keeps the lease of a task that was answered with 202 until its completion is
// due. It needs no slot from now on.
func (d *Dispatcher) accept(t *store.Type, v asyncflow.Delivery, o asyncflow.Outcome) {
	d.load.end(t.Key(), len(v.Lease.Context))
	v.Lease.Context = nil // no longer needed
	asyncflow.LogAttempt(d.log, t.Tenant, asyncflow.Settlement{Lease: v.Lease, Outcome: o, Verdict: asyncflow.Verdict{Kind: asyncflow.Await}})
	tenant, id := t.Tenant, v.Lease.ID
	d.store.Accept(tenant, v.Lease, v.Deadline, func(err error) {
		if err != nil {
			d.log.Error("can't keep the lease of an accepted task: it may be delivered again",
				"tenant", tenant, "task", id.String(), "error", err)
		}
	})
	d.release(t)
}

// conclude settles the outcomes of deliveries.
func (d *Dispatcher) conclude(t *store.Type, deliveries []asyncflow.Delivery, outcomes []asyncflow.Outcome) {
	now, cutOff := d.store.Clock.Now(), d.sending.Err() != nil
	d.held.ended(t.Key(), now.Sub(deliveries[0].At), now)
	settlements := make([]asyncflow.Settlement, 0, len(deliveries))
	for i, o := range outcomes {
		if o.Kind == asyncflow.OutcomeAccepted {
			d.accept(t, deliveries[i], o)
			continue
		}
		if cutOff && o.Kind == asyncflow.OutcomeFailed && o.Status == 0 {
			o.Kind = asyncflow.OutcomeLost
		}
		l := deliveries[i].Lease
		settlements = append(settlements, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(t.TaskType, l, o, now)})
	}
	d.finish(t, settlements...)
}

// released is the outcome of tasks that weren't sent.
func released(why string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: why}
}

// giveBack puts tasks that weren't sent back to where they stood.
func (d *Dispatcher) giveBack(t *store.Type, leases []asyncflow.Lease, why string) {
	now, o := d.store.Clock.Now(), released(why)
	settlements := make([]asyncflow.Settlement, len(leases))
	for i, l := range leases {
		settlements[i] = asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
	}
	d.finish(t, settlements...)
}

// finish has settlements written, and gives up the tasks.
func (d *Dispatcher) finish(t *store.Type, settlements ...asyncflow.Settlement) {
	var contexts, kept int // bytes
	mayGoOn := len(t.Stages) > 1 && !d.standsInLine(t)
	for i := range settlements {
		s := &settlements[i]
		contexts += len(s.Lease.Context)
		if !mayGoOn || s.Verdict.Kind != asyncflow.Advance || len(s.Outcome.Output) > 0 {
			s.Lease.Context = nil // no longer needed
		}
		kept += keptBytes(s)
	}
	d.load.answered(t.Key(), len(settlements), contexts, kept)
	d.store.SettleAll(t.Tenant, settlements, func(s *asyncflow.Settlement, r store.Settled) {
		if written := keptBytes(s); written > 0 {
			d.load.end(t.Key(), written)
		}
		switch {
		case r.Err != nil:
			d.log.Error("can't settle; the lease will run out", "tenant", t.Tenant, "task", s.Lease.ID.String(), "error", r.Err)
		case r.Stale:
			d.log.Warn("the lease was lost meanwhile; the outcome does not count", "tenant", t.Tenant, "task", s.Lease.ID.String(),
				"seq", s.Lease.Seq, "outcome", string(s.Outcome.Kind), "written", string(r.Written))
		default:
			asyncflow.LogAttempt(d.log, t.Tenant, *s)
		}
		d.release(t)
	})
}

// keptBytes returns how many bytes of a settlement are kept until it is written: its output,
// or what the task goes on with.
func keptBytes(s *asyncflow.Settlement) int { return len(s.Outcome.Output) + len(s.Lease.Context) }

func (d *Dispatcher) release(t *store.Type) {
	d.held.add(t.Key(), -1)
	d.slots.give(1)
	if d.holding.has(t.Key()) { // there may be room for them now
		d.agenda.wake(t.Key(), d.store.Clock.Now())
	}
	d.attempts.Done()
}
