package dispatcher

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// How many submits of a type may wait for their keys, and how many leases of deliveries that were
// answered with 202 are remembered.
const (
	HeldMost     = heldMost
	AcceptedMost = acceptedMost
)

// HeldKeys returns how many submits wait for keys that others hold.
func (c *Committer) HeldKeys() (n int) {
	c.heldKeys.mu.Lock()
	defer c.heldKeys.mu.Unlock()
	for _, q := range c.heldKeys.queues {
		n += len(q.items)
	}
	return n
}

// SetAcceptedWait sets how long it isn't written down that a delivery was answered with 202.
func (c *Committer) SetAcceptedWait(d time.Duration) { c.accepted.wait = d }

// SettleUntil is Settle for a worker that waits until a time.
func (c *Committer) SettleUntil(
	until time.Time, tenant string, settlement asyncflow.Settlement, done func(store.Settled),
) {
	c.settleUntil(until, tenant, settlement, done)
}

// KeptTypes returns of how many types the committer keeps something.
func (c *Committer) KeptTypes() int {
	kept := map[store.TypeKey]bool{}
	collect := func(key store.TypeKey) bool {
		kept[key] = true
		return false
	}
	c.keyed.forget(collect)
	c.lookups.forget(collect)
	c.freed.forget(collect)
	return len(kept)
}

// WritesApart returns how many kinds of writes of types are written apart from the others.
func (c *Committer) WritesApart() int {
	c.aside.mu.Lock()
	defer c.aside.mu.Unlock()
	return len(c.aside.waiting)
}

// Nexts returns the leases with which tasks go on at once; nil: there are none.
func (d *Dispatcher) Nexts(t *store.Type, settlements []asyncflow.Settlement) []*asyncflow.Lease {
	return d.nexts(t, settlements)
}
