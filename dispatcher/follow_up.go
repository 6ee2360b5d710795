package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// followUps does what settlements have left to do (see store.FollowUp): for each tenant one
// transaction at a time, and another one if more has come meanwhile.
type followUps struct {
	*Committer
	mu      sync.Mutex
	tenants map[string]bool // being handled; true: more has come
	slots   chan struct{}
	running sync.WaitGroup
}

const (
	// followers is how many tenants are handled at once.
	followers = 2
	// followTime bounds one transaction.
	followTime = 30 * time.Second
)

func newFollowUps(c *Committer) *followUps {
	return &followUps{Committer: c, tenants: map[string]bool{}, slots: make(chan struct{}, followers)}
}

// tell says that there is something to do for a tenant.
func (f *followUps) tell(tenant string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, running := f.tenants[tenant]
	f.tenants[tenant] = running
	if !running && f.writing.Err() == nil {
		f.running.Go(func() { f.run(tenant) })
	}
}

func (f *followUps) run(tenant string) {
	for again := true; again; {
		f.slots <- struct{}{}
		ctx, cancel := context.WithTimeout(f.writing, followTime)
		more, err := f.store.FollowUp(ctx, tenant)
		cancel()
		<-f.slots
		if err != nil && f.writing.Err() == nil {
			f.log.Warn("can't follow up what has ended; a background job will", "tenant", tenant,
				"error", err)
		}
		again = f.again(tenant, more)
	}
}

// again reports whether there is more to do for a tenant. Otherwise it forgets the tenant.
func (f *followUps) again(tenant string, more bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (more || f.tenants[tenant]) && f.writing.Err() == nil {
		f.tenants[tenant] = false
		return true
	}
	delete(f.tenants, tenant)
	return false
}

// drain waits until nothing is being done.
func (f *followUps) drain() { f.running.Wait() }

// starter has tasks go on at once whose children have ended: see store.Starter.
type starter struct{ *Dispatcher }

func (d starter) Admit(t *store.Type, settled []asyncflow.Settlement) []*asyncflow.Lease {
	nexts := d.goingOn(t, settled, d.reserveNext)
	n, bytes := 0, 0
	for _, l := range nexts {
		if l != nil {
			n, bytes = n+1, bytes+l.Size()
		}
	}
	d.ledger.Arrived(t.Key(), n, bytes)
	return nexts
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
	d.refund(t.Tenant, len(all))
	d.ledger.Begun(t.Key(), len(all))
	d.ledger.Release(t.Key(), len(all), contextBytes(all))
}
