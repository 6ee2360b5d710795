package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/slots"
	"github.com/asyncflow/asyncflow/store"
)

// HeldMost is how many keys of a type submits may wait for, LeastTries how often each is tried, and
// HeldPause the pause before a try. AcceptedMost is how many leases of deliveries answered with 202
// are remembered.
const (
	HeldMost     = heldMost
	LeastTries   = leastTries
	HeldPause    = heldPause
	AcceptedMost = acceptedMost
)

// SetHeldPatience sets how long a submit waits for its key.
func (c *Committer) SetHeldPatience(d time.Duration) {
	c.heldKeys.mu.Lock()
	defer c.heldKeys.mu.Unlock()
	c.heldKeys.patience = d
}

// HeldKeys returns how many submits wait for locked keys.
func (c *Committer) HeldKeys() (n int) {
	c.heldKeys.mu.Lock()
	defer c.heldKeys.mu.Unlock()
	for _, q := range c.heldKeys.queues {
		n += len(q.items)
	}
	return n
}

// SetAcceptedWait sets how long a 202 stays unwritten.
func (c *Committer) SetAcceptedWait(d time.Duration) { c.accepted.wait = d }

// SettleUntil is Settle for a worker that waits until a time.
func (c *Committer) SettleUntil(
	until time.Time, tenant string, settlement asyncflow.Settlement, done func(store.Settled),
) {
	c.settleUntil(until, tenant, settlement, done)
}

// WritesApart returns how many tenants, and kinds of writes of types, are written apart from the
// others.
func (c *Committer) WritesApart() int {
	c.failedWrites.mu.Lock()
	defer c.failedWrites.mu.Unlock()
	return len(c.failedWrites.waiting) + len(c.failedWrites.locked)
}

// Nexts returns the leases with which tasks go on at once that took the node's capacity, and gives
// back all of it; nil: there are none, or others may stand in line.
func (d *Dispatcher) Nexts(
	t *store.Type, settlements []asyncflow.Settlement,
) (nexts []*asyncflow.Lease) {
	if empty, _ := d.idle(t.Key()); !empty {
		return nil
	}
	n, bytes := len(settlements), 0
	for _, s := range settlements {
		bytes += s.Lease.Size()
	}
	d.ledger.Occupy(t.Key(), n)
	d.ledger.Arrived(t.Key(), n, bytes)
	d.ledger.Begun(t.Key(), n)
	d.ledger.Took(t.Key(), time.Millisecond, d.store.Clock.Now())
	nexts = d.nexts(t, settlements)
	for _, l := range nexts {
		if l != nil {
			d.ledger.Begun(t.Key(), 1)
		}
	}
	d.ledger.Release(t.Key(), n, bytes)
	return nexts
}

// TellFollowUp says that there is something to follow up in a tenant, and waits until it is done.
func (c *Committer) TellFollowUp(tenant string) {
	c.followUps.tell(tenant, 0)
	c.followUps.tells.Drain()
}

// EarlierTimerReplaces sets two timers of a tenant, and reports whether the first one is stopped.
func EarlierTimerReplaces(one, two time.Duration) bool {
	f := &followUps{timers: map[string]*followUpTimer{}}
	f.tellAfter("a", one)
	first := f.timers["a"]
	f.tellAfter("a", two)
	defer func() { f.timers["a"].Stop() }()
	return !first.Stop()
}

// StopFollowUps makes the node follow up only when a test calls FollowUp.
func (c *Committer) StopFollowUps() { c.followUps.close() }

// StopListening leaves the news to the calls that need them.
func (c *Committer) StopListening() {
	c.closing.Do(func() { close(c.closed) })
	c.hear()
}

// Unread returns the unread news.
func (c *Committer) Unread() store.News { return c.news.Read() }

// Persist tries do until it succeeds or ctx ends.
func (c *Committer) Persist(ctx context.Context, key store.TypeKey, do func() error) error {
	return c.persist(ctx, "test", key, isFinal, do)
}

// NewIdleCommitter returns a committer that writes nothing: it comes with all that tries need.
func NewIdleCommitter() *Committer {
	return &Committer{log: slog.New(slog.DiscardHandler),
		tenantSlots: slots.NewPerTenant(tenantTries)}
}
