package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// splitting is a node with a first stage that starts as many tasks as its context says, by its
// answer.
func splitting(t *testing.T) *family {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(
		_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Output: []byte(`0`)}
		var count int
		_ = json.Unmarshal(d.Lease.Context, &count)
		for i := range count {
			o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: "pipe",
				Context: []byte(fmt.Sprintf(`"%d of many"`, i))})
		}
		return o
	})
	f := &family{node: n, b: b, t: t}
	f.spawns("pipe")
	return f
}

// spawns gives the first stage types that it may start, and one attempt.
func (f *family) spawns(types ...string) {
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(f.t, err)
	changed := pipe.TaskType
	changed.Stages = slices.Clone(changed.Stages)
	changed.Stages[0].Spawn = types
	changed.Stages[0].Retry.MaxAttempts = 1
	_, _, err = f.PutTaskType(f.t.Context(), tenant, changed)
	require.NoError(f.t, err)
	require.NoError(f.t, f.Catalog.RefreshTenant(f.t.Context(), tenant))
}

// started returns how many of the tasks that a task started succeeded.
func (f *family) started(id asyncflow.TaskID) int {
	all, err := f.Tasks(f.t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
		Status: asyncflow.StatusSucceeded, Limit: 100})
	require.NoError(f.t, err)
	return len(all)
}

// An answer starts tasks, which run, and count in the rate of submits when they are made.
func TestAnAnswerStartsTasks(t *testing.T) {
	f := splitting(t)
	f.quota(asyncflow.QuotaSubmitsPerSecond, 100)
	task := f.one(`7`)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status, task.Error)
	require.Eventually(t, func() bool { return f.started(task.ID) == 7 }, patience,
		20*time.Millisecond)
	require.Eventually(t, func() bool { return f.charged() == 7 }, patience, 20*time.Millisecond)
}

// An answer that starts tasks which aren't allowed, or would exceed a quota, is a failed attempt,
// and starts none.
func TestAnAnswerThatMayNotStartTasks(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(f *family)
		want    string
	}{
		"no spawn": {func(f *family) { f.spawns() },
			`invalid_spawn: spawn[0].type "pipe" is not allowed in stage "first": the stage has no spawn`},
		"another type": {func(f *family) { f.spawns("others") },
			`invalid_spawn: spawn[0].type "pipe" is not allowed in stage "first": it must be "others"`},
		"children": {func(f *family) { f.quota(asyncflow.QuotaChildren, 6) },
			"quota_exceeded: the attempt would start 7 tasks; the tenant's quota children is 6"},
		"pending tasks": {func(f *family) { f.quota(asyncflow.QuotaPendingTasks, 7) },
			"quota_exceeded: the tenant's quota pending_tasks is 7, and 1 are in use"},
		"bytes": {func(f *family) { f.quota(asyncflow.QuotaContextBytes, 9) },
			"quota_exceeded: the tenant's quota context_bytes is 9, and the context is 11 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := splitting(t)
			c.prepare(f)
			task := f.one(`7`)
			require.Equal(t, []any{asyncflow.StatusFailed, c.want}, []any{task.Status, task.Error})
			all, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
			require.NoError(t, err)
			require.Len(t, all, 1)
		})
	}
}

// An answer isn't refused because the database doesn't count the pending tasks: the worker's work
// is done. Then what is left of the quota by the last count bounds what is started.
func TestAnAnswerStartsTasksBesideASilentDatabase(t *testing.T) {
	f := splitting(t)
	f.quota(asyncflow.QuotaPendingTasks, 7)
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
	for range 4 {
		o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: "pipe", Context: []byte(`0`)})
	}
	l := asyncflow.Lease{Stage: "first", Attempt: 1}
	kind := func(until time.Time) asyncflow.OutcomeKind {
		return f.JudgeSpawn(pipe, l, o, until).Kind
	}
	require.Equal(t, asyncflow.OutcomeDone, kind(time.Now()), "nothing is answered in no time")
	require.Equal(t, asyncflow.OutcomeFailed, kind(time.Now()))
	require.Equal(t, asyncflow.OutcomeDone, kind(time.Now().Add(patience)), "none is live")
}

// What an answer starts counts in the byte budget until it is written, also if the task goes on
// with its next stage at once.
func TestStartedTasksCountInTheByteBudget(t *testing.T) {
	const size = 20 << 10
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(
		_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Output: []byte(`0`)}
		if string(d.Lease.Context) == `1` {
			o.Spawn = []asyncflow.SpawnedTask{{Type: "pipe",
				Context: []byte(`"` + strings.Repeat("x", size-2) + `"`)}}
		}
		return o
	})
	f := &family{node: n, b: b, t: t}
	f.spawns("pipe")
	f.one(`0`) // now the node knows that nobody stands in line
	unlock := sync.OnceFunc(b.lock("tenant_acme.journal_1"))
	defer unlock()
	all := n.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)}})
	require.NoError(t, all[0].Err)
	require.Eventually(t, func() bool { return n.Load() >= size }, patience, 20*time.Millisecond)
	unlock()
	n.await(t, all, asyncflow.StatusSucceeded)
	require.Eventually(t, func() bool { return f.started(all[0].ID) == 1 && n.Load() == 0 },
		patience, 20*time.Millisecond)
}

// A key that a transaction by SQL holds keeps one task of a list from being made. The node tries
// again by itself, and makes it when the key is free.
func TestAnAnswerStartsATaskWithAHeldKey(t *testing.T) {
	b := setup(t)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	n := b.start("a", dispatcher.Config{}, func(
		_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Output: []byte(`0`)}
		if string(d.Lease.Context) == `"split"` {
			for _, key := range []string{"a", "held", "b"} {
				o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: "pipe", Key: key,
					Context: []byte(`0`)})
			}
		}
		return o
	})
	f := &family{node: n, b: b, t: t}
	f.spawns("pipe")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT tenant_acme.submit_task('pipe', '1', key => 'held')`)
	require.NoError(t, err)
	task := f.one(`"split"`)
	require.Eventually(t, func() bool { return f.started(task.ID) == 2 }, patience,
		20*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool { return f.started(task.ID) == 3 }, patience,
		20*time.Millisecond)
}
