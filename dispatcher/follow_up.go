package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/batch"
	"github.com/asyncflow/asyncflow/store"
)

// followUps does what settlements have left to do (see store.FollowUp): for each tenant one
// transaction at a time, and another one if more has come meanwhile.
type followUps struct {
	*Committer
	tells *batch.Batcher[string, time.Duration] // by tenant: how long what is to do may linger
	slots chan struct{}

	mu     sync.RWMutex
	closed bool // the store may be closed: nothing begins any more
}

const (
	// followers is how many tenants are handled at once.
	followers = 2
	// followTime bounds one transaction.
	followTime = 30 * time.Second
)

func newFollowUps(c *Committer) *followUps {
	f := &followUps{Committer: c, slots: make(chan struct{}, followers)}
	f.tells = batch.New(c.writing, f.run)
	f.tells.Linger = func(linger time.Duration) time.Duration { return linger }
	return f
}

// tell says that there is something to do for a tenant, which may wait for more. The store may
// call it late, by a timer: after close it does nothing, and a background job does the work.
func (f *followUps) tell(tenant string, linger time.Duration) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.closed && f.writing.Err() == nil {
		f.tells.Add(tenant, linger)
	}
}

func (f *followUps) run(ctx context.Context, tenant string, _ []time.Duration) {
	f.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(ctx, followTime)
	more, err := f.store.FollowUp(ctx, tenant, f.Starter())
	cancel()
	<-f.slots
	if err != nil && f.writing.Err() == nil {
		f.log.Warn("can't follow up what has ended; a background job will", "tenant", tenant,
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

// Starter returns what begins tasks on this node that FollowUp finds to be due; nil: it has no
// dispatcher.
func (c *Committer) Starter() store.Starter {
	if c.dispatcher == nil {
		return nil
	}
	return starter{c.dispatcher}
}

// starter lets parents go on and children begin at once: see store.Starter.
type starter struct{ *Dispatcher }

func (d starter) Admit(t *store.Type, settled []asyncflow.Settlement) []*asyncflow.Lease {
	return d.goingOn(t, settled, d.reserveNext)
}

func (d starter) AdmitNew(t *store.Type, made []*store.Insertion) {
	d.admitNew(d.sending, t, made, 0)
}

func (d starter) Start(t *store.Type, leases []*asyncflow.Lease, committed bool) {
	all := make([]asyncflow.Lease, len(leases))
	for i, l := range leases {
		all[i] = *l
	}
	if committed {
		d.start(t, all)
		return
	}
	d.forgo(t, len(all), contextBytes(all))
}
