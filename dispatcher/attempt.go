package dispatcher

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// attempt sends one leased task and settles what came of it. stopping ends when
// no new attempt is to begin, sending when the ones under way are cut off.
func (d *Dispatcher) attempt(stopping, sending context.Context, t *store.Type, l asyncflow.Lease) {
	stage := t.StageIndex(l.Stage)
	if stage < 0 {
		d.finish(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the task type has no stage " + l.Stage + " any more"},
			asyncflow.ParkFor(l, asyncflow.WaitEndpoint))
		return
	}
	delivery, held := d.delivery(t, t.Stages[stage], l)
	switch {
	case held == asyncflow.WaitEndpoint:
		d.finish(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "no endpoint is registered for stage " + l.Stage}, asyncflow.ParkFor(l, held))
		return
	case held != "":
		d.finish(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "no endpoint of stage " + l.Stage + " is well"}, asyncflow.ParkFor(l, held))
		return
	case stopping.Err() != nil:
		d.settle(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the node is stopping"})
		return
	case t.Suspended(): // since the lease began
		d.settle(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the tenant is suspended"})
		return
	case t.Paused(): // since the lease began
		d.settle(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the task type is paused"})
		return
	case delivery.Timeout <= 0: // the node was held up for longer than the lease stands
		d.settle(t, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the lease ran out before it was sent"})
		return
	}
	d.crowd.add(delivery.Endpoint.ID, 1)
	o := d.sender.Send(sending, delivery)
	d.crowd.add(delivery.Endpoint.ID, -1)
	if sending.Err() == nil {
		d.examine(delivery, o)
	}
	switch {
	case o.Kind == asyncflow.OutcomeAccepted:
		d.accept(t, delivery, o)
	case sending.Err() != nil && o.Kind == asyncflow.OutcomeFailed && o.Status == 0:
		o.Kind = asyncflow.OutcomeLost
		d.settle(t, l, o)
	default:
		d.settle(t, l, o)
	}
}

// delivery returns what is to be sent, to the endpoint that the lease is for or another
// of the stage's by their weights; or what keeps it from being sent.
func (d *Dispatcher) delivery(t *store.Type, stage asyncflow.Stage, l asyncflow.Lease) (asyncflow.Delivery, asyncflow.WaitReason) {
	now := d.store.Clock.Now()
	e, held := choose(t.Endpoints(l.Stage), l.Endpoint, now)
	return asyncflow.Delivery{
		Tenant: t.Tenant, Lease: l, MaxAttempts: t.MaxAttempts(l.Stage, l.Options), At: now,
		Endpoint: e,
		Timeout:  min(stage.Timeout.Std(), l.Until.Sub(now)),
		Deadline: now.Add(stage.MaxProcessingTime.Std()),
	}, held
}

// choose picks the endpoint that a lease is for, if it may have tasks; without one, one
// that may, by their weights.
func choose(endpoints []asyncflow.Endpoint, wanted string, now time.Time) (e asyncflow.Endpoint, held asyncflow.WaitReason) {
	if !asyncflow.Serves(endpoints) {
		return e, asyncflow.WaitEndpoint
	}
	well := make([]asyncflow.Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		if !e.Serves() || e.Health.Room(now) == 0 {
			continue
		}
		if e.ID == wanted {
			return e, ""
		}
		well = append(well, e)
	}
	if wanted != "" { // nobody has asked whether another has room for it
		return e, asyncflow.WaitUnhealthy
	}
	e, ok := asyncflow.Choose(well, rand.Float64())
	if !ok {
		return e, asyncflow.WaitUnhealthy
	}
	return e, ""
}

// accept keeps the lease of a task that was answered with 202 until its
// completion is due. It needs no slot meanwhile.
func (d *Dispatcher) accept(t *store.Type, v asyncflow.Delivery, o asyncflow.Outcome) {
	d.store.Extend(t.Tenant, v.Lease, v.Deadline, func(_ bool, err error) {
		if err != nil {
			d.log.Error("can't keep the lease of an accepted task; it will be tried again",
				"tenant", t.Tenant, "task", v.Lease.ID.String(), "error", err)
		}
		asyncflow.LogAttempt(d.log, t.Tenant, asyncflow.Settlement{Lease: v.Lease, Outcome: o, Verdict: asyncflow.Verdict{Kind: asyncflow.Await}})
		d.release(t)
	})
}

// settle decides on an outcome and has it written.
func (d *Dispatcher) settle(t *store.Type, l asyncflow.Lease, o asyncflow.Outcome) {
	d.finish(t, l, o, asyncflow.Decide(t.TaskType, l, o, d.store.Clock.Now()))
}

func (d *Dispatcher) finish(t *store.Type, l asyncflow.Lease, o asyncflow.Outcome, v asyncflow.Verdict) {
	l.Context = nil // no longer needed
	settlement := asyncflow.Settlement{Lease: l, Outcome: o, Verdict: v}
	d.store.Settle(t.Tenant, settlement, func(r store.Settled) {
		switch {
		case r.Err != nil:
			d.log.Error("can't settle; the lease will run out", "tenant", t.Tenant, "task", l.ID.String(), "error", r.Err)
		case r.Stale:
			d.log.Warn("the lease was lost meanwhile; the outcome does not count", "tenant", t.Tenant, "task", l.ID.String(),
				"seq", l.Seq, "outcome", string(o.Kind), "written", string(r.Written))
		default:
			asyncflow.LogAttempt(d.log, t.Tenant, settlement)
		}
		d.release(t)
	})
}

func (d *Dispatcher) release(t *store.Type) {
	d.held.add(t.Key(), -1)
	d.slots.give(1)
	if _, held := d.holding.Load(t.Key()); held { // there may be room for them now
		d.agenda.wake(t.Key(), d.store.Clock.Now())
	}
	d.attempts.Done()
}
