package store_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

func edit(context string) asyncflow.Patch {
	return asyncflow.Patch{Context: json.RawMessage(context), By: "anna"}
}

// A task with another context is leased with it, in its place and attempt, and keeps the one of its
// submit. The journal names the new one and who gave it.
func TestEdit(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		spec := twoStages()
		spec.Stages[1].Retry.Interval = asyncflow.Seconds(-600)
		pipe := b.put(spec)
		id := b.submit(newTask(`"old"`))[0].ID
		order := b.task(id).OrderTime
		b.change(id, edit(`"new"`))
		b.change(id, edit(`"newer"`))
		task := b.task(id)
		require.Equal(t, []any{order, asyncflow.StatusPending, 1, `"old"`},
			[]any{task.OrderTime, task.Status, task.Attempt, string(task.Context)})
		l := b.lease(pipe, 1)[0]
		require.Equal(t, []any{`"newer"`, 1, 3}, []any{string(l.Context), l.Attempt, l.Seq})
		journal, err := b.Attempts(t.Context(), tenant, id)
		require.NoError(t, err)
		require.Len(t, journal, 2)
		require.Equal(t, []any{asyncflow.OutcomeChanged, `"new"`, "by:anna"},
			[]any{journal[0].Outcome, string(journal[0].Output), journal[0].Endpoint})

		// Also before a retry of a later stage, which keeps its time and error.
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
			Output: json.RawMessage(`"typo"`)})
		b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
			Error: "typo"})
		before := b.task(id)
		b.change(id, edit(`"mended"`))
		after := b.task(id)
		require.Equal(t, []any{before.OrderTime, asyncflow.WaitRetry, "typo"},
			[]any{after.OrderTime, after.WaitsFor, after.Error})
		b.change(id, asyncflow.Patch{RunAt: b.Clock.Now()})
		l = b.lease(pipe, 1)[0]
		require.Equal(t, []any{`"mended"`, "second", 2},
			[]any{string(l.Context), l.Stage, l.Attempt})

		// A task that is running or final keeps its context.
		_, err = b.Change(t.Context(), tenant, id, edit(`1`))
		require.ErrorContains(t, err, "it is running")
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		_, err = b.Change(t.Context(), tenant, id, edit(`1`))
		require.ErrorContains(t, err, "it has succeeded")
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		require.Equal(t, `"mended"`, string(b.task(id).Result), "as the last input")
	})
}

// retries gives a task a policy with so many attempts.
func retries(n int) asyncflow.Patch {
	return asyncflow.Patch{Retry: &asyncflow.RetryPolicy{MaxAttempts: n}}
}

// The retry policy of a task can be changed while it waits: for more attempts, for fewer, with
// other pauses, and back to that of its type.
func TestChangeOfARetryPolicy(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		spec := twoStages()
		spec.Stages[0].Retry = asyncflow.RetryPolicy{MaxAttempts: 2,
			Interval: asyncflow.Seconds(-600)}
		pipe := b.put(spec)
		failure := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
		fail := func(id asyncflow.TaskID) store.Task {
			b.change(id, asyncflow.Patch{RunAt: b.Clock.Now()})
			b.settle(pipe, b.lease(pipe, 1)[0], failure)
			return b.task(id)
		}
		more := b.submit(newTask(`1`))[0].ID
		b.change(more, asyncflow.Patch{Retry: &asyncflow.RetryPolicy{MaxAttempts: 3,
			Interval: asyncflow.Seconds(-300)}})
		b.change(more, asyncflow.Patch{Priority: asyncflow.Priority{60}})
		require.Equal(t, asyncflow.StatusWaiting, fail(more).Status)
		now := b.Clock.Now()
		again := fail(more)
		require.Equal(t, []any{asyncflow.WaitRetry, 3}, []any{again.WaitsFor, again.Attempt})
		require.WithinRange(t, again.OrderTime, now, b.Clock.Now().Add(5*time.Minute))
		b.change(more, retries(2)) // it is in its third already
		require.Equal(t, asyncflow.StatusFailed, fail(more).Status)

		back := b.submit(newTask(`1`))[0].ID
		b.change(back, retries(1))
		b.change(back, retries(1))
		require.Equal(t, 1, b.task(back).Options.Retry.MaxAttempts)
		b.change(back, asyncflow.Patch{Retry: &asyncflow.RetryPolicy{}})
		require.True(t, b.task(back).Options.IsZero())
		require.Equal(t, asyncflow.StatusWaiting, fail(back).Status)
		require.Equal(t, asyncflow.StatusFailed, fail(back).Status)
	})
}

// A task that waits for its children, or for results of its dependencies, keeps its context.
func TestEditRefused(t *testing.T) {
	b := setupFanOut(t)
	parent := b.fanOut(asyncflow.FanOut{})
	_, err := b.Change(t.Context(), tenant, parent, edit(`1`))
	require.ErrorContains(t, err, "waits for its children")
	on := newTask(`1`)
	on.DependsOn = []asyncflow.Dependency{{Task: parent}}
	free := b.submit(on)[0].ID
	b.change(free, edit(`"new"`))
	on.Options.ContextFrom = asyncflow.ContextFromDependencies
	bound := b.submit(on)[0].ID
	_, err = b.Change(t.Context(), tenant, bound, edit(`1`))
	require.ErrorContains(t, err, "waits for its dependencies")
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.Equal(t, asyncflow.WaitDependencies, b.task(free).WaitsFor, "it waits as before")
	b.checkTokens("pipe")
}

// The report of an attempt that was given up before the change comes too late: it was about the old
// context.
func TestEditFencesLateReports(t *testing.T) {
	b := setup(t)
	pipe := b.put(longSecond())
	id := b.submit(newTask(`"old"`))[0].ID
	l := b.lease(pipe, 1)[0]
	lost := asyncflow.Outcome{Kind: asyncflow.OutcomeLost}
	require.Equal(t, store.Settled{}, b.settle(pipe, l, lost))
	b.change(id, edit(`"new"`))
	late := b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	require.True(t, late.Stale)
	b.change(id, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.Equal(t, `"new"`, string(b.lease(pipe, 1)[0].Context))
}

// While nodes lease and give back tasks, callers change their contexts. A lease carries the old
// context or a new one, whole, and the one of the last change that was answered before it began.
func TestEditRacesWithLeases(t *testing.T) {
	longform.Costly(t)
	eachSet(t, func(t *testing.T, b *bundle) {
		tasks, changes := longform.Size(6, 20), longform.Size(40, 400)
		pipe := b.put(twoStages())
		b.submitMany(tasks)
		other := open(t, b.url, "node-2")
		var mu sync.Mutex
		answered := map[asyncflow.TaskID]int{} // the last change that was answered
		stop := make(chan struct{})
		var lessees, callers sync.WaitGroup
		leased := 0
		for _, node := range []*bundle{b, other} {
			lessees.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					mu.Lock()
					least := make(map[asyncflow.TaskID]int, len(answered))
					for id, n := range answered {
						least[id] = n
					}
					mu.Unlock()
					leases := node.lease(pipe, 3)
					for _, l := range leases {
						var d struct{ N, Again int }
						if l.Seq > 1 && l.Context[0] == '{' {
							assert.NoError(t, json.Unmarshal(l.Context, &d), "%s", l.Context)
							assert.Equal(t, d.N, d.Again, "it is whole")
						}
						assert.GreaterOrEqual(t, d.N, least[l.ID], "%s begins with the old context",
							l.ID)
						node.conclude(l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased},
							asyncflow.Verdict{Kind: asyncflow.Retry, Stage: l.Stage,
								Attempt: l.Attempt, OrderTime: l.OrderTime})
					}
					mu.Lock()
					leased += len(leases)
					mu.Unlock()
				}
			})
		}
		refused := 0
		for i := range tasks {
			id := asyncflow.NewTaskID("pipe", 1, 0)
			id.Number = b.idAt(pipe, i)
			callers.Go(func() {
				for n := 1; n <= changes; n++ {
					_, err := b.Change(t.Context(), tenant, id,
						edit(fmt.Sprintf(`{"N":%d,"pad":"%0100d","Again":%d}`, n, n, n)))
					mu.Lock()
					if err == nil {
						answered[id] = n
					} else {
						refused++ // it runs, or moves on too fast
						assert.Contains(t, []asyncflow.Code{asyncflow.CodeConflict,
							asyncflow.CodeUnavailable}, asyncflow.CodeOf(err), "%v", err)
					}
					mu.Unlock()
				}
			})
		}
		waitAll(t, &callers)
		close(stop)
		waitAll(t, &lessees)
		t.Logf("%d leases, %d changes refused", leased, refused)
		require.NotZero(t, leased)
		b.checkTokens("pipe")
		for _, l := range b.lease(pipe, tasks) {
			if answered[l.ID] > 0 {
				require.Contains(t, string(l.Context), fmt.Sprintf(`{"N":%d,`, answered[l.ID]))
			}
		}
	})
}

// idAt returns the number of the i-th task of a type.
func (b *bundle) idAt(t *store.Type, i int) (id int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), fill(t, 1,
		`SELECT id FROM {task} WHERE type = {number} ORDER BY id LIMIT 1 OFFSET $1`), i).Scan(&id))
	return id
}

// The same context is no change. A task gets only so many others.
func TestEditsHaveABound(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`"old"`))[0].ID
	rows := func() int {
		all, err := b.Attempts(t.Context(), tenant, id)
		require.NoError(t, err)
		return len(all)
	}
	b.change(id, edit(`"old"`))
	require.Zero(t, rows())
	b.change(id, edit(`"new"`))
	b.change(id, edit(`"new"`))
	require.Equal(t, 1, rows())
	b.change(id, asyncflow.Patch{Context: json.RawMessage(`"new"`),
		Priority: asyncflow.Priority{60}})
	require.Equal(t, 2, rows())
	require.Equal(t, asyncflow.Priority{60}, b.task(id).Options.Priority)
	b.exec(fill(pipe, id.Position(), `UPDATE {ready} SET seq = 2000`))
	b.exec(fill(pipe, id.Position(), `
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, next_time,
		  output)
		SELECT type, id, 500 + n, at, stage, attempt, outcome, next_time, '"new"' FROM {journal},
		  generate_series(1, 998) n WHERE seq = 2`))
	b.change(id, edit(`"the last"`))
	b.change(id, edit(`"the last"`))
	_, err := b.Change(t.Context(), tenant, id, edit(`"one more"`))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "it was given 1000")
	_, err = b.Change(t.Context(), tenant, id, retries(5))
	require.ErrorContains(t, err, "it was given 1000")
	require.Equal(t, `"the last"`, string(b.lease(pipe, 1)[0].Context))
}
