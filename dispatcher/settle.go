package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// conclude settles the outcomes of deliveries.
func (d *Dispatcher) conclude(
	t *store.Type, deliveries []asyncflow.Delivery, outcomes []asyncflow.Outcome,
) {
	now := d.store.Clock.Now()
	cutOff := d.sending.Err() != nil
	d.ledger.Took(t.Key(), now.Sub(deliveries[0].At), now)
	settlements := make([]asyncflow.Settlement, 0, len(deliveries))
	until := time.Now().Add(journalPatience)
	for i, o := range outcomes {
		if o.Kind == asyncflow.OutcomeAccepted {
			d.accept(t, deliveries[i], o)
			continue
		}
		if cutOff && o.Kind == asyncflow.OutcomeFailed && o.Status == 0 {
			o.Kind = asyncflow.OutcomeLost
		}
		l := deliveries[i].Lease
		o = d.judgeSpawn(t, l, t.Judged(l, o), until)
		if o.Kind == asyncflow.OutcomeSnoozed {
			o.FirstSent = d.firstSent(t, l, until)
		}
		if t.NeedsPath(l, o) {
			o.Path = d.passed(t, l, until)
		}
		settlements = append(settlements, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: d.decide(t, l, o, now)})
	}
	d.settle(t, settlements...)
}

// decide decides by the type as it was when the delivery began. If the next stage was removed
// since, without a mapping, it decides by the type as it is now.
func (d *Dispatcher) decide(
	t *store.Type, l asyncflow.Lease, o asyncflow.Outcome, now time.Time,
) asyncflow.Verdict {
	v := asyncflow.Decide(t.TaskType, l, o, now)
	if v.Kind != asyncflow.Advance {
		return v
	}
	current := currentType(d.store, t)
	if stage, _ := current.Mapped(v.Stage, 1); current.StageIndex(stage) >= 0 {
		return v
	}
	return asyncflow.Decide(current.TaskType, l, o, now)
}

// journalPatience bounds the questions about the earlier attempts of a request's tasks. The
// settlements follow while the leases stand.
const journalPatience = store.LeaseMargin / 2

// firstSent returns when a task was delivered in the stage of a lease for the first time. If the
// database doesn't answer until then, that is this time: the next snooze ends in time.
func (d *Dispatcher) firstSent(t *store.Type, l asyncflow.Lease, until time.Time) time.Time {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	at, err := d.store.FirstSent(ctx, t, l)
	if err != nil {
		d.log.Warn("can't tell since when a task is snoozed", "tenant", t.Tenant,
			"task", l.ID.String(), "error", err)
		return l.LeasedAt
	}
	return at
}

// passed returns the stages that a task passed before. If the database doesn't answer until then,
// that is nil: the task goes on, and its next step counts this one, too.
func (d *Dispatcher) passed(t *store.Type, l asyncflow.Lease, until time.Time) []string {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	path, err := d.store.Passed(ctx, t, l)
	if err != nil {
		d.log.Warn("can't tell how many steps a task has taken", "tenant", t.Tenant,
			"task", l.ID.String(), "error", err)
		return nil
	}
	return path
}

// accept extends the lease of a task that was answered with 202 until its completion is due. The
// task is no longer in flight.
func (d *Dispatcher) accept(t *store.Type, v asyncflow.Delivery, o asyncflow.Outcome) {
	bytes := v.Lease.Size()
	v.Lease = v.Lease.WithoutDocuments()
	asyncflow.LogAttempt(d.log, t.Tenant, asyncflow.Settlement{Lease: v.Lease, Outcome: o,
		Verdict: asyncflow.Verdict{Kind: asyncflow.Await}})
	tenant := t.Tenant
	id := v.Lease.ID
	seen := store.Seen{Worker: o.Worker}
	if len(t.Endpoints(v.Lease.Stage)) > 1 && v.Lease.Endpoint == "" {
		seen.Endpoint = v.Endpoint.ID
	}
	v.Lease.Worker = o.Worker
	d.committer.Accept(tenant, v.Lease, v.Deadline, seen, func(err error) {
		if err != nil {
			d.log.Error("can't keep the lease of an accepted task: it may be delivered again",
				"tenant", tenant, "task", id.String(), "error", err)
		}
	})
	d.release(t, 1, bytes)
}

// released returns the outcome of tasks that weren't sent.
func released(why string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: why}
}

// giveBack puts tasks that weren't sent back to their place in line.
func (d *Dispatcher) giveBack(t *store.Type, leases []asyncflow.Lease, why string) {
	now := d.store.Clock.Now()
	o := released(why)
	settlements := make([]asyncflow.Settlement, len(leases))
	for i, l := range leases {
		settlements[i] = asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
	}
	d.settle(t, settlements...)
}

// settle queues settlements for writing. Tasks go on with their next stage at once if there is
// capacity. A task that does not is in flight until its settlement is written.
func (d *Dispatcher) settle(t *store.Type, settlements ...asyncflow.Settlement) {
	if len(settlements) == 0 {
		return
	}
	nexts := d.nexts(t, settlements)
	var before, kept int // bytes
	endings := make([]ending, len(settlements))
	all := make([]*write, len(settlements))
	for i := range settlements {
		s := &settlements[i]
		e := &endings[i]
		before += s.Lease.Size()
		s.Lease = s.Lease.WithoutDocuments()
		e.Settlement = s
		e.done = func(e *ending) { d.settled(t, e) }
		if nexts != nil {
			e.Next = nexts[i]
		}
		kept += e.bytes()
		e.write = write{key: t.Key(), settle: e}
		all[i] = &e.write
	}
	d.ledger.Answered(t.Key(), len(settlements), before, kept)
	d.committer.add(t.Key(), all...)
}

// bytes returns how many bytes are kept until a settlement is written: the output, or the context
// of the next stage, what siblings share, and the tasks that it starts.
func (e *ending) bytes() int {
	if e.Next != nil {
		return e.Next.Size() + e.Outcome.SpawnBytes()
	}
	return e.Lease.Size() + len(e.Outcome.Output) + e.Outcome.SpawnBytes()
}

// settled handles the result of a settlement.
func (d *Dispatcher) settled(t *store.Type, e *ending) {
	switch s, r := e.Settlement, e.Settled; {
	case r.Err != nil:
		d.log.Error("can't settle; the lease will run out", "tenant", t.Tenant, "task",
			s.Lease.ID.String(),
			"error", r.Err)
	case r.Stale:
		d.log.Warn("the lease was lost meanwhile; the outcome does not count", "tenant", t.Tenant,
			"task", s.Lease.ID.String(), "seq", s.Lease.Seq, "outcome", string(s.Outcome.Kind),
			"written", string(r.Written))
	default:
		asyncflow.LogAttempt(d.log, t.Tenant, *s)
		chargeChildren(d.store, t, s)
	}
	if e.goesOn() {
		d.ledger.Release(t.Key(), 0, e.Outcome.SpawnBytes())
		return
	}
	if e.Next != nil {
		d.forgoNext(t)
	}
	d.release(t, 1, e.bytes())
}

// release gives back the capacity of n tasks.
func (d *Dispatcher) release(t *store.Type, n, bytes int) {
	d.ledger.Release(t.Key(), n, bytes)
	if d.blocked.has(t.Key()) { // there may be capacity for blocked tasks now
		d.agenda.Wake(t.Key(), d.store.Clock.Now())
	}
}

// nexts returns the leases of the tasks that go on with their next stage at once: due tasks with
// their next context at hand, in order, up to the capacity. nil: none goes on.
func (d *Dispatcher) nexts(t *store.Type, settlements []asyncflow.Settlement) []*asyncflow.Lease {
	return d.goingOn(t, settlements, d.keep)
}

// goingOn is nexts with a function that takes capacity for up to n tasks in a stage.
func (d *Dispatcher) goingOn(
	t *store.Type, settlements []asyncflow.Settlement,
	reserve func(t *store.Type, stage string, n int, now time.Time) reservation,
) []*asyncflow.Lease {
	t = currentType(d.store, t) // perhaps limits were added since the delivery began
	if len(t.Stages) == 1 && len(t.Stages[0].Next) == 0 {
		return nil
	}
	now := d.store.Clock.Now()
	var due []int
	for i := range settlements {
		if mayGoOn(t, &settlements[i], now) {
			due = append(due, i)
		}
	}
	if len(due) == 0 || !d.passes(t) {
		return nil
	}
	slices.SortFunc(due, func(a, b int) int {
		return settlements[a].Verdict.OrderTime.Compare(settlements[b].Verdict.OrderTime)
	})
	stage := settlements[due[0]].Verdict.Stage
	due = slices.DeleteFunc(due, func(i int) bool { // tasks that branched off go in line
		return settlements[i].Verdict.Stage != stage
	})
	r := reserve(t, stage, len(due), now)
	if r.n == 0 {
		return nil
	}
	bytes := 0
	nexts := make([]*asyncflow.Lease, len(settlements))
	for _, i := range due[:r.n] {
		s := &settlements[i]
		l := &asyncflow.Lease{ID: s.Lease.ID, Seq: s.Lease.Seq + 1, Options: s.Lease.Options,
			Context: nextContext(s), OrderTime: s.Verdict.OrderTime,
			CreatedAt: s.Lease.CreatedAt, DueAt: now}
		l.Stage, l.Attempt = t.Mapped(s.Verdict.Stage, s.Verdict.Attempt)
		nexts[i] = l
		bytes += l.Size()
	}
	r.use(r.n, bytes)
	return nexts
}

// mayGoOn reports whether a task at the end of a stage needs only capacity for the next one.
func mayGoOn(t *store.Type, s *asyncflow.Settlement, now time.Time) bool {
	return s.Verdict.Kind == asyncflow.Advance && !s.Verdict.OrderTime.After(now) &&
		t.LineKeyOf(s.Lease.Options) == "" && len(nextContext(s)) > 0 && t.Serves(s.Verdict.Stage)
}

// nextContext returns the context of a task's next stage, if it is at hand: the output of its stage
// or, without one, the context of that stage.
func nextContext(s *asyncflow.Settlement) []byte {
	if len(s.Outcome.Output) > 0 {
		return s.Outcome.Output
	}
	return s.Lease.Context
}
