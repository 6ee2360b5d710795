package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// pendingQuotas keep tenants' quotas of pending tasks cheaply: a node counts a tenant's live
// tasks now and then, and adds what it has let in since. So one node alone never lets in too
// many. Of several nodes, each lets in its share of the rest that it has counted; one that needs
// more waits a moment and counts again. They may get over the quota by what the others let in
// since a count, which is little, as near the quota the shares are small.
type pendingQuotas struct {
	store *store.Store
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*pendingCount // of those that have the quota
}

const (
	// countEvery is the greatest age of a count, countPause the least, or countCost
	// times as long as a count takes; that is no more than countEvery.
	countEvery = time.Second
	countPause = 50 * time.Millisecond
	countCost  = 20
)

func newPendingQuotas(s *store.Store, log *slog.Logger) *pendingQuotas {
	return &pendingQuotas{store: s, log: log, tenants: map[string]*pendingCount{}}
}

func (q *pendingQuotas) of(tenant string) *pendingCount {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.tenants[tenant]
	if p == nil {
		p = &pendingCount{}
		q.tenants[tenant] = p
	}
	return p
}

// pendingCount is how many live tasks a tenant has.
type pendingCount struct {
	underway atomic.Int64 // let in by this node, and not written yet

	mu      sync.Mutex // stays locked while the database counts
	counted int64
	since   int64 // let in by this node since, or under way when the count began
	at      time.Time
	took    time.Duration
}

// enter lets in up to n tasks and returns how many. leave must be called for these.
func (p *pendingCount) enter(ctx context.Context, limit, n int64, nodes int,
	count func(context.Context) (int64, error)) (
	granted, used int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age, pause := time.Since(p.at), min(countEvery, max(countPause, countCost*p.took))
	rest := limit - p.counted - p.since
	again := age > countEvery
	switch share := max(0, limit-p.counted) / int64(nodes); {
	case n > rest: // some may have ended
		again = again || age > pause
	case p.since+n > share: // the rest is the others', unless they haven't used it
		again = true
		sleep(ctx, pause-age)
	}
	if again {
		if err := p.count(ctx, nodes == 1, count); err != nil {
			return 0, 0, err
		}
	}
	used = p.counted + p.since
	granted = min(n, max(0, limit-used))
	p.since += granted
	p.underway.Add(granted)
	return granted, used, nil
}

// count counts the tasks. What is under way when it begins may not be among them; some of
// it may. There are no more than were known before, if nobody else lets any in.
func (p *pendingCount) count(
	ctx context.Context, alone bool, count func(context.Context) (int64, error),
) error {
	start, since := time.Now(), p.underway.Load()
	counted, err := count(ctx)
	if err != nil {
		return err
	}
	if alone && !p.at.IsZero() {
		since = min(since, max(0, p.counted+p.since-counted))
	}
	p.counted, p.since, p.at, p.took = counted, since, time.Now(), time.Since(start)
	return nil
}

// leave takes in that n tasks that were let in are written, or refused.
func (p *pendingCount) leave(n int64) { p.underway.Add(-n) }

// enter holds tasks against the tenant's quota of pending tasks: those over it are refused in
// results, unless their key stands for a task already. leave is to be called when the others are
// written.
func (q *pendingQuotas) enter(ctx context.Context, tenant string, tasks []asyncflow.NewTask,
	results []store.Submitted) (
	leave func()) {
	t, ok := q.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.PendingTasks == 0 || len(tasks) == 0 {
		return func() {}
	}
	p := q.of(tenant)
	granted, used, err := p.enter(ctx, t.Quotas.PendingTasks, int64(len(tasks)), q.store.APINodes(),
		func(ctx context.Context) (int64, error) { return q.store.CountLive(ctx, tenant) })
	if err == nil && granted < int64(len(tasks)) {
		err = asyncflow.QuotaExceeded(asyncflow.QuotaPendingTasks, float64(t.Quotas.PendingTasks),
			float64(used+granted))
	}
	if err != nil {
		known, lookErr := q.store.KnownKeys(ctx, tenant, tasks[granted:])
		if lookErr != nil {
			q.log.Warn("can't look for keys; they are taken for new ones", "tenant", tenant, "error",
				lookErr)
		}
		for i, known := range known {
			if !known {
				results[int(granted)+i].Err = err
			}
		}
	}
	return func() { p.leave(granted) }
}
