package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// oneStage is a pipeline of one stage with quick retries.
func oneStage() client.TaskTypeSpec {
	return client.TaskTypeSpec{Stages: []client.Stage{{Name: "only",
		Retry: asyncflow.RetryPolicy{MaxAttempts: 10, Interval: asyncflow.Seconds(-0.1)}}}}
}

// briefStage is a pipeline with attempts that are lost soon. On a slow machine, attempts may be
// lost by chance, so their number means nothing.
func briefStage() client.TaskTypeSpec {
	spec := oneStage()
	spec.Stages[0].Timeout = asyncflow.NewDuration(time.Second)
	spec.Stages[0].Retry.MaxAttempts = 100
	return spec
}

// submitMany submits n tasks with their numbers as contexts, and returns their ids.
func submitMany(t *testing.T, c *client.Client, n int) []string {
	t.Helper()
	tasks := make([]client.NewTask, n)
	for i := range tasks {
		tasks[i] = client.NewTask{Type: "pipe", Context: fmt.Append(nil, i)}
	}
	results, err := c.SubmitMany(t.Context(), tasks)
	require.NoError(t, err)
	ids := make([]string, n)
	for i, r := range results {
		require.NoError(t, r.Err)
		ids[i] = r.Task.ID
	}
	return ids
}

// awaitAll waits until every task succeeded.
func awaitAll(t *testing.T, c *client.Client, ids []string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, id := range ids {
		task, err := c.Wait(t.Context(), id, max(time.Until(deadline), time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, asyncflow.StatusSucceeded, task.Status, "%s: %+v", id, task)
	}
}

// Two processes on one database share the work, and nothing is delivered twice.
func TestTwoNodesShareTheWork(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	const most = 20 // in flight on a node: one endpoint gets four fifths of its slots
	url := database(t)
	a, b := startNode(t, url, "--concurrency=25"), startNode(t, url, "--concurrency=25")
	var mu sync.Mutex
	nodes := map[string]int{}
	busy := make(chan struct{}) // closed once both are at their limit
	w := startWorker(t, func(_ http.ResponseWriter, r *http.Request, d delivery) {
		mu.Lock()
		nodes[d.Callback.URL[:strings.Index(d.Callback.URL, "/v1/")]]++
		total := 0
		for _, n := range nodes {
			total += n
		}
		if total == 2*most {
			close(busy)
		}
		mu.Unlock()
		select {
		case <-busy:
		case <-r.Context().Done():
		}
	})
	w.pipe(t, a.client(), oneStage())
	ids := submitMany(t, a.client(), 500)
	awaitAll(t, b.client(), ids)
	times := map[string]int{}
	for _, d := range w.deliveries() {
		times[d.ID]++
	}
	assert.Len(t, times, 500)
	for id, n := range times {
		assert.Equal(t, 1, n, id)
	}
	assert.Len(t, nodes, 2)
	for node, n := range nodes {
		assert.GreaterOrEqual(t, n, most, "%s had its share", node)
	}
}

// A stopped node (SIGSTOP) delays no task for longer than its lease and 10 s. When it goes on, it
// can't settle what others took over.
func TestStoppedNode(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	a := startNode(t, url, "--concurrency=30")
	var stopped atomic.Bool
	inFlight := make(chan struct{}, 1000)
	w := startWorker(t, func(rw http.ResponseWriter, r *http.Request, d delivery) {
		if stopped.Load() || !strings.HasPrefix(d.Callback.URL, a.url) {
			return
		}
		inFlight <- struct{}{}
		<-r.Context().Done() // no answer
	})
	w.pipe(t, a.client(), briefStage())
	ids := submitMany(t, a.client(), 100)
	for range 20 {
		<-inFlight
	}
	a.halt(syscall.SIGSTOP)
	stopped.Store(true)
	b := startNode(t, url)
	begun, lease := time.Now(), time.Second+store.LeaseMargin
	awaitAll(t, b.client(), ids)
	assert.Less(t, time.Since(begun), lease+10*time.Second+patience/2,
		"with time for a slow machine")
	a.signal(syscall.SIGCONT)
	awaitAll(t, a.client(), ids)
	for _, id := range ids[:30] {
		attempts, err := b.client().Attempts(t.Context(), id)
		require.NoError(t, err)
		finals := 0
		for i, attempt := range attempts {
			assert.Equal(t, i+1, attempt.Seq, "the fence only grows")
			if attempt.Final != "" {
				finals++
			}
		}
		assert.Equal(t, 1, finals, "exactly one attempt ends a task")
	}
}

// A task that was answered with 201 is done even if the process is killed right after.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := startNode(t, url)
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), briefStage())
	acknowledged := &ledger{contexts: map[string]string{}}
	for range 5 {
		submitUntilKilled(t, p, acknowledged)
		p = startNode(t, url)
	}
	acknowledged.check(t, p.client(), 50)
}

// ledger records which id a client got for which context.
type ledger struct {
	mu       sync.Mutex
	number   int
	contexts map[string]string
	twice    []string // ids that were given to two tasks
}

// submit submits a task with a unique context, and returns the number of acknowledged tasks so
// far.
func (l *ledger) submit(c *client.Client) (int, error) {
	l.mu.Lock()
	l.number++
	doc := []byte(fmt.Sprint(l.number))
	l.mu.Unlock()
	task, err := c.Submit(context.Background(), client.NewTask{Type: "pipe", Context: doc})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return len(l.contexts), err
	}
	if _, known := l.contexts[task.ID]; known {
		l.twice = append(l.twice, task.ID)
	}
	l.contexts[task.ID] = string(doc)
	return len(l.contexts), nil
}

// check waits until all acknowledged tasks succeeded, and checks that each id belongs to its task.
func (l *ledger) check(t *testing.T, c *client.Client, least int) {
	t.Helper()
	require.Greater(t, len(l.contexts), least, "too few to mean anything")
	require.Empty(t, l.twice)
	awaitAll(t, c, slices.Collect(maps.Keys(l.contexts)))
	for id, want := range l.contexts {
		task, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, string(task.Context), id)
	}
}

// submitUntilKilled submits from several goroutines, kills the process after some answers, and
// records the acknowledged tasks.
func submitUntilKilled(t *testing.T, p *process, acknowledged *ledger) {
	t.Helper()
	c := p.client()
	enough := len(acknowledged.contexts) + 20
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				n, err := acknowledged.submit(c)
				if err != nil {
					return
				}
				if n >= enough {
					p.cmd.Process.Kill()
				}
			}
		})
	}
	wg.Wait()
	<-p.exited
}

// A task that was answered with 201 is done even if Postgres is killed under load.
func TestKilledPostgres(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pg := pgtest.Server(t, devpg.Config{Durable: true})
	require.NoError(t, pg.EnsureDatabase(t.Context(), "asyncflow"))
	url := pg.URL("asyncflow")
	require.NoError(t, prepareDatabase(t.Context(), url))
	p := startNode(t, url)
	p.survives(func() {
		require.NoError(t, pg.Kill())
		pgtest.Server(t, pg.Config())
	})
}

// survives submits tasks without a pause while something is killed, one thing after the other: the
// node goes on by itself, and each task that was answered with 201 is done.
func (p *process) survives(kills ...func()) {
	p.t.Helper()
	w := startWorker(p.t, func(http.ResponseWriter, *http.Request, delivery) {})
	api := p.client()
	w.pipe(p.t, api, briefStage())
	acknowledged := &ledger{contexts: map[string]string{}}
	var count atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, err := acknowledged.submit(api)
				if err != nil {
					continue // not acknowledged
				}
				count.Store(int64(n))
			}
		})
	}
	awaitMore := func(n int64) {
		before := count.Load()
		require.Eventually(p.t, func() bool { return count.Load() > before+n }, patience,
			10*time.Millisecond, "the node goes on by itself")
	}
	awaitMore(100)
	for _, kill := range kills {
		kill()
		awaitMore(50)
	}
	close(stop)
	wg.Wait()
	acknowledged.check(p.t, api, 100)
}

// After SIGTERM under load, the process ends cleanly, and no attempt is lost.
func TestGracefulStop(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	a := startNode(t, url, "--concurrency=50")
	underWay, stopping := make(chan struct{}, 1000), make(chan struct{})
	w := startWorker(t, func(_ http.ResponseWriter, r *http.Request, _ delivery) {
		underWay <- struct{}{}
		select {
		case <-stopping:
		case <-r.Context().Done():
		}
	})
	w.pipe(t, a.client(), oneStage())
	ids := submitMany(t, a.client(), 1000)
	for range 40 { // one endpoint gets four fifths of its slots
		<-underWay
	}
	a.signal(syscall.SIGTERM)
	require.Eventually(t, func() bool {
		return strings.Contains(a.said(), "msg=stopping")
	}, patience,
		20*time.Millisecond)
	close(stopping)
	assert.Equal(t, 0, a.wait(), a.said())
	b := startNode(t, url)
	awaitAll(t, b.client(), ids)
	assert.Len(t, w.deliveries(), 1000, "each was delivered once")
}

// The worker completes tasks by a call, after or before its answer.
func TestAsyncCompletion(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	var early atomic.Int32
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		complete := func() {
			req, _ := http.NewRequest("POST", d.Callback.URL+"/complete",
				bytes.NewReader([]byte(`{"output":{"by":"webhook"}}`)))
			req.Header.Set("Authorization", "Bearer "+d.Callback.Token)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if assert.NoError(t, err) {
				assert.Equal(t, 200, resp.StatusCode)
				resp.Body.Close()
			}
		}
		if d.Seq%2 == 1 && early.Add(1)%2 == 1 {
			complete() // before the HTTP answer
			rw.WriteHeader(http.StatusAccepted)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
		go complete()
	})
	w.pipe(t, p.client(), oneStage())
	ids := submitMany(t, p.client(), 50)
	awaitAll(t, p.client(), ids)
	task, err := p.client().Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.JSONEq(t, `{"by":"webhook"}`, string(task.Result))
	assert.Len(t, w.deliveries(), 50)
}

// A worker that accepts and never completes is given up after max_processing_time.
func TestCompletionThatNeverComes(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	var times atomic.Int32
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if times.Add(1) == 1 {
			rw.WriteHeader(http.StatusAccepted)
		}
	})
	spec := oneStage()
	spec.Stages[0].Timeout = asyncflow.NewDuration(20 * time.Second)
	spec.Stages[0].MaxProcessingTime = asyncflow.NewDuration(time.Second)
	w.pipe(t, p.client(), spec)
	ids := submitMany(t, p.client(), 1)
	awaitAll(t, p.client(), ids)
	attempts, err := p.client().Attempts(t.Context(), ids[0])
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	assert.EqualValues(t, "lost", attempts[0].Outcome)
	assert.Equal(t, 2, attempts[1].Attempt)
}

// A cancelled task is not delivered again, and the cancellation of a running one reaches the
// worker by its heartbeat.
func TestCancelFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	beats := make(chan string, 10)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		rw.WriteHeader(http.StatusAccepted)
		beats <- d.Callback.URL + " " + d.Callback.Token
	})
	w.pipe(t, p.client(), oneStage())
	id := submitMany(t, p.client(), 1)[0]
	url, token, _ := strings.Cut(<-beats, " ")
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": p.token()}
	r := runCLI(t, env, "tasks", "cancel", id, "--reason", "withdrawn")
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "cancelled")
	assert.Contains(t, r.stdout, "withdrawn")
	req, err := http.NewRequest("POST", url+"/heartbeat", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var beat api.HeartbeatResult
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&beat))
	assert.Equal(t, asyncflow.StatusCancelled, beat.Status)
	assert.Equal(t, exitTaskFailed, runCLI(t, env, "tasks", "get", id, "--wait", "5s").code)
	assert.Len(t, w.deliveries(), 1)
}
