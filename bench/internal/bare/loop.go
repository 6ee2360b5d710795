package bare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/peer"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

const (
	slots     = 1024 // tasks under way, as in a node
	leaseSize = 200  // tasks of a lease
	endSize   = 500  // tasks that one statement deletes, at most
)

// loop works off tasks once.
type loop struct {
	pool      *pgxpool.Pool
	transport http.RoundTripper
	url       string
	tasks     int
	leased    chan job
	posted    chan job
	slots     chan struct{} // one for each task under way

	mu   sync.Mutex
	took []float64 // ms from insert to deletion
}

// job is a task that is leased.
type job struct {
	id      int64
	created time.Time
	context []byte
}

// measure inserts tasks and waits until all are done.
func (l *loop) measure(ctx context.Context) (peer.Result, error) {
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for range rig.Submitters {
		g.Go(func() error { return l.insert(ctx, &taken) })
	}
	g.Go(func() error { return l.lease(ctx) })
	posts, posting := errgroup.WithContext(ctx)
	for range slots {
		posts.Go(func() error { return l.postAll(posting) })
	}
	g.Go(func() error {
		defer close(l.posted)
		return posts.Wait()
	})
	for range 2 {
		g.Go(func() error { return l.end(ctx) })
	}
	err := g.Wait()
	return peer.Result{
		Seconds: time.Since(start).Seconds(),
		P50:     report.Percentile(l.took, 50),
		P99:     report.Percentile(l.took, 99),
	}, err
}

func (l *loop) insert(ctx context.Context, taken *atomic.Int64) error {
	const sql = `INSERT INTO bare (created, context) SELECT $1, c FROM unnest($2::text[]) c`
	for {
		first := int(taken.Add(rig.BatchSize)) - rig.BatchSize
		if first >= l.tasks {
			return nil
		}
		contexts := make([]string, min(rig.BatchSize, l.tasks-first))
		for i := range contexts {
			contexts[i] = string(payload.Append(nil, first+i, payload.Usual))
		}
		if _, err := l.pool.Exec(ctx, sql, time.Now(), contexts); err != nil {
			return err
		}
	}
}

// lease takes tasks until all are taken.
func (l *loop) lease(ctx context.Context) error {
	defer close(l.leased)
	for left := l.tasks; left > 0; {
		n := min(leaseSize, left)
		for range n {
			select {
			case l.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		jobs, err := l.take(ctx, n)
		if err != nil {
			return err
		}
		for range n - len(jobs) {
			<-l.slots
		}
		for _, j := range jobs {
			l.leased <- j // it never blocks: there is a slot for each job
		}
		if left -= len(jobs); len(jobs) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func (l *loop) take(ctx context.Context, n int) ([]job, error) {
	rows, err := l.pool.Query(ctx, `
		UPDATE bare SET leased = true WHERE id = ANY (ARRAY (
		    SELECT id FROM bare WHERE NOT leased ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
		RETURNING id, created, context`, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job, err error) {
		err = row.Scan(&j.id, &j.created, &j.context)
		return j, err
	})
}

func (l *loop) postAll(ctx context.Context) error {
	for j := range l.leased {
		if err := l.post(ctx, j); err != nil {
			return err
		}
		l.posted <- j
	}
	return nil
}

func (l *loop) post(ctx context.Context, j job) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(j.context))
	if err != nil {
		return err
	}
	resp, err := l.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return err
}

// end deletes the tasks that are done, each time as many as there are.
func (l *loop) end(ctx context.Context) error {
	for j := range l.posted {
		jobs := []job{j}
		for more := true; more && len(jobs) < endSize; {
			select {
			case j, ok := <-l.posted:
				if more = ok; ok {
					jobs = append(jobs, j)
				}
			default:
				more = false
			}
		}
		if err := l.delete(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) delete(ctx context.Context, jobs []job) error {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.id
	}
	if _, err := l.pool.Exec(ctx, `DELETE FROM bare WHERE id = ANY ($1)`, ids); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		l.took = append(l.took, float64(time.Since(j.created))/1e6)
		<-l.slots
	}
	return nil
}
