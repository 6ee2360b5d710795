package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// batches has the tasks that wait for others to go to their endpoint with them, in one request.
// They are leased, and in flight.
type batches struct {
	mu   sync.Mutex
	open map[string]*batch // by endpoint
}

// batch is a request that may still take more tasks.
type batch struct {
	t        *store.Type
	endpoint string
	leases   []asyncflow.Lease
	bytes    int         // of their contexts
	timer    *time.Timer // ends the wait of the first
}

// gather has tasks go to an endpoint with others: at once as many as fill requests, and
// the rest when they do or when the first of them has waited long enough.
func (d *Dispatcher) gather(t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease) {
	for _, full := range d.batches.add(t, e, leases, d.mostTogether(t, e), d.sendBatch) {
		d.workers.do(func() { d.sendBatch(full) })
	}
}

// mostTogether returns how many tasks fill a request: there may never be more of them at
// once.
func (d *Dispatcher) mostTogether(t *store.Type, e *asyncflow.Endpoint) int {
	most := min(e.Batch.MaxTasks, d.cfg.Concurrency)
	for _, limit := range []int{e.Limits.MaxInFlight, t.MaxInFlight,
		e.Health.Capacity(d.store.Clock.Now())} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	return most
}

// add adds tasks to the open batch of an endpoint, and returns those batches that are to
// be sent now. late is called with one that has waited long enough.
func (g *batches) add(
	t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease, most int, late func(*batch),
) (full []*batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.open[e.ID]
	for i, l := range leases {
		if b != nil && (len(b.leases) >= most || b.bytes+len(l.Context) > asyncflow.MaxBatchBytes) {
			full, b = append(full, b), nil
		}
		if b == nil {
			b = &batch{t: t, endpoint: e.ID, leases: make([]asyncflow.Lease, 0, min(most, len(leases)-i))}
		}
		b.leases = append(b.leases, l)
		b.bytes += len(l.Context)
	}
	delete(g.open, e.ID)
	if len(b.leases) >= most {
		full = append(full, b)
	} else {
		g.open[e.ID] = b
		if b.timer == nil {
			b.timer = time.AfterFunc(e.Batch.MaxWait.Std(), func() {
				if g.close(b) {
					late(b)
				}
			})
		}
	}
	for _, b := range full {
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	return full
}

// close reports whether a batch was open, and closes it.
func (g *batches) close(b *batch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[b.endpoint] != b {
		return false
	}
	delete(g.open, b.endpoint)
	return true
}

// sendOpen sends the open batches of a type, or of all, as they are: there is no capacity for
// more, or no time.
func (d *Dispatcher) sendOpen(wanted func(store.TypeKey) bool) {
	g := &d.batches
	g.mu.Lock()
	var now []*batch
	for endpoint, b := range g.open {
		if wanted(b.t.Key()) {
			now = append(now, b)
			delete(g.open, endpoint)
		}
	}
	g.mu.Unlock()
	for _, b := range now {
		b.timer.Stop()
		d.workers.do(func() { d.sendBatch(b) })
	}
}

// sendBatch makes the attempts of a batch. If its endpoint gets no tasks any more, they
// are given back and find another.
func (d *Dispatcher) sendBatch(b *batch) {
	t := b.t
	if now, err := d.store.Catalog.Type(t.Tenant, t.Name); err == nil {
		t = now
	}
	stage := b.leases[0].Stage
	endpoints := t.Endpoints(stage)
	at := slices.IndexFunc(endpoints, func(e asyncflow.Endpoint) bool { return e.ID == b.endpoint })
	if t.StageIndex(stage) < 0 || at < 0 || !endpoints[at].Serves() ||
		endpoints[at].Health.Capacity(d.store.Clock.Now()) == 0 {
		d.giveBack(t, b.leases, "the endpoint gets no tasks any more")
		return
	}
	e := &endpoints[at]
	// which may have been changed
	requests := slices.Collect(slices.Chunk(b.leases, max(1, e.Batch.MaxTasks)))
	for _, another := range requests[1:] {
		d.workers.do(func() { d.attempt(t, e, another) })
	}
	d.attempt(t, e, requests[0])
}
