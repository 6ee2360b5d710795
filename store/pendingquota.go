package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// How the quota of pending tasks is kept cheaply: a node counts a tenant's live tasks now
// and then, and adds what it has let in itself since. So one node alone never lets in too
// many. Of several, each lets in its share of the room that it has counted; who needs
// more waits a moment and counts again. They may get over the quota by what the others let
// in since a count, which is little, as near the quota the shares are small.

const (
	// countEvery is the greatest age of a count, countPause the least, or countCost
	// times as long as a count takes; that is no more than countEvery.
	countEvery = time.Second
	countPause = 50 * time.Millisecond
	countCost  = 20
)

// pendings are the counts of those tenants that have the quota.
type pendings struct {
	mu      sync.Mutex
	tenants map[string]*pending
}

func newPendings() *pendings { return &pendings{tenants: map[string]*pending{}} }

func (ps *pendings) of(tenant string) *pending {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.tenants[tenant]
	if p == nil {
		p = &pending{}
		ps.tenants[tenant] = p
	}
	return p
}

// pending is how many live tasks a tenant has.
type pending struct {
	underway atomic.Int64 // let in by this node, and not written yet

	mu      sync.Mutex // held also while they are counted
	counted int64
	since   int64 // let in by this node since, or under way when the count began
	at      time.Time
	took    time.Duration
}

// enter lets in up to n tasks and returns how many. What they were let in for must be
// told by leave.
func (p *pending) enter(ctx context.Context, limit, n int64, nodes int, count func(context.Context) (int64, error)) (granted, used int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age, pause := time.Since(p.at), min(countEvery, max(countPause, countCost*p.took))
	room := limit - p.counted - p.since
	again := age > countEvery
	switch share := max(0, limit-p.counted) / int64(nodes); {
	case n > room: // some may have ended
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
func (p *pending) count(ctx context.Context, alone bool, count func(context.Context) (int64, error)) error {
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

// leave tells that n tasks that were let in are written, or refused.
func (p *pending) leave(n int64) { p.underway.Add(-n) }

// letIn holds tasks against the tenant's quota of pending tasks: those that it has no room
// for are refused in results, but for those whose key stands for a task already. done is
// to be called when the others are written.
func (s *Store) letIn(ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []Submitted) (done func()) {
	t, ok := s.Catalog.Tenant(tenant)
	if !ok || t.Quotas.PendingTasks == 0 || len(tasks) == 0 {
		return func() {}
	}
	p := s.pendings.of(tenant)
	granted, used, err := p.enter(ctx, t.Quotas.PendingTasks, int64(len(tasks)), s.APINodes(), func(ctx context.Context) (int64, error) {
		return s.countLive(ctx, tenant)
	})
	if err == nil && granted < int64(len(tasks)) {
		err = asyncflow.QuotaExceeded(asyncflow.QuotaPendingTasks, float64(t.Quotas.PendingTasks), float64(used+granted))
	}
	if err != nil {
		over := tasks[granted:]
		for i, known := range s.knownKeys(ctx, tenant, over) {
			if !known {
				results[int(granted)+i].Err = err
			}
		}
	}
	return func() { p.leave(granted) }
}

// countLive counts a tenant's tasks that are not final.
func (s *Store) countLive(ctx context.Context, tenant string) (n int64, err error) {
	err = s.of(tenant).QueryRow(ctx, `SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0)::bigint
		FROM `+quote(schemaOf(tenant))+`.tallies`).Scan(&n)
	return n, wrap(err, "countLive(%q)", tenant)
}

// knownKeys tells of which tasks the keys stand for a task already.
func (s *Store) knownKeys(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []bool {
	var types, keys []string
	for _, task := range tasks {
		if task.Options.Key != "" {
			types, keys = append(types, task.Type), append(keys, task.Options.Key)
		}
	}
	out := make([]bool, len(tasks))
	if len(keys) == 0 {
		return out
	}
	rows, err := s.of(tenant).Query(ctx, `SELECT k.type, k.key FROM `+quote(schemaOf(tenant))+`.idempotency_keys k
		JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS u (type, key)) u ON k.type = u.type AND k.key = u.key
		WHERE k.expires_at > $3`, types, keys, s.Clock.Now())
	known := map[[2]string]bool{}
	var name [2]string
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name[0], &name[1]}, func() error {
			known[name] = true
			return nil
		})
	}
	if err != nil {
		s.log.Warn("can't look for keys; they are taken for new ones", "tenant", tenant, "error", err)
	}
	for i, task := range tasks {
		out[i] = known[[2]string{task.Type, task.Options.Key}]
	}
	return out
}
