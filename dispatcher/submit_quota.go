package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// pendingQuotas enforces tenants' quotas of pending tasks cheaply. A node counts a tenant's live
// tasks now and then, and adds the tasks that it admitted since. So a single node never admits too
// many. Of several nodes, each admits its share of what the count leaves; a node that needs more
// waits a moment and counts again. Together they may exceed the quota by what the other nodes
// admitted since a count. That is little, since the shares are small near the quota.
type pendingQuotas struct {
	store *store.Store
	log   *slog.Logger

	mu      sync.Mutex
	tenants map[string]*pendingCount // tenants with the quota
}

const (
	// countEvery is the greatest age of a count. The least age is countPause, or countCost times as
	// long as a count takes, up to countEvery.
	countEvery = time.Second
	countPause = 50 * time.Millisecond
	countCost  = 20
)

func newPendingQuotas(s *store.Store, log *slog.Logger) *pendingQuotas {
	return &pendingQuotas{store: s, log: log, tenants: map[string]*pendingCount{}}
}

func (q *pendingQuotas) countOf(tenant string) *pendingCount {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.tenants[tenant]
	if p == nil {
		p = &pendingCount{}
		q.tenants[tenant] = p
	}
	return p
}

// pendingCount is the number of a tenant's live tasks.
type pendingCount struct {
	underway atomic.Int64 // admitted by this node, and not written yet

	mu      sync.Mutex // stays locked while the database counts
	counted int64
	since   int64 // admitted by this node since the count began, or under way then
	at      time.Time
	took    time.Duration
}

// enter admits up to n tasks and returns how many. The caller must call leave for these. If it is
// to be exact, it refuses none before its count.
func (p *pendingCount) enter(
	ctx context.Context, limit, n int64, nodes int, exact bool,
	count func(context.Context) (int64, error),
) (granted, used int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.at)
	pause := min(countEvery, max(countPause, countCost*p.took))
	rest := limit - p.counted - p.since
	again := age > countEvery
	switch nodeShare := max(0, limit-p.counted) / int64(nodes); {
	case n > rest && !exact: // some may be over
		again = again || age > pause
	case n > rest:
		again = true
		sleep.For(ctx, pause-age)
	case p.since+n > nodeShare: // the rest is for other nodes, unless a new count shows it free
		again = true
		sleep.For(ctx, pause-age)
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

// count counts the tasks. Those under way when it begins may or may not be included. If no other
// node admits any, there are no more than were known before.
func (p *pendingCount) count(
	ctx context.Context, alone bool, count func(context.Context) (int64, error),
) error {
	start := time.Now()
	since := p.underway.Load()
	counted, err := count(ctx)
	if err != nil {
		return err
	}
	if alone && !p.at.IsZero() {
		since = min(since, max(0, p.counted+p.since-counted))
	}
	p.counted = counted
	p.since = since
	p.at = time.Now()
	p.took = time.Since(start)
	return nil
}

// withdraw takes n admitted tasks back: they aren't written.
func (p *pendingCount) withdraw(n int64) {
	p.leave(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = max(0, p.since-n)
}

// leave records that n admitted tasks are written or refused.
func (p *pendingCount) leave(n int64) { p.underway.Add(-n) }

// enter checks tasks against the tenant's quota of pending tasks. It refuses the tasks over the
// quota in results, unless their key belongs to an existing task and they don't cancel that: a task
// that replaces it may only do so. The caller must call leave when the admitted tasks are written.
func (q *pendingQuotas) enter(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []store.Submitted,
) (leave func()) {
	t, ok := q.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.PendingTasks == 0 || len(tasks) == 0 {
		return func() {}
	}
	p := q.countOf(tenant)
	granted, used, err := p.enter(ctx, t.Quotas.PendingTasks, int64(len(tasks)), q.store.APINodes(),
		false, func(ctx context.Context) (int64, error) { return q.store.CountLive(ctx, tenant) })
	if err == nil && granted < int64(len(tasks)) {
		err = asyncflow.QuotaExceeded(asyncflow.QuotaPendingTasks, float64(t.Quotas.PendingTasks),
			float64(used+granted))
	}
	if err != nil {
		known, lookErr := q.store.KnownKeys(ctx, tenant, tasks[granted:])
		if lookErr != nil {
			q.log.Warn("can't look for keys; they are taken for new ones", "tenant", tenant,
				"error", lookErr)
		}
		for i, known := range known {
			task := &tasks[int(granted)+i]
			switch {
			case known && task.OnConflict == asyncflow.ConflictReplace:
				task.OnlyReplaces = err
			case !known || task.OnConflict == asyncflow.ConflictCancel:
				results[int(granted)+i].Err = err
			}
		}
	}
	return func() { p.leave(granted) }
}

// enterAll admits n tasks that a tenant's task makes, or none of them. limit is the quota that they
// would exceed, and used is its part in use; 0: they don't exceed it.
func (q *pendingQuotas) enterAll(
	ctx context.Context, tenant string, n int64,
) (limit, used int64, err error) {
	t, ok := q.store.Catalog.Tenant(tenant)
	if !ok || t.Quotas.PendingTasks <= 0 || n == 0 {
		return 0, 0, nil
	}
	p := q.countOf(tenant)
	granted, used, err := p.enter(ctx, t.Quotas.PendingTasks, n, q.store.APINodes(), true,
		func(ctx context.Context) (int64, error) { return q.store.CountLive(ctx, tenant) })
	if err == nil && granted == n {
		p.leave(n) // they are written soon
		return 0, 0, nil
	}
	p.withdraw(granted)
	return t.Quotas.PendingTasks, used, err
}

// fitsLastCount admits n tasks if that many are left by the last count, and reports whether it did.
// It asks nothing.
func (q *pendingQuotas) fitsLastCount(tenant string, limit, n int64) bool {
	p := q.countOf(tenant)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > limit-p.counted-p.since {
		return false
	}
	p.since += n
	return true
}
