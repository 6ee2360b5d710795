package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// batches holds the tasks that wait to be sent to their endpoint together, in one request. They are
// leased, and in flight.
type batches struct {
	mu   sync.Mutex
	open map[string]*sharedDelivery // by endpoint
}

// sharedDelivery is a request that may still take more tasks.
type sharedDelivery struct {
	t        *store.Type
	endpoint string
	leases   []asyncflow.Lease
	bytes    int         // of their documents
	timer    *time.Timer // limits how long the first task waits
}

// gather sends tasks to an endpoint together with other tasks. Full requests go at once; the rest
// goes when it fills a request, or when the wait of its first task is long enough.
func (d *Dispatcher) gather(t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease) {
	for _, filled := range d.batches.add(t, e, leases, d.mostTogether(t, e), d.sendBatch) {
		d.workers.Do(func() { d.sendBatch(filled) })
	}
}

// mostTogether returns how many tasks fill a request: the endpoint's batch size, or fewer if a
// limit allows no more at once.
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

// add adds tasks to the open batch of an endpoint, and returns the batches to send now. It calls
// late with a batch at the end of its wait.
func (g *batches) add(
	t *store.Type, e *asyncflow.Endpoint, leases []asyncflow.Lease, most int,
	late func(*sharedDelivery),
) (filled []*sharedDelivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.open[e.ID]
	for i, l := range leases {
		if b != nil && (len(b.leases) >= most || b.bytes+l.Size() > asyncflow.MaxBatchBytes) {
			filled = append(filled, b)
			b = nil
		}
		if b == nil {
			b = &sharedDelivery{t: t, endpoint: e.ID}
			b.leases = make([]asyncflow.Lease, 0, min(most, len(leases)-i))
		}
		b.leases = append(b.leases, l)
		b.bytes += l.Size()
	}
	delete(g.open, e.ID)
	if len(b.leases) >= most {
		filled = append(filled, b)
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
	for _, b := range filled {
		if b.timer != nil {
			b.timer.Stop()
		}
	}
	return filled
}

// close reports whether a batch was open, and closes it.
func (g *batches) close(b *sharedDelivery) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[b.endpoint] != b {
		return false
	}
	delete(g.open, b.endpoint)
	return true
}

// sendOpen sends the open batches of the wanted types as they are: there is no capacity for more
// tasks, or no time.
func (d *Dispatcher) sendOpen(wanted func(store.TypeKey) bool) {
	g := &d.batches
	g.mu.Lock()
	var now []*sharedDelivery
	for endpoint, b := range g.open {
		if wanted(b.t.Key()) {
			now = append(now, b)
			delete(g.open, endpoint)
		}
	}
	g.mu.Unlock()
	for _, b := range now {
		b.timer.Stop()
		d.workers.Do(func() { d.sendBatch(b) })
	}
}

// sendBatch makes the attempts of a batch. If its endpoint gets no tasks any more, sendBatch gives
// them back, so that they find another.
func (d *Dispatcher) sendBatch(b *sharedDelivery) {
	t := currentType(d.store, b.t)
	stage := b.leases[0].Stage
	endpoints := t.Endpoints(stage)
	at := slices.IndexFunc(endpoints, func(e asyncflow.Endpoint) bool { return e.ID == b.endpoint })
	if t.StageIndex(stage) < 0 || at < 0 || !endpoints[at].Serves() ||
		endpoints[at].Health.Capacity(d.store.Clock.Now()) == 0 {
		d.giveBack(t, b.leases, "the endpoint gets no tasks any more")
		return
	}
	e := &endpoints[at]
	leases := d.withoutHalted(t, b.leases) // since the batch began to wait
	if len(leases) == 0 {
		return
	}
	// MaxTasks may be lower by now.
	requests := slices.Collect(slices.Chunk(leases, max(1, e.Batch.MaxTasks)))
	for _, another := range requests[1:] {
		d.workers.Do(func() { d.attempt(t, e, another) })
	}
	d.attempt(t, e, requests[0])
}
