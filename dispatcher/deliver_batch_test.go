package dispatcher_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// requests keeps the requests that were sent, and answers them with answer (nil: done).
type requests struct {
	answer func([]asyncflow.Delivery) []asyncflow.Outcome

	mu  sync.Mutex
	all [][]asyncflow.Delivery
}

func (r *requests) Send(_ context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	r.mu.Lock()
	r.all = append(r.all, all)
	r.mu.Unlock()
	if r.answer != nil {
		return r.answer(all)
	}
	return each(all, done)
}

func each(all []asyncflow.Delivery, o asyncflow.Outcome) []asyncflow.Outcome {
	outcomes := make([]asyncflow.Outcome, len(all))
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}

// sizes returns how many tasks each request of a stage had.
func (r *requests) sizes(stage string) (sizes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.all {
		if all[0].Lease.Stage == stage {
			sizes = append(sizes, len(all))
		}
	}
	return sizes
}

// batch makes the endpoint of a stage get several tasks in a request.
func (b *bundle) batch(stage string, most int, wait time.Duration) {
	b.exec(fmt.Sprintf(
		`UPDATE tenant_acme.endpoints
		SET batch_max_tasks = %d, batch_max_wait = '%d microseconds' WHERE stage = '%s'`,
		most,
		wait.Microseconds(),
		stage,
	))
}

// held submits tasks while the type is paused, so that all are ready at the resume.
func (n *node) held(t *testing.T, tasks []asyncflow.NewTask) []store.Submitted {
	t.Helper()
	n.Pause(t, "pipe")
	results := n.Submit(t.Context(), tenant, tasks)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	_, err := n.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	return results
}

func newTasks(n int) []asyncflow.NewTask {
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: "pipe", Context: fmt.Append(nil, i)}
	}
	return tasks
}

// Tasks are sent together up to the endpoint's number, in order, each with its own outcome. The
// endpoint of the next stage gets them one by one.
func TestTasksGoTogether(t *testing.T) {
	b := setup(t)
	b.batch("first", 10, time.Second)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	tasks := n.held(t, newTasks(100))
	n.await(t, tasks, asyncflow.StatusSucceeded)
	assert.Equal(t, []int{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, r.sizes("first"))
	assert.Len(t, r.sizes("second"), 100)
	for _, all := range r.all {
		for i, d := range all {
			assert.Equal(t, []any{all[0].Endpoint.ID, all[0].Lease.Stage, all[0].Timeout,
				tenant, 3}, []any{d.Endpoint.ID, d.Lease.Stage, d.Timeout, d.Tenant, d.MaxAttempts})
			if i > 0 {
				before := all[i-1].Lease
				assert.True(
					t,
					before.OrderTime.Before(d.Lease.OrderTime) ||
						before.OrderTime.Equal(d.Lease.OrderTime) &&
							before.ID.Number < d.Lease.ID.Number,
				)
			}
		}
	}
	attempts, err := n.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Len(t, attempts, 2)
}

// The outcome of each task of a request is its own.
func TestOutcomesOfTasksThatGoTogether(t *testing.T) {
	b := setup(t)
	b.batch("first", 4, time.Second)
	r := &requests{answer: func(all []asyncflow.Delivery) []asyncflow.Outcome {
		outcomes := each(all, done)
		for i, d := range all {
			switch string(d.Lease.Context) {
			case "1":
				outcomes[i] = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}
			case "2":
				if d.Lease.Attempt == 1 {
					outcomes[i] = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 200,
						Error: "again"}
				}
			case "3":
				if d.Lease.Stage == "first" {
					outcomes[i] = asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted, Status: 200}
				}
			}
		}
		return outcomes
	}}
	n := b.startWith("a", dispatcher.Config{}, r)
	tasks := n.held(t, newTasks(4))
	n.await(t, tasks[:1], asyncflow.StatusSucceeded)
	n.await(t, tasks[1:2], asyncflow.StatusFailed)
	n.await(t, tasks[2:3], asyncflow.StatusSucceeded)
	require.Equal(t, []int{4, 1}, r.sizes("first"), "the one that failed comes again, alone")
	task, err := n.Task(t.Context(), tenant, tasks[3].ID)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusRunning, task.Status, "its completion comes later")
	attempts, err := n.Attempts(t.Context(), tenant, tasks[2].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{"again", 1}, []any{attempts[0].Error, attempts[0].Attempt})
	n.stop() // it is without a slot now: the node doesn't wait for it
}

// The first waiting task bounds the wait of all. Without a wait, tasks that were leased together
// are sent together.
func TestWaitForOthers(t *testing.T) {
	b := setup(t)
	const wait = 2 * time.Second
	b.batch("first", 100, wait)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	start := time.Now()
	n.await(t, append(n.submit(t, 1), n.submit(t, 2)...), asyncflow.StatusSucceeded)
	assert.GreaterOrEqual(t, time.Since(start), wait)
	assert.Equal(t, []int{3}, r.sizes("first"))
	b.batch("first", 100, 0)
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Endpoints("first")[0].Batch.MaxWait.IsZero()
	}, patience, 20*time.Millisecond)
	n.await(t, n.held(t, newTasks(30)), asyncflow.StatusSucceeded)
	assert.Contains(t, r.sizes("first"), 30)
}

// A request is bounded in bytes. A larger task is sent alone.
func TestBytesOfARequest(t *testing.T) {
	b := setup(t)
	b.batch("first", 10, 300*time.Millisecond)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	tasks := newTasks(5)
	for i, size := range []int{
		100, asyncflow.MaxBatchBytes - 100, 100, asyncflow.MaxBatchBytes + 100, 100,
	} {
		tasks[i].Context = []byte(`"` + strings.Repeat("x", size-2) + `"`)
	}
	n.await(t, n.held(t, tasks), asyncflow.StatusSucceeded)
	assert.ElementsMatch(t, []int{2, 1, 1, 1}, r.sizes("first"))
}

// Tasks don't wait for others if there is no capacity for these.
func TestNoRoomForOthers(t *testing.T) {
	b := setup(t)
	b.batch("first", 100, asyncflow.MaxBatchWait)
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 7 WHERE stage = 'first'`)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{Concurrency: 16}, r)
	start := time.Now()
	n.await(t, n.held(t, newTasks(70)), asyncflow.StatusSucceeded)
	assert.Less(t, time.Since(start), 5*asyncflow.MaxBatchWait, "hardly any of the ten has waited")
	sum := 0
	for _, size := range r.sizes("first") {
		assert.LessOrEqual(t, size, 7)
		sum += size
	}
	assert.Equal(t, 70, sum)
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = NULL`)
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Endpoints("first")[0].Limits.MaxInFlight == 0
	}, patience, 20*time.Millisecond)
	start = time.Now()
	n.await(t, n.held(t, newTasks(160)), asyncflow.StatusSucceeded)
	assert.Less(t, time.Since(start), 5*asyncflow.MaxBatchWait,
		"only the last of them have waited: the node had no room for more")
}

// A stop gives back tasks that wait for others, without an attempt.
func TestStopWhileTasksWaitForOthers(t *testing.T) {
	b := setup(t)
	b.batch("first", 100, asyncflow.MaxBatchWait)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	tasks := n.submit(t, 5)
	n.running(t, tasks)
	n.stop()
	assert.Empty(t, r.sizes("first"))
	b.batch("first", 5, asyncflow.MaxBatchWait)
	other := b.startWith("b", dispatcher.Config{}, r)
	other.await(t, tasks, asyncflow.StatusSucceeded)
	assert.Equal(t, []int{5}, r.sizes("first"))
	attempts, err := other.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{asyncflow.OutcomeReleased, 1},
		[]any{attempts[0].Outcome, attempts[1].Attempt})
}

// Tasks that wait for others on a node that dies were not sent: they lose no attempt. If the node
// lives on, it doesn't send them, as another node may be at them.
func TestUnsentTasksLoseNoAttempt(t *testing.T) {
	b := setup(t)
	b.batch("first", 100, asyncflow.MaxBatchWait)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	n.allowAttempts(t, b, 1)
	tasks := n.submit(t, 3)
	n.running(t, tasks)
	b.quietly(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	ended, err := n.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 3, ended)
	n.await(t, tasks, asyncflow.StatusSucceeded)
	sum := 0
	for _, size := range r.sizes("first") {
		sum += size
	}
	assert.Equal(t, 3, sum, "each was sent once")
	attempts, err := n.Attempts(t.Context(), tenant, tasks[0].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{asyncflow.OutcomeReleased, asyncflow.OutcomeDone, 1},
		[]any{attempts[0].Outcome, attempts[1].Outcome, attempts[1].Attempt})
}

// A task that was sent loses its attempt with its lease.
func TestSentTasksLoseTheirAttempt(t *testing.T) {
	b := setup(t)
	b.batch("first", 100, time.Millisecond)
	sent, end := make(chan struct{}, 1), make(chan struct{})
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			sent <- struct{}{}
			<-end
			return done
		})
	defer close(end)
	n.allowAttempts(t, b, 1)
	tasks := n.submit(t, 1)
	<-sent
	b.quietly(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	_, err = n.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	n.await(t, tasks, asyncflow.StatusFailed)
}

// running waits until all tasks are leased.
func (n *node) running(t *testing.T, tasks []store.Submitted) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, r := range tasks {
			if task, err := n.Task(t.Context(), tenant, r.ID); err != nil ||
				task.Status != asyncflow.StatusRunning {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond)
}

// Tasks that wait for others are given back when the type is paused, or when its endpoint gets no
// more tasks.
func TestPauseWhileTasksWaitForOthers(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, end := range map[string]func(*bundle, *node) error{
		"paused": func(b *bundle, n *node) error {
			n.Pause(b.t, "pipe")
			return nil
		},
		"its weight is 0": func(b *bundle, n *node) error {
			pipe, err := n.Catalog.Type(tenant, "pipe")
			if err != nil {
				return err
			}
			_, err = n.ChangeEndpoint(b.t.Context(), tenant, pipe.Endpoints("first")[0].ID,
				func(e *asyncflow.Endpoint) error { e.Weight = 0; return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.batch("first", 100, asyncflow.MaxBatchWait)
			r := &requests{}
			n := b.startWith("a", dispatcher.Config{}, r)
			tasks := n.submit(t, 3)
			n.running(t, tasks)
			require.NoError(t, end(b, n))
			require.Eventually(t, func() bool {
				attempts, err := n.Attempts(t.Context(), tenant, tasks[0].ID)
				return err == nil && len(attempts) > 0 &&
					attempts[0].Outcome == asyncflow.OutcomeReleased
			}, patience, 20*time.Millisecond)
			assert.Empty(t, r.sizes("first"))
		})
	}
}

// Two tasks of an ordered flow key are never sent together.
func TestOrderedTasksDontGoTogether(t *testing.T) {
	b := setup(t)
	b.batch("first", 10, 50*time.Millisecond)
	r := &requests{}
	n := b.startWith("a", dispatcher.Config{}, r)
	n.put(t, func(t *asyncflow.TaskType) { t.Flow = &asyncflow.Flow{Ordered: true} })
	tasks := newTasks(12)
	for i := range tasks {
		tasks[i].Options.FlowKey = fmt.Sprint("key", i%4)
	}
	n.await(t, n.held(t, tasks), asyncflow.StatusSucceeded)
	together := 0
	for _, all := range r.all {
		keys := map[string]bool{}
		for _, d := range all {
			assert.False(t, keys[d.Lease.Options.FlowKey])
			keys[d.Lease.Options.FlowKey] = true
		}
		together = max(together, len(all))
	}
	assert.Greater(t, together, 1, "but those of several keys do")
}

// A request is one observation of its endpoint's health, however many tasks are in it.
func TestHealthOfRequests(t *testing.T) {
	b := setup(t)
	b.batch("first", 20, time.Second)
	r := &requests{
		answer: func(all []asyncflow.Delivery) []asyncflow.Outcome { return each(all, refused) },
	}
	n := b.startWith("a", dispatcher.Config{}, r)
	n.await(t, n.held(t, newTasks(20)), asyncflow.StatusFailed)
	assert.Len(t, r.sizes("first"), 3)
	assert.Empty(t, n.health(t, "first").State, "it has failed three times, not 60")
}

// If a stop cuts off a request, the attempt is lost for all of its tasks.
func TestCutOffTogether(t *testing.T) {
	b := setup(t)
	b.batch("first", 3, time.Second)
	started := make(chan struct{}, 1)
	n := b.startWith("a", dispatcher.Config{Grace: time.Millisecond},
		senderFunc(func(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
			started <- struct{}{}
			<-ctx.Done()
			return each(all, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "cut off"})
		}))
	tasks := n.submit(t, 3)
	<-started
	n.stop()
	other := b.startWith("b", dispatcher.Config{}, &requests{})
	other.await(t, tasks, asyncflow.StatusSucceeded)
	for _, task := range tasks {
		attempts, err := other.Attempts(t.Context(), tenant, task.ID)
		require.NoError(t, err)
		assert.Equal(t, asyncflow.OutcomeLost, attempts[0].Outcome)
	}
}

type senderFunc func(context.Context, []asyncflow.Delivery) []asyncflow.Outcome

func (f senderFunc) Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome {
	return f(ctx, all)
}
