package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// judgeSpawn returns an outcome as it counts: one that starts tasks which aren't allowed, or would
// exceed a quota, is a failed attempt.
func (d *Dispatcher) judgeSpawn(
	t *store.Type, l asyncflow.Lease, o asyncflow.Outcome, until time.Time,
) asyncflow.Outcome {
	if len(o.Spawn) == 0 || o.Kind != asyncflow.OutcomeDone {
		return o
	}
	if err := t.CheckSpawn(l, o); err != nil {
		return o.Refused(err)
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	if err := d.committer.AdmitSpawn(ctx, t, l.ID, l.Seq, o); err != nil {
		return o.Refused(err)
	}
	return o
}

// AdmitSpawn checks the tasks that an attempt starts, once CheckSpawn allows them, against their
// types and against the tenant's quotas, as submits are checked. It admits all of them or none. If
// the database doesn't count the pending tasks until ctx ends, the last count decides: the work of
// the attempt is done.
func (c *Committer) AdmitSpawn(
	ctx context.Context, by *store.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
) error {
	if len(o.Spawn) == 0 || o.Kind != asyncflow.OutcomeDone {
		return nil
	}
	tenant := by.Tenant
	quotas := asyncflow.Quotas{}
	if t, ok := c.store.Catalog.Tenant(tenant); ok {
		quotas = t.Quotas
	}
	if most := quotas.MostChildren(); len(o.Spawn) > most {
		return &asyncflow.Error{Code: asyncflow.CodeQuota,
			Quota: &asyncflow.QuotaUse{Name: asyncflow.QuotaChildren, Limit: float64(most),
				Used: float64(len(o.Spawn))},
			Message: fmt.Sprintf("the attempt would start %d tasks; the tenant's quota %s is %d",
				len(o.Spawn), asyncflow.QuotaChildren, most)}
	}
	types := map[string]*store.Type{}
	for i := range o.Spawn {
		if err := c.checkStarted(ctx, tenant, quotas, types, i, &o.Spawn[i]); err != nil {
			return err
		}
	}
	n := int64(len(o.Spawn))
	if o.Join != nil && o.Join.MaxParallel > 0 { // the remaining ones aren't tasks yet
		n = min(n, int64(o.Join.MaxParallel))
	}
	limit, used, err := c.pending.enterAll(ctx, tenant, n)
	switch {
	case err != nil && c.pending.fitsLastCount(tenant, quotas.PendingTasks, n):
	case err == nil && limit > 0:
		return asyncflow.QuotaExceeded(asyncflow.QuotaPendingTasks, float64(limit), float64(used))
	case err != nil:
		return err
	}
	err = c.store.BoundSpawn(ctx, by, id, seq, o)
	if asyncflow.CodeOf(err) == asyncflow.CodeSpawn {
		return err
	}
	return nil // as with the last count, if the database is silent
}

// checkStarted checks one task that an attempt starts. types are those that are known so far.
func (c *Committer) checkStarted(
	ctx context.Context, tenant string, quotas asyncflow.Quotas, types map[string]*store.Type,
	i int, task *asyncflow.SpawnedTask,
) error {
	t := types[task.Type]
	if t == nil {
		var err error
		if t, err = c.store.Catalog.Fresh(ctx, tenant, task.Type); err != nil {
			if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
				return asyncflow.Errorf(asyncflow.CodeSpawn, "spawn[%d].type %q doesn't exist", i,
					task.Type)
			}
			return err
		}
		types[task.Type] = t
	}
	if quota := int(quotas.ContextBytes); quota > 0 && len(task.Context) > quota {
		return asyncflow.ContextOverQuota(quota, len(task.Context))
	}
	if task.KeyWindow.Std() > t.Retention.Std() {
		return asyncflow.InvalidField(fmt.Sprintf("spawn[%d].key_window", i),
			"is %s; tasks of %s are kept for %s", task.KeyWindow, t.Name, t.Retention)
	}
	if err := c.checkStartedRules(t, i, task.Claim); err != nil {
		return err
	}
	if len(task.Priority) > 1 {
		if err := t.CheckPriority(task.Priority); err != nil {
			return err
		}
	}
	if !task.StartBy.IsZero() || !task.EndBy.IsZero() {
		return c.store.CheckKnownLately(asyncflow.CapStartedLifetimes)
	}
	return nil
}

// checkStartedRules checks who may claim a task that an attempt starts. A node that doesn't know
// such rules would make the task without them.
func (c *Committer) checkStartedRules(t *store.Type, i int, r *asyncflow.ClaimRules) error {
	if r == nil {
		return nil
	}
	if t.CheckClaimRules(r) != nil {
		return asyncflow.InvalidField(fmt.Sprintf("spawn[%d].claim", i),
			"needs a stage of mode claim, and %s has none", t.Name)
	}
	return c.store.CheckKnownLately(asyncflow.CapStartedRules)
}
