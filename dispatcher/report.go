package dispatcher

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// This file handles the reports of workers: how an attempt ended, and that it is still running.

// reportPatience is how long a worker's report may wait for the batches before it. After that the
// worker is told to report again.
const reportPatience = 30 * time.Second

// Settle ends a lease as its worker reports. If the lease still stands, one transaction, shared
// with other writes, deletes its row and writes the journal row and the effects of the verdict.
// Settle calls done once, with the result; done must not block.
func (c *Committer) Settle(
	tenant string, settlement asyncflow.Settlement, done func(store.Settled),
) {
	c.settleUntil(time.Now().Add(reportPatience), tenant, settlement, done)
}

func (c *Committer) settleUntil(
	until time.Time, tenant string, settlement asyncflow.Settlement, done func(store.Settled),
) {
	key := leaseKeyOf(tenant, settlement.Lease.ID, settlement.Lease.Seq)
	accepted := c.accepted.forget(key)
	c.add(key.TypeKey, &write{key: key.TypeKey, settle: &ending{
		Ending: store.Ending{Settlement: &settlement},
		until:  until,
		done: func(e *ending) {
			if e.Settled.Err != nil && accepted != nil { // the worker may report again
				c.add(key.TypeKey, accepted.extension(key.TypeKey))
			}
			done(e.Settled)
		},
	}})
}

// Extend moves the end of a lease that still stands, and tells done whether it stood. If the lease
// now ends sooner, the background jobs hear of it. The same transaction writes the checkpoint of
// the attempt, and what was seen of it.
func (c *Committer) Extend(
	tenant string, l asyncflow.Lease, until time.Time, checkpoint store.Checkpoint,
	seen store.Seen, done func(stands bool, err error),
) {
	key := leaseKeyOf(tenant, l.ID, l.Seq)
	seen = seen.Or(c.accepted.extended(key))
	c.add(key.TypeKey, &write{key: key.TypeKey, extend: &extension{
		Extension: store.Extension{ID: l.ID, Seq: l.Seq, Until: until, Checkpoint: checkpoint,
			Seen: seen, Knew: l.Until, Sooner: until.Before(l.Until)},
		done:  done,
		until: time.Now().Add(reportPatience),
	}})
}

// Prolong extends claims after the answer is with the worker: from now on, a claim gets the
// processing time of its stage. A claim stays as it is if the worker reported on it meanwhile, or
// if it was handed out again.
func (c *Committer) Prolong(tenant string, leases []asyncflow.Lease) {
	t, err := c.store.Catalog.Type(tenant, leases[0].ID.Type)
	if err != nil { // it was deleted
		return
	}
	now := c.store.Clock.Now()
	for _, l := range leases {
		if !t.Unseen(l) { // it is prolonged already
			continue
		}
		key := leaseKeyOf(tenant, l.ID, l.Seq)
		had := l.Until
		c.add(key.TypeKey, &write{key: key.TypeKey, extend: &extension{
			Extension: store.Extension{ID: l.ID, Seq: l.Seq, Had: &had,
				Until: l.Options.Lifetime.EndsBefore(now.Add(t.ProcessingTime(l.Stage)))},
			done:  func(bool, error) {},
			until: time.Now().Add(reportPatience),
		}})
	}
}

// lookupPatience bounds a read of leases in case the database doesn't answer.
const lookupPatience = 10 * time.Second

// lookup asks for a lease.
type lookup struct {
	id     asyncflow.TaskID
	seq    int
	answer chan<- lookedUp // takes one without blocking
}

type lookedUp struct {
	lease  asyncflow.Lease
	stands bool
	err    error
}

// LeaseOf returns the lease of a task's attempt, without its context, if it stands. It reads leases
// that several callers ask for at the same time together.
func (c *Committer) LeaseOf(
	ctx context.Context, tenant string, id asyncflow.TaskID, seq int,
) (l asyncflow.Lease, stands bool, err error) {
	answer := make(chan lookedUp, 1)
	c.lookups.Add(store.TypeKey{Tenant: tenant, Type: id.Type}, lookup{id, seq, answer})
	select {
	case a := <-answer:
		return a.lease, a.stands, a.err
	case <-ctx.Done():
		return l, false, unanswered("the database doesn't answer; try again")
	}
}

// lookUp answers a batch of lookups of one type.
func (c *Committer) lookUp(ctx context.Context, key store.TypeKey, items []lookup) {
	ctx, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	leases, err := c.leasesOf(ctx, key, items)
	for _, item := range items {
		l, stands := leases[item.id]
		if stands = stands && l.Seq == item.seq && err == nil; !stands {
			l = asyncflow.Lease{}
		}
		item.answer <- lookedUp{l, stands, err}
	}
}

// leasesOf reads the leases that lookups of one type ask for.
func (c *Committer) leasesOf(
	ctx context.Context, key store.TypeKey, items []lookup,
) (map[asyncflow.TaskID]asyncflow.Lease, error) {
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return nil, err
	}
	ids := make([]asyncflow.TaskID, len(items))
	for i, item := range items {
		ids[i] = item.id
	}
	return c.store.LeasesOf(ctx, t, ids)
}

// quiescePatience bounds the wait for leases of a type that was paused.
const quiescePatience = 10 * time.Second

// Quiesce waits until no lease statement of some paused types is under way on this node. After that
// no attempt of theirs begins here until they are resumed.
func (c *Committer) Quiesce(ctx context.Context, keys ...store.TypeKey) {
	ctx, cancel := context.WithTimeout(ctx, quiescePatience)
	defer cancel()
	for _, key := range keys {
		c.claims.quiesce(ctx, key)
		if c.dispatcher != nil {
			c.dispatcher.ledger.AwaitLeases(ctx, key)
		}
	}
}

// QuiesceTenant is Quiesce for all types of a tenant, if the tenant is suspended.
func (c *Committer) QuiesceTenant(ctx context.Context, tenant string) {
	var keys []store.TypeKey
	for _, t := range c.store.Catalog.TypesOf(tenant) {
		if t.Suspended() {
			keys = append(keys, t.Key())
		}
	}
	c.Quiesce(ctx, keys...)
}
