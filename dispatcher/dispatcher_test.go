package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const tenant = "acme"

// patience bounds the wait for an event. It is long, since a slow machine must not fail a test, and
// costs nothing when the event comes.
const patience = 2 * time.Minute

// sendFunc replaces the HTTP client in a test: the dispatcher needs only one method. Everything
// below it, the store and its Postgres, is real.
type sendFunc func(context.Context, asyncflow.Delivery) asyncflow.Outcome

func (f sendFunc) Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	outcomes := make([]asyncflow.Outcome, len(all))
	for i, d := range all {
		outcomes[i] = f(ctx, d)
	}
	return outcomes
}

var done = asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}

// bundle is a database with a task type "pipe" of two stages, each with an endpoint.
type bundle struct {
	t   *testing.T
	url string
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	return &bundle{t, pgtest.Database(t, prepare)}
}

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant, store.WithoutRoles(pgtest.NoRoles()))
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: url, Node: "prepare",
		NoRoles: pgtest.NoRoles()})
	if err != nil {
		return err
	}
	defer s.Close()
	retry := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-0.001)}
	pipe := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{
		{Name: "first", Retry: retry}, {Name: "second", Retry: retry}}}
	if _, _, err := s.PutTaskType(ctx, tenant, pipe.WithDefaults()); err != nil {
		return err
	}
	for i, stage := range []string{"first", "second"} {
		e := asyncflow.Endpoint{
			ID:     fmt.Sprintf("0190a6f0-0000-7000-8000-00000000000%d", i),
			Type:   "pipe",
			Stage:  stage,
			URL:    "http://worker/" + stage,
			Weight: 1,
		}
		if _, err := s.CreateEndpoint(ctx, tenant, e); err != nil {
			return err
		}
	}
	return nil
}

// node is a store and what writes to it, with a dispatcher that runs, or without one.
type node struct {
	*store.Store
	*dispatcher.Committer
	*dispatcher.Dispatcher        // nil: there is none
	halt                   func() // stop the dispatcher, and wait for its end
	stop                   func() // stop all of it
}

func (b *bundle) start(name string, cfg dispatcher.Config, send sendFunc) *node {
	b.t.Helper()
	return b.startWith(name, cfg, send)
}

func (b *bundle) startWith(name string, cfg dispatcher.Config, send dispatcher.Sender) *node {
	b.t.Helper()
	as := store.Config{Node: name, Roles: "dispatcher", Notify: cfg.Poll == 0}
	return b.startAs(as, cfg, send)
}

// startAs starts a node with a configuration of its store.
func (b *bundle) startAs(
	as store.Config, cfg dispatcher.Config, send dispatcher.Sender,
) *node {
	b.t.Helper()
	n := b.open(as)
	n.Dispatcher = dispatcher.New(n.Committer, send, cfg)
	ctx, stopDispatcher := context.WithCancel(context.Background())
	storing, stopStore := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(b.t, n.Store.Run(storing)) })
	dispatched := make(chan struct{})
	go func() {
		assert.NoError(b.t, n.Dispatcher.Run(ctx))
		close(dispatched)
	}()
	n.halt = func() {
		stopDispatcher()
		<-dispatched
	}
	end := n.stop
	n.stop = sync.OnceFunc(func() {
		n.halt()
		stopStore()
		running.Wait()
		end()
	})
	b.t.Cleanup(n.stop)
	return n
}

// open opens a node that delivers nothing, and whose store doesn't run.
func (b *bundle) open(cfg store.Config) *node {
	b.t.Helper()
	cfg.URL = b.url
	cfg.NoRoles = pgtest.NoRoles()
	s := pgtest.Insist(b.t, func() (*store.Store, error) {
		return store.Open(b.t.Context(), cfg)
	})
	c := dispatcher.NewCommitter(s, nil)
	n := &node{Store: s, Committer: c, stop: sync.OnceFunc(func() {
		c.Close()
		s.Close()
	})}
	b.t.Cleanup(n.stop)
	return n
}

// Pause pauses a type, and returns when no lease of it is under way on the node.
func (n *node) Pause(t *testing.T, name string) {
	t.Helper()
	_, err := n.Store.Pause(t.Context(), tenant, name, "")
	require.NoError(t, err)
	n.Quiesce(t.Context(), store.TypeKey{Tenant: tenant, Type: name})
}

func (n *node) submit(t *testing.T, count int) []store.Submitted {
	t.Helper()
	tasks := make([]asyncflow.NewTask, count)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(fmt.Sprint(i))}
	}
	results := n.Submit(t.Context(), tenant, tasks)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	return results
}

// await waits until all tasks are of a status.
func (n *node) await(t *testing.T, tasks []store.Submitted, status asyncflow.Status) {
	t.Helper()
	for _, r := range tasks {
		require.NoError(t, r.Err)
		task, err := n.AwaitFinal(t.Context(), tenant, r.ID, patience)
		require.NoError(t, err)
		require.Equal(t, status, task.Status, "%+v", task)
	}
}

func TestTasksPassThroughStages(t *testing.T) {
	b := setup(t)
	var sent atomic.Int32
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			sent.Add(1)
			assert.Equal(t, "http://worker/"+d.Lease.Stage, d.Endpoint.URL)
			assert.Equal(t, 3, d.MaxAttempts)
			return done
		})
	n.await(t, n.submit(t, 300), asyncflow.StatusSucceeded)
	assert.EqualValues(t, 600, sent.Load())
}

func TestNeverMoreThanItsCapacity(t *testing.T) {
	b := setup(t)
	const capacity = 7
	var now atomic.Int32
	used := make(chan struct{}) // closed after that
	use := sync.OnceFunc(func() { close(used) })
	n := b.start("a", dispatcher.Config{Concurrency: capacity},
		func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			defer now.Add(-1)
			at := now.Add(1)
			assert.LessOrEqual(t, at, int32(capacity))
			if at > capacity/2 {
				use()
			}
			select {
			case <-used:
			case <-ctx.Done():
			}
			<-time.After(time.Millisecond) // so that more could be under way
			return done
		})
	n.await(t, n.submit(t, 200), asyncflow.StatusSucceeded)
}

func TestFailuresAreRetriedThenFinal(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.Attempt < 3 || d.Lease.Stage == "second" {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no", Status: 500}
			}
			return done
		})
	tasks := n.submit(t, 1)
	n.await(t, tasks, asyncflow.StatusFailed)
	attempts, err := n.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Len(t, attempts, 6)
}

// A stop lets attempts under way end, and gives back what it can't finish.
func TestStop(t *testing.T) {
	b := setup(t)
	started, finish := make(chan struct{}, 10), make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 2, Grace: time.Minute},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			started <- struct{}{}
			<-finish
			return done
		})
	tasks := n.submit(t, 5)
	<-started
	<-started
	stopped := make(chan struct{})
	go func() { n.stop(); close(stopped) }()
	close(finish)
	<-stopped
	other := b.start("b", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	other.await(t, tasks, asyncflow.StatusSucceeded)
	for _, task := range tasks {
		attempts, err := other.Attempts(t.Context(), tenant, task.ID)
		require.NoError(t, err)
		for _, a := range attempts {
			assert.Contains(t, []asyncflow.OutcomeKind{asyncflow.OutcomeDone,
				asyncflow.OutcomeReleased}, a.Outcome)
			assert.Equal(t, 1, a.Attempt, "nothing was lost by the stop")
		}
	}
}

func TestStopCutsOffAfterTheGrace(t *testing.T) {
	b := setup(t)
	started := make(chan struct{}, 1)
	n := b.start("a", dispatcher.Config{Grace: time.Millisecond},
		func(ctx context.Context, _ asyncflow.Delivery) asyncflow.Outcome {
			started <- struct{}{}
			<-ctx.Done()
			return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "cut off"}
		})
	tasks := n.submit(t, 1)
	<-started
	n.stop()
	other := b.start("b", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	other.await(t, tasks, asyncflow.StatusSucceeded)
	attempts, err := other.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.OutcomeLost, attempts[0].Outcome)
}

// Without NOTIFY a node finds tasks that another one submitted by polling.
func TestPolling(t *testing.T) {
	b := setup(t)
	cfg := dispatcher.Config{Poll: 20 * time.Millisecond}
	b.start("a", cfg, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n := b.open(store.Config{Node: "b"})
	n.await(t, n.submit(t, 3), asyncflow.StatusSucceeded)
}

// A node without tasks of its own hears of another's by NOTIFY.
func TestNotify(t *testing.T) {
	b := setup(t)
	b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n := b.open(store.Config{Node: "b", Notify: true})
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- n.Store.Run(ctx) }()
	n.await(t, n.submit(t, 3), asyncflow.StatusSucceeded)
	cancel()
	require.NoError(t, <-running)
}

// A task in a stage without an endpoint waits, and no attempt is counted.
func TestNoEndpoint(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	endpoints, err := n.Endpoints(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.NoError(t, n.DeleteEndpoint(t.Context(), tenant, endpoints[1].ID))
	tasks := n.submit(t, 2)
	require.Eventually(t, func() bool {
		task, err := n.Task(t.Context(), tenant, tasks[0].ID)
		return err == nil && task.Status == asyncflow.StatusWaiting &&
			task.WaitsFor == asyncflow.WaitEndpoint
	}, patience, 20*time.Millisecond)
	_, err = n.CreateEndpoint(t.Context(), tenant, endpoints[1])
	require.NoError(t, err)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // both of them may be parked a little later
		_, err = n.Promote(t.Context(), pipe, []string{"second"})
		require.NoError(t, err)
		task, err := n.Task(t.Context(), tenant, tasks[1].ID)
		return err == nil && task.Status.Final()
	}, patience, 20*time.Millisecond)
	n.await(t, tasks, asyncflow.StatusSucceeded)
	attempts, err := n.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{asyncflow.OutcomeReleased, 1},
		[]any{attempts[1].Outcome, attempts[1].Attempt})
	assert.Equal(t, 1, attempts[len(attempts)-1].Attempt)
}
