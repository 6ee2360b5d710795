package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func TestTaskPassesItsStages(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`{"a": 1.50}`))[0].ID
	assert.Equal(t, "pipe.1.1", id.String())

	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusPending, task.Status)
	assert.Equal(t, "first", task.Stage)
	assert.Equal(t, 1, task.Attempt)

	l := b.lease(pipe, 10)[0]
	assert.Equal(t, `{"a": 1.50}`, string(l.Context),
		"the bytes of the context pass through unchanged")
	assert.Equal(t, []any{"first", 1, 1}, []any{l.Stage, l.Attempt, l.Seq})
	task, err = b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusRunning, task.Status)
	assert.WithinDuration(t, b.Clock.Now().Add(time.Second+store.LeaseMargin), task.Deadline,
		time.Second)

	require.Equal(t, store.Settled{}, b.settle(pipe, l,
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`{ "b":2 }`),
			Status: 200}))
	l = b.lease(pipe, 10)[0]
	assert.Equal(t, `{ "b":2 }`, string(l.Context), "a stage's output is the next stage's context")
	assert.Equal(t, []any{"second", 1, 2}, []any{l.Stage, l.Attempt, l.Seq})

	require.Equal(t, store.Settled{}, b.settle(pipe, l,
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"end"`)}))
	task, err = b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Equal(t, `"end"`, string(task.Result))
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	assert.Equal(t, `{ "b":2 }`, string(attempts[0].Output), "each stage's output is kept")
	b.checkTokens("pipe")
}

// A stage without an output passes on its input; the last stage's is the result. Reading and
// watching the task show the same.
func TestResultOfStagesWithoutOutput(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	large := `"` + strings.Repeat("x", 9000) + `"`
	done := func(output string) asyncflow.Outcome {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(output)}
	}
	notNow := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "not now"}
	for name, c := range map[string]struct{ first, second, want string }{
		"no output at all":       {"", "", `"context"`},
		"of the first stage":     {`"one"`, "", `"one"`},
		"of the second stage":    {"", `"two"`, `"two"`},
		"of both":                {`"one"`, `"two"`, `"two"`},
		"of the first, at large": {large, "", large},
	} {
		id := b.submit(newTask(`"context"`))[0].ID
		b.settle(pipe, b.lease(pipe, 1)[0], done(c.first))
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		require.Nil(t, task.Result, "%s: it is under way", name)
		b.settle(pipe, b.lease(pipe, 1)[0], notNow)
		var again []asyncflow.Lease
		eventually(t, "the retry is due", func() bool {
			again = b.lease(pipe, 1)
			return len(again) > 0
		})
		b.settle(pipe, again[0], done(c.second))

		task, err = b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		require.Equal(t, asyncflow.StatusSucceeded, task.Status)
		require.Equal(t, `"context"`, string(task.Context), name)
		require.Equal(t, c.want, string(task.Result), name)
		watched, _, _, err := b.Watch(t.Context(), tenant, id, store.AttemptPage{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, c.want, string(watched.Result), name)
		require.Nil(t, watched.Context)
	}
}

// There is no result of a failed task, whatever its stages' outputs.
func TestNoResultOfFailedTasks(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.settle(pipe, b.lease(pipe, 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`2`)})
	b.settle(pipe, b.lease(pipe, 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never"})
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	require.Nil(t, task.Result)
}

func TestRetriesThenFails(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	for attempt := 1; attempt <= 3; attempt++ {
		var leases []asyncflow.Lease
		eventually(t, "the retry is due", func() bool {
			leases = b.lease(pipe, 10)
			return len(leases) == 1
		})
		assert.Equal(t, attempt, leases[0].Attempt)
		assert.Equal(t, attempt, leases[0].Seq)
		b.settle(pipe, leases[0],
			asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no", Status: 500})
		b.checkTokens("pipe")
	}
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, "no", task.Error)
	assert.Equal(t, 3, task.Attempt)
}

// A late settlement changes nothing: it is fenced off by seq.
func TestFence(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.lease(pipe, 1)[0]
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}

	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 second'`)
	require.NoError(t, err)
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	b.checkTokens("pipe")

	assert.Equal(t, store.Settled{Stale: true, Written: asyncflow.OutcomeLost},
		b.settle(pipe, l, done))
	var again []asyncflow.Lease
	eventually(t, "it is tried again",
		func() bool { again = b.lease(pipe, 1); return len(again) == 1 })
	assert.Equal(t, 2, again[0].Seq)
	assert.Equal(t, 2, again[0].Attempt, "a lost attempt counts")
	assert.Equal(t, store.Settled{Stale: true, Written: asyncflow.OutcomeLost},
		b.settle(pipe, l, done), "the old attempt can't end the new one")
	assert.Equal(t, store.Settled{}, b.settle(pipe, again[0], done))
	assert.Equal(t, store.Settled{Written: asyncflow.OutcomeDone}, b.settle(pipe, again[0], done),
		"the same outcome again changes nothing")
	assert.Equal(t, store.Settled{Stale: true, Written: asyncflow.OutcomeDone},
		b.settle(pipe, again[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}))
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, "second", task.Stage)
	b.checkTokens("pipe")
}

func TestDelayedTaskWaitsAndIsPromoted(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	soon, later := newTask(`1`), newTask(`2`)
	soon.Delay, later.Delay = asyncflow.NewDuration(30*time.Second),
		asyncflow.NewDuration(time.Hour)
	results := b.submit(soon, later)
	assert.Equal(t, asyncflow.StatusPending, results[0].Status)
	assert.Equal(t, asyncflow.StatusWaiting, results[1].Status)
	eventually(t, "the lease returns when the next task is due; sooner, after a slow one",
		func() bool {
			leases, next, err := b.Lease(t.Context(), pipe, 10)
			require.NoError(t, err)
			require.Empty(t, leases)
			return results[0].OrderTime.Equal(next)
		})
	n, err := b.Promote(t.Context(), pipe, nil)
	require.NoError(t, err)
	assert.Zero(t, n)

	_, err = b.db.Exec(t.Context(),
		`UPDATE tenant_acme.wait SET until = now(), order_time = now()`)
	require.NoError(t, err)
	n, err = b.Promote(t.Context(), pipe, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	l := b.lease(pipe, 10)
	require.Len(t, l, 1)
	assert.Equal(t, results[1].ID, l[0].ID)
	b.checkTokens("pipe")
}

func TestOrder(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[1].Priority = 100
	pipe := b.put(spec)
	plain, urgent, most := newTask(`"plain"`), newTask(`"urgent"`), newTask(`"most"`)
	urgent.Options.Priority = asyncflow.Priority{50}
	most.Options.Priority = asyncflow.Priority{3600, 0}
	b.submit(plain)
	b.submit(urgent, most)
	var got []string
	leases := b.lease(pipe, 1)
	leases = append(leases, b.lease(pipe, 1)...)
	leases = append(leases, b.lease(pipe, 1)...)
	for _, l := range leases {
		got = append(got, string(l.Context))
	}
	assert.Equal(t, []string{`"most"`, `"urgent"`, `"plain"`}, got)

	// Into the second stage: now less the priority of the stage, or the task's own.
	for _, l := range leases {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	b.submit(newTask(`"new"`))
	got = nil
	for range 4 {
		got = append(got, string(b.lease(pipe, 1)[0].Context))
	}
	assert.Equal(t, []string{`"plain"`, `"urgent"`, `"most"`, `"new"`}, got)
}

// One task's data must not spoil a batch: Postgres refuses a value that is no text, however it
// got past the checks.
func TestBadMemberFailsAlone(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 20)
	for i := range tasks {
		tasks[i] = newTask(`{"n":1}`)
	}
	tasks[7].Context = json.RawMessage("{\"n\":\"\xff\"}")
	tasks[13].Context = json.RawMessage("{\"n\":\"\x00\"}")
	for i, r := range b.Submit(t.Context(), tenant, tasks) {
		if i == 7 || i == 13 {
			assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(r.Err), "task %d: %v", i, r.Err)
		} else {
			assert.NoError(t, r.Err, "task %d", i)
		}
	}
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 100})
	require.NoError(t, err)
	assert.Len(t, list, 18)
	b.checkTokens("pipe")
}

func TestBadSettlementFailsAlone(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	results := make(chan error, 3)
	for i, l := range b.lease(pipe, 3) {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no"}
		if i == 1 {
			o.Error = "a NUL \x00"
		}
		b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
			func(r store.Settled) { results <- r.Err })
	}
	failures := 0
	for range 3 {
		if err := <-results; err != nil {
			assert.True(t, strings.Contains(err.Error(), "Settle"), err)
			failures++
		}
	}
	assert.Equal(t, 1, failures)
	b.checkTokens("pipe")
}

func TestUnknownTypeAndTask(t *testing.T) {
	b := setupTwo(t)
	b.put(twoStages())
	r := b.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "nope", Context: json.RawMessage(`1`)}})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r[0].Err))
	for _, id := range []asyncflow.TaskID{asyncflow.NewTaskID("pipe", 1, 99),
		asyncflow.NewTaskID("pipe", 7, 1), asyncflow.NewTaskID("nope", 1, 1)} {
		_, err := b.Task(t.Context(), tenant, id)
		assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), id.String())
		_, err = b.Attempts(t.Context(), tenant, id)
		assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), id.String())
	}
	// Another tenant's task is also unknown.
	id := b.submit(newTask(`1`))[0].ID
	_, err := b.Task(t.Context(), "other", id)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}
