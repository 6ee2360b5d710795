package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
)

// bareMode is the argument that makes this program the bare loop: the least that a durable
// dispatcher does. Tasks are inserted, leased, POSTed one by one and deleted, all but the
// POSTs in batches. Nothing is signed, retried, recorded or limited; there is no API.
const bareMode = "bare"

const (
	bareSlots = 512 // tasks under way, as in a node
	bareLease = 200 // tasks of a lease
	bareEnd   = 500 // tasks that are deleted at once, at most
)

// bare is the loop.
type bare struct {
	pool      *pgxpool.Pool
	transport http.RoundTripper // that of a node
	url       string
	jobs      chan bareJob
	ended     chan bareJob
	slots     chan struct{} // one for each that is under way
	tasks     int

	mu   sync.Mutex
	took []float64 // ms
}

// bareJob is a task that is leased.
type bareJob struct {
	id      int64
	created time.Time
	context []byte
}

// runBare is a peer.
func runBare(ctx context.Context, args []string) error {
	f := flag.NewFlagSet(bareMode, flag.ContinueOnError)
	database := f.String("database", "", "URL of a database")
	jobs := f.Int("jobs", 60000, "how many")
	url := f.String("url", "", "where each is POSTed")
	if err := f.Parse(args); err != nil {
		return err
	}
	debug.SetGCPercent(400) // as in a node
	pool, err := openBare(ctx, *database)
	if err != nil {
		return err
	}
	defer pool.Close()
	transport := callbacks.NewTransport(callbacks.Config{Connections: 256, Egress: asyncflow.Anywhere})
	measure := func(tasks int) (peerResult, error) {
		b := &bare{pool: pool, transport: transport, url: *url, tasks: tasks, jobs: make(chan bareJob, bareSlots),
			ended: make(chan bareJob, bareSlots), slots: make(chan struct{}, bareSlots)}
		return b.measure(ctx)
	}
	if _, err := measure(warmUpTasks); err != nil {
		return err
	}
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	result, err := measure(*jobs)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, input)
	return err
}

// openBare makes the table, empty. Plans are pinned: nobody analyzes it.
func openBare(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = submitters + 4
	for _, setting := range []string{"enable_seqscan", "enable_sort", "enable_bitmapscan"} {
		cfg.ConnConfig.RuntimeParams[setting] = "off"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{
		`CREATE TABLE IF NOT EXISTS bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, leased boolean NOT NULL DEFAULT false, created timestamptz NOT NULL, context json NOT NULL)`,
		`CREATE INDEX IF NOT EXISTS bare_pending ON bare (id) WHERE NOT leased`,
		`TRUNCATE bare`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return pool, nil
}

// measure inserts tasks and waits until all are done.
func (b *bare) measure(ctx context.Context) (peerResult, error) {
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for range submitters {
		g.Go(func() error { return b.insert(ctx, &taken) })
	}
	g.Go(func() error { return b.lease(ctx) })
	posts, posting := errgroup.WithContext(ctx)
	for range bareSlots {
		posts.Go(func() error { return b.post(posting) })
	}
	g.Go(func() error {
		defer close(b.ended)
		return posts.Wait()
	})
	for range 2 {
		g.Go(func() error { return b.end(ctx) })
	}
	err := g.Wait()
	return peerResult{time.Since(start).Seconds(), percentile(b.took, 50), percentile(b.took, 99)}, err
}

func (b *bare) insert(ctx context.Context, taken *atomic.Int64) error {
	for {
		first := int(taken.Add(batchSize)) - batchSize
		if first >= b.tasks {
			return nil
		}
		contexts := make([]string, min(batchSize, b.tasks-first))
		for i := range contexts {
			contexts[i] = string(appendContext(nil, first+i, contextBytes))
		}
		if _, err := b.pool.Exec(ctx, `INSERT INTO bare (created, context) SELECT $1, c::json FROM unnest($2::text[]) c`, time.Now(), contexts); err != nil {
			return err
		}
	}
}

// lease takes tasks until all are taken.
func (b *bare) lease(ctx context.Context) error {
	defer close(b.jobs)
	const sql = `UPDATE bare SET leased = true WHERE id = ANY (ARRAY (
		SELECT id FROM bare WHERE NOT leased ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, created, context`
	for left := b.tasks; left > 0; {
		n := min(bareLease, left)
		for range n {
			select {
			case b.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		rows, err := b.pool.Query(ctx, sql, n)
		if err != nil {
			return err
		}
		jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j bareJob, err error) {
			err = row.Scan(&j.id, &j.created, &j.context)
			return j, err
		})
		if err != nil {
			return err
		}
		for range n - len(jobs) {
			<-b.slots
		}
		for _, j := range jobs {
			b.jobs <- j // there is room: a slot each
		}
		if left -= len(jobs); len(jobs) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func (b *bare) post(ctx context.Context) error {
	for j := range b.jobs {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(j.context))
		if err != nil {
			return err
		}
		resp, err := b.transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if _ = resp.Body.Close(); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("HTTP %d", resp.StatusCode)
		}
		if err != nil {
			return err
		}
		b.ended <- j
	}
	return nil
}

// end deletes what is done, as much at once as there is.
func (b *bare) end(ctx context.Context) error {
	for j := range b.ended {
		jobs := []bareJob{j}
		for more := true; more && len(jobs) < bareEnd; {
			select {
			case j, ok := <-b.ended:
				if more = ok; ok {
					jobs = append(jobs, j)
				}
			default:
				more = false
			}
		}
		if err := b.delete(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (b *bare) delete(ctx context.Context, jobs []bareJob) error {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.id
	}
	if _, err := b.pool.Exec(ctx, `DELETE FROM bare WHERE id = ANY ($1)`, ids); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		b.took = append(b.took, float64(time.Since(j.created))/1e6)
		<-b.slots
	}
	return nil
}
