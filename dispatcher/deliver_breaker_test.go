package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

var refused = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "connection refused"}

func (n *node) health(t *testing.T, stage string) asyncflow.Health {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	return pipe.Endpoints(stage)[0].Health
}

// waitsFor waits until a task waits for something, on any node.
func (n *node) waitsFor(t *testing.T, id asyncflow.TaskID, reason asyncflow.WaitReason) {
	t.Helper()
	require.Eventually(t, func() bool {
		task, err := n.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		return task.WaitsFor == reason
	}, patience, 20*time.Millisecond, "%s waits for %s", id, reason)
}

// exec changes the database directly, and makes the nodes read their configuration again.
func (b *bundle) exec(sql string) {
	b.t.Helper()
	b.quietly(sql, `UPDATE asyncflow.tenants SET version = version + 1`, `NOTIFY asyncflow_config`)
}

// quietly changes the database directly; the nodes don't learn of it.
func (b *bundle) quietly(statements ...string) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	for _, sql := range statements {
		_, err := pgtest.Exec(b.t.Context(), conn, b.url, sql)
		require.NoError(b.t, err)
	}
}

// allowAttempts gives tasks more attempts. Otherwise they may fail before the health of an endpoint
// is written.
func (n *node) allowAttempts(t *testing.T, b *bundle, most int) {
	t.Helper()
	b.exec(fmt.Sprintf(
		`UPDATE tenant_acme.task_types SET
		spec = replace(spec::text, '"max_attempts":3', '"max_attempts":%d')::json`,
		most,
	))
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Stages[0].Retry.MaxAttempts == most
	}, patience, 20*time.Millisecond)
}

// An endpoint that is down gets nothing for a while: its tasks wait, and lose no attempts. Then one
// task at a time tries it. When a try succeeds, all tasks are sent again.
func TestEndpointDown(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	var well atomic.Bool
	var sent, tries, mostTries atomic.Int32
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		sent.Add(1)
		if d.Endpoint.Health.State == asyncflow.HealthOpen {
			mostTries.Store(max(mostTries.Load(), tries.Add(1)))
			defer tries.Add(-1)
		}
		if !well.Load() {
			return refused
		}
		return done
	}
	one := b.start("a", dispatcher.Config{Concurrency: 16}, send)
	two := b.start("b", dispatcher.Config{Concurrency: 16}, send)
	b.exec(
		`UPDATE tenant_acme.task_types SET
		spec = replace(spec::text, '"max_attempts":3', '"max_attempts":20')::json`,
	)
	require.Eventually(t, func() bool {
		pipe, err := two.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Stages[0].Retry.MaxAttempts == 20
	}, patience, 20*time.Millisecond)
	tasks := one.submit(t, 300)
	require.Eventually(t, func() bool {
		return two.health(t, "first").State == asyncflow.HealthOpen
	},
		patience, 20*time.Millisecond)
	one.waitsFor(t, tasks[299].ID, asyncflow.WaitUnhealthy)
	tried := sent.Load()
	assert.Less(t, tried, int32(len(tasks)), "some were never sent")
	assert.Positive(t, one.health(t, "first").Until.Sub(one.Clock.Now()))
	well.Store(true)
	one.await(t, tasks, asyncflow.StatusSucceeded)
	assert.LessOrEqual(t, mostTries.Load(), int32(1), "one at a time tried it")
	assert.Equal(t, asyncflow.HealthClosed, one.health(t, "first").State)
}

// A node forgets endpoints that failed and were deleted.
func TestFailedEndpointsThatAreGoneAreForgotten(t *testing.T) {
	b := setup(t)
	fail := func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return refused }
	n := b.start("a", dispatcher.Config{}, fail)
	n.submit(t, 1)
	require.Eventually(t, func() bool { return n.Failing() > 0 }, patience, 20*time.Millisecond)
	require.NoError(t, n.DeleteEndpoint(t.Context(), tenant,
		"0190a6f0-0000-7000-8000-000000000000"))
	require.Eventually(t, func() bool {
		n.Tidy() // an attempt that was under way may be noted after the deletion
		return n.Failing() == 0
	}, patience, 20*time.Millisecond)
}

// An endpoint that answers 410 gets no more tasks. Another endpoint of its stage does.
func TestEndpointGone(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Endpoint.URL == "http://worker/first" {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410,
					Error: "410 Gone"}
			}
			return done
		})
	n.allowAttempts(t, b, 100)
	tasks := n.submit(t, 1)
	n.waitsFor(t, tasks[0].ID, asyncflow.WaitUnhealthy)
	assert.Equal(t, asyncflow.HealthDisabled, n.health(t, "first").State)
	_, err := n.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
		ID:     "0190a6f0-0000-7000-8000-000000000009",
		Type:   "pipe",
		Stage:  "first",
		URL:    "http://worker/other",
		Weight: 1,
	})
	require.NoError(t, err)
	n.await(t, append(tasks, n.submit(t, 10)...), asyncflow.StatusSucceeded)
}

// An endpoint that asks for a pause by Retry-After gets it.
func TestSlowDown(t *testing.T) {
	b := setup(t)
	var asked atomic.Int64
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			switch {
			case d.Lease.Stage == "first" && d.Endpoint.Health.State == "":
				return asyncflow.Outcome{
					Kind:       asyncflow.OutcomeFailed,
					Status:     429,
					RetryAfter: 2 * time.Second,
					Error:      "429 Too Many Requests",
				}
			case d.Lease.Stage == "first":
				asked.Store(int64(d.At.Sub(d.Endpoint.Health.Since)))
			}
			return done
		})
	n.allowAttempts(t, b, 100)
	n.await(t, n.submit(t, 1), asyncflow.StatusSucceeded)
	assert.GreaterOrEqual(t, time.Duration(asked.Load()), 2*time.Second)
}

// Endpoints with weight 0 get no deliveries, whether the others are healthy or not. Healthy
// endpoints get them by their weights.
func TestWeightsAndHealth(t *testing.T) {
	b := setup(t)
	var gone atomic.Bool
	var mu sync.Mutex
	sent := map[string]int{}
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.Stage == "second" {
				return done
			}
			mu.Lock()
			defer mu.Unlock()
			sent[d.Endpoint.URL]++
			if gone.Load() && d.Endpoint.URL == "http://worker/first" {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 410,
					Error: "410 Gone"}
			}
			return done
		})
	add := func(number int, e asyncflow.Endpoint) string {
		e.ID, e.Type, e.Stage, e.URL = fmt.Sprintf("0190a6f0-0000-7000-8000-00000000010%d",
			number), "pipe", "first", fmt.Sprintf(
			"http://worker/%d",
			number,
		)
		_, err := n.CreateEndpoint(t.Context(), tenant, e)
		require.NoError(t, err)
		return e.ID
	}
	change := func(id string, change func(*asyncflow.Endpoint)) {
		_, err := n.ChangeEndpoint(t.Context(), tenant, id,
			func(e *asyncflow.Endpoint) error { change(e); return nil })
		require.NoError(t, err)
	}
	drained := add(1, asyncflow.Endpoint{})
	unproven := add(2, asyncflow.Endpoint{Weight: 100, Challenged: true})
	n.await(t, n.submit(t, 20), asyncflow.StatusSucceeded)
	n.allowAttempts(t, b, 100)
	gone.Store(true)
	held := n.submit(t, 5)
	n.waitsFor(t, held[4].ID, asyncflow.WaitUnhealthy)
	mu.Lock()
	assert.Len(t, sent, 1)
	clear(sent)
	mu.Unlock()

	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	first := pipe.Endpoints("first")[0].ID
	change(first, func(e *asyncflow.Endpoint) { e.Weight = 0 })
	later := n.submit(t, 1)
	n.waitsFor(t, later[0].ID, asyncflow.WaitEndpoint)
	change(unproven, func(e *asyncflow.Endpoint) { e.VerifiedAt, e.Weight = n.Clock.Now(), 9 })
	change(drained, func(e *asyncflow.Endpoint) { e.Weight, e.Limits.MaxInFlight = 1, 50 })
	n.await(t, append(held, later...), asyncflow.StatusSucceeded)
	n.await(t, n.submit(t, 300), asyncflow.StatusSucceeded)
	mu.Lock()
	defer mu.Unlock()
	assert.NotContains(t, sent, "http://worker/first")
	assert.Positive(t, sent["http://worker/1"])
	assert.Greater(t, sent["http://worker/2"], 3*sent["http://worker/1"], "%v", sent)
}

// rest makes the first stage's endpoint rest as after failures of tasks.
func (n *node) rest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		e := pipe.Endpoints("first")[0]
		now := n.Clock.Now()
		set, err := n.SetHealth(t.Context(), tenant, e.ID, e.Health, asyncflow.Health{
			State: asyncflow.HealthOpen,
			Since: now,
			Until: now.Add(asyncflow.ShortOpen),
			Pause: asyncflow.ShortOpen,
		})
		require.NoError(t, err)
		return set
	}, patience, time.Millisecond)
}

// A worker gets tasks that it can do beside many that it can't, whether it fails them or hangs.
// They wait for no more than two pauses of the circuit breaker, which are less than 5 s together.
func TestPoisonTasksStopNoOthers(t *testing.T) {
	longform.Costly(t)
	require.Less(t, 2*asyncflow.ShortOpen, 5*time.Second)
	timeout := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Failure: asyncflow.FailureTimeout}
	for name, tc := range map[string]struct {
		asyncflow.Outcome
		hang bool
	}{
		"it fails them": {asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500}, false},
		"it hangs":      {timeout, true},
	} {
		t.Run(name, func(t *testing.T) { poisonStopsNoOthers(t, tc.Outcome, tc.hang) })
	}
}

func poisonStopsNoOthers(t *testing.T, bad asyncflow.Outcome, hang bool) {
	b := setup(t)
	var failed, probes atomic.Int32
	var hanging atomic.Bool
	many, probed, tested := make(chan struct{}), make(chan struct{}, 1000), make(chan struct{})
	defer close(tested)
	n := b.start("a", dispatcher.Config{Concurrency: 300},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Endpoint.Health.State == asyncflow.HealthOpen {
				probes.Add(1)
				probed <- struct{}{}
			}
			if string(d.Lease.Context) == `"good"` {
				return done
			}
			if failed.Add(1) == 10*asyncflow.FailuresToOpen {
				close(many)
			}
			if hanging.Load() {
				<-tested
			}
			return bad
		})
	n.allowAttempts(t, b, 10_000)
	n.submit(t, 100)
	<-many
	n.rest(t)
	hanging.Store(hang)
	<-probed
	good := slices.Repeat([]asyncflow.NewTask{{Type: "pipe",
		Context: json.RawMessage(`"good"`)}}, 20)
	submitted := n.Submit(t.Context(), tenant, good)
	before := probes.Load()
	n.await(t, submitted, asyncflow.StatusSucceeded)
	assert.LessOrEqual(t, probes.Load()-before, int32(2))
}

// A dead endpoint gets one task after each pause.
func TestOneProbeAPause(t *testing.T) {
	b := setup(t)
	var tries atomic.Int32
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			tries.Add(1)
			return refused
		})
	n.allowAttempts(t, b, 100)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	now := n.Clock.Now()
	long := asyncflow.Health{State: asyncflow.HealthOpen, Since: now, Until: now.Add(time.Hour)}
	e := pipe.Endpoints("first")[0]
	_, err = n.SetHealth(t.Context(), tenant, e.ID, e.Health, long)
	require.NoError(t, err)
	for _, task := range n.submit(t, 50) {
		n.waitsFor(t, task.ID, asyncflow.WaitUnhealthy)
	}
	require.Zero(t, tries.Load())
	b.exec(`UPDATE tenant_acme.endpoint_health SET until = now()`)
	require.Eventually(t, func() bool { // it failed, and rests again
		h := n.health(t, "first")
		return h.Failing() && h.Until.After(n.Clock.Now())
	}, patience, 20*time.Millisecond)
	require.EqualValues(t, 1, tries.Load())
}
