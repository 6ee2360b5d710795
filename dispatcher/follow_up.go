package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/batch"
	"github.com/asyncflow/asyncflow/store"
)

// followUps does what settlements leave to do (see store.FollowUp): for each tenant one transaction
// at a time, and another one if more came meanwhile.
type followUps struct {
	c     *Committer
	tells *batch.Batcher[string, time.Duration] // by tenant: how long what is to do may linger
	// slots has a chan struct{} for each server: one that is silent holds up no other.
	slots sync.Map

	mu     sync.RWMutex
	closed bool                      // the store may be closed: nothing begins any more
	timers map[string]*followUpTimer // by tenant: that of tellAfter
}

// followUpTimer is a tell to come.
type followUpTimer struct {
	*time.Timer
	at time.Time
}

const (
	// followers is how many tenants of a server are handled at once.
	followers = 2
	// followTime bounds one transaction.
	followTime = 30 * time.Second
)

func newFollowUps(c *Committer) *followUps {
	f := &followUps{c: c, timers: map[string]*followUpTimer{}}
	f.tells = batch.New(c.writing, f.run)
	f.tells.Linger = func(linger time.Duration) time.Duration { return linger }
	return f
}

// tell says that there is something to do for a tenant, which may wait for more. A timer may call
// it late: after close it does nothing, and a background job does the work.
func (f *followUps) tell(tenant string, linger time.Duration) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.closed && f.c.writing.Err() == nil {
		f.tells.Add(tenant, linger)
	}
}

func (f *followUps) run(ctx context.Context, tenant string, _ []time.Duration) {
	found, _ := f.slots.LoadOrStore(f.c.store.FollowServer(tenant), make(chan struct{}, followers))
	slots := found.(chan struct{})
	slots <- struct{}{}
	ctx, cancel := context.WithTimeout(ctx, followTime)
	more, err := f.c.FollowUp(ctx, tenant)
	cancel()
	<-slots
	_, known := f.c.store.Catalog.Tenant(tenant) // it may be deleted meanwhile
	if err != nil && known && f.c.writing.Err() == nil {
		f.c.log.Warn("can't follow up what has ended; a background job will", "tenant", tenant,
			"error", err)
	}
	if more {
		f.tell(tenant, 0)
	}
}

// close waits until nothing is being done, and begins nothing after that.
func (f *followUps) close() {
	f.tells.Drain()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.tells.Drain()
}

// FollowUp does some of what earlier transactions of a tenant left to do, and reports whether there
// may be more. Tasks begin at once as far as this node's capacity allows. What fails is tried again
// after a pause.
func (c *Committer) FollowUp(ctx context.Context, tenant string) (more bool, err error) {
	more, _, err = c.followUps.try(ctx, tenant, store.FollowUpRows)
	if err == nil || ctx.Err() != nil {
		return more, err
	}
	if store.RolledOn(err) {
		_ = c.store.Catalog.RefreshTenant(ctx, tenant)
	}
	_, row, err := c.followUps.try(ctx, tenant, 1) // so that one row holds up no other
	if err == nil {
		return true, nil
	}
	again, err := c.store.RestFollowUp(ctx, tenant, row, err)
	if err != nil {
		return again > 0, err
	}
	c.followUps.tellAfter(tenant, again)
	return row != 0 && again > 0, nil // other rows go on
}

// tellAfter is tell after a while, unless that is 0. If a timer goes off before, the FollowUp that
// it calls says again when the next row is due.
func (f *followUps) tellAfter(tenant string, again time.Duration) {
	if again == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now().Add(again)
	if first := f.timers[tenant]; first != nil {
		if first.at.Before(at) {
			return
		}
		first.Stop()
	}
	timer := &followUpTimer{at: at}
	timer.Timer = time.AfterFunc(again, func() {
		f.mu.Lock()
		if f.timers[tenant] == timer {
			delete(f.timers, tenant)
		}
		f.mu.Unlock()
		f.tell(tenant, 0)
	})
	f.timers[tenant] = timer
}

// try is one transaction of FollowUp over up to n rows. row is the first of them.
func (f *followUps) try(
	ctx context.Context, tenant string, n int,
) (more bool, row int64, err error) {
	work := f.c.store.BeginFollowUp(ctx, tenant, n)
	defer work.Rollback()
	var begin []*store.Beginning
	if f.c.dispatcher != nil { // otherwise all tasks go in line
		begin = work.MayBegin()
	}
	for _, b := range begin {
		f.c.dispatcher.admitFollowing(b)
	}
	more, err = work.Commit()
	for _, b := range begin {
		f.c.dispatcher.startFollowing(b, work.Committed())
	}
	if err != nil {
		return more, work.Row(), err
	}
	f.tellAfter(tenant, work.Again())
	return more, work.Row(), nil
}

// SweepFollowUps is FollowUp for a background job. It also ends the waits for tasks that didn't
// come in time. It returns how many rows it found, and reports whether there may be more.
func (c *Committer) SweepFollowUps(
	ctx context.Context, tenant string,
) (n int, more bool, err error) {
	n, late, err := c.store.SweepWaits(ctx, tenant)
	if err != nil || n == 0 {
		return n, false, err
	}
	more, err = c.FollowUp(ctx, tenant)
	return n, more || late, err
}

// admitFollowing gives leases to tasks of a FollowUp for which there is capacity.
func (d *Dispatcher) admitFollowing(b *store.Beginning) {
	if len(b.New) > 0 {
		d.admitNew(d.sending, b.Type, b.New, 0)
	}
	if len(b.Settled) > 0 {
		b.Next = d.goingOn(b.Type, b.Settled, d.reserveNext)
	}
}

// startFollowing begins with the leases of a FollowUp, or gives their capacity back if they were
// not committed.
func (d *Dispatcher) startFollowing(b *store.Beginning, committed bool) {
	if len(b.Leases) == 0 {
		return
	}
	all := make([]asyncflow.Lease, len(b.Leases))
	for i, l := range b.Leases {
		all[i] = *l
	}
	if committed {
		d.start(b.Type, all)
		return
	}
	d.forgo(b.Type, len(all), contextBytes(all))
}
