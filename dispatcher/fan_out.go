package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// fanOut settles a leased task of a stage that children do: from then on, the task waits for them.
// An empty list joins at once.
func (d *Dispatcher) fanOut(t *store.Type, l asyncflow.Lease, rule asyncflow.FanOut) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut}
	work, err := spreads{d.store, d.committer.pending, d.sending}.spread(t, l, rule)
	switch {
	case errors.Is(err, errNotCounted) || errors.Is(err, errNotRead):
		d.giveBack(t, []asyncflow.Lease{l}, err.Error())
		return
	case err != nil:
		o.Kind = asyncflow.OutcomeRejected
		o.Error = err.Error()
	case work.Count == 0:
		o.Kind = asyncflow.OutcomeJoined
		o.Output = asyncflow.NoResults
		if t.NeedsPath(l, o) {
			o.Path = d.passed(t, l, time.Now().Add(journalPatience))
		}
	default:
		o.FannedOut = &asyncflow.FannedOut{FanOut: rule, Count: work.Count}
	}
	d.settle(t, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, d.store.Clock.Now())})
}

// spreads decides whether a task may fan out, and over what.
type spreads struct {
	store   *store.Store
	pending *pendingQuotas
	sending context.Context // of its reads
}

// spread returns the work of a task that fans out, unless its context, an earlier fan-out or a
// quota forbids that.
func (p spreads) spread(
	t *store.Type, l asyncflow.Lease, rule asyncflow.FanOut,
) (work asyncflow.Spread, err error) {
	work, err = rule.Spread(l.Context)
	if err != nil {
		return work, err
	}
	err = work.CheckOwner(l.ID)
	if err != nil {
		return work, err
	}
	err = p.checkStored(t, work)
	if err != nil {
		return work, err
	}
	err = p.checkVisits(t, l, work.Count)
	if err != nil {
		return work, err
	}
	err = p.checkTree(t, l, work.Count)
	if err != nil {
		return work, err
	}
	return work, p.overQuota(t, rule, work.Count)
}

// checkVisits returns an error if a task would make too many children in all its visits of stages
// that fan out.
func (p spreads) checkVisits(t *store.Type, l asyncflow.Lease, count int) error {
	if !t.Revisits(t.StageIndex(l.Stage)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.sending, leaseTime)
	defer cancel()
	earlier, err := p.store.ChildrenOfVisits(ctx, t, l.ID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotRead, err)
	case earlier+count > asyncflow.MaxChildren:
		return fmt.Errorf("too_many_children: earlier visits made %d children, and this one "+
			"would make %d; the most of all visits is %d", earlier, count, asyncflow.MaxChildren)
	}
	return nil
}

// checkTree returns an error if the tree of a task would grow too large with count more.
func (p spreads) checkTree(t *store.Type, l asyncflow.Lease, count int) error {
	ctx, cancel := context.WithTimeout(p.sending, leaseTime)
	defer cancel()
	err := p.store.GrowTree(ctx, t, l.Options, count)
	if err != nil && asyncflow.CodeOf(err) != asyncflow.CodeSpawn {
		err = fmt.Errorf("%w: %w", errNotRead, err)
	}
	return err
}

// errNotRead is that the earlier fan-out of a task can't be read now.
var errNotRead = errors.New("the earlier fan-out can't be read")

// checkStored returns an error if the items are the results of a fan-out that doesn't exist, or of
// one with another number of children: anyone can write the context.
func (p spreads) checkStored(t *store.Type, work asyncflow.Spread) error {
	stored := work.Stored
	if stored == (asyncflow.StoredResults{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.sending, leaseTime)
	defer cancel()
	count, err := p.store.ChildCount(ctx, t, stored)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotRead, err)
	case count == 0:
		return fmt.Errorf("fan_out.items: task %s has no fan-out %d, or it is no longer kept",
			stored.Task, stored.FanOut)
	case count != work.Count:
		return fmt.Errorf("fan_out.items: count is %d; fan-out %d of task %s has %d results",
			work.Count, stored.FanOut, stored.Task, count)
	}
	return nil
}

// errNotCounted is that the pending tasks of a tenant can't be counted now.
var errNotCounted = errors.New("the tenant's pending tasks can't be counted")

// overQuota returns an error if a task would make more children than the quotas of its tenant
// allow: in all, or as pending tasks at once.
func (p spreads) overQuota(t *store.Type, rule asyncflow.FanOut, count int) error {
	most := asyncflow.DefaultMaxChildren
	if tenant, ok := p.store.Catalog.Tenant(t.Tenant); ok {
		most = tenant.Quotas.MostChildren()
	}
	if count > most {
		return fmt.Errorf("fan_out: the task would have %d children; the tenant's quota %s is %d",
			count, asyncflow.QuotaChildren, most)
	}
	switch { // the remaining children aren't tasks yet
	case rule.MaxParallel > 0:
		count = min(count, rule.MaxParallel)
	case rule.Quorum != nil:
		count = rule.Quorum.Votes
	}
	limit, used, err := p.pending.enterAll(p.sending, t.Tenant, int64(count))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotCounted, err)
	case limit > 0:
		return fmt.Errorf("fan_out: %d children would be pending at once; the tenant's quota %s "+
			"is %d, and %d are in use", count, asyncflow.QuotaPendingTasks, limit, used)
	}
	return nil
}

// chargeChildren counts the children of a task that fanned out in its tenant's rate of submits,
// unless the submit counted them: one over HTTP, or a tick, counts what it knows of all stages that
// a task visits once.
func chargeChildren(st *store.Store, t *store.Type, s *asyncflow.Settlement) {
	made := s.Outcome.FannedOut
	if made == nil {
		return
	}
	first := s.Lease.Stage == t.Stages[0].Name && s.Lease.Options.ContextFrom == ""
	known := (made.FanOut.Items == "" || first) && !t.Revisits(t.StageIndex(s.Lease.Stage))
	if known && s.Lease.ID.Sequence() < asyncflow.FirstBySQL {
		return
	}
	st.ChargeSubmits(t.Tenant, made.Count)
}

// withoutHalted parks the leased children of paused or ended parents, and returns the other tasks.
func (d *Dispatcher) withoutHalted(t *store.Type, leases []asyncflow.Lease) []asyncflow.Lease {
	awaited := func(l asyncflow.Lease) bool { return l.Options.IsAwaited() }
	if !slices.ContainsFunc(leases, awaited) {
		return leases
	}
	ctx, cancel := context.WithTimeout(d.sending, leaseTime)
	defer cancel()
	running, err := d.store.ParkHalted(ctx, t, leases)
	if err != nil {
		d.giveBack(t, leases, "it can't be read whether parents still wait: "+err.Error())
		return nil
	}
	if n := len(leases) - len(running); n > 0 {
		d.release(t, n, contextBytes(leases)-contextBytes(running))
	}
	return running
}
