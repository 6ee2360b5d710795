package dispatcher_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// family holds a node with a type "pipe" that fans out in its first stage, and what its workers
// were sent.
type family struct {
	*node
	b      *bundle
	t      *testing.T
	mu     sync.Mutex
	first  map[int]int // deliveries of the first stage, by index
	joined []string    // contexts of the second stage
}

// startFamily starts a node. work handles the children.
func startFamily(t *testing.T, rule asyncflow.FanOut, work sendFunc) *family {
	return setup(t).family(dispatcher.Config{}, rule, work)
}

func (b *bundle) family(cfg dispatcher.Config, rule asyncflow.FanOut, work sendFunc) *family {
	f := &family{t: b.t, b: b, first: map[int]int{}}
	f.node = b.start("a", cfg, func(ctx context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		if d.Lease.Stage == "first" {
			f.mu.Lock()
			f.first[d.Lease.Options.Child.Index]++
			f.mu.Unlock()
			return work(ctx, d)
		}
		f.mu.Lock()
		f.joined = append(f.joined, string(d.Lease.Context))
		f.mu.Unlock()
		return done
	})
	f.fansOut(rule)
	return f
}

// fansOut gives the first stage a fan-out.
func (f *family) fansOut(rule asyncflow.FanOut) {
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(f.t, err)
	changed := pipe.TaskType
	changed.Stages = slices.Clone(changed.Stages)
	changed.Stages[0].FanOut = &rule
	_, _, err = f.PutTaskType(f.t.Context(), tenant, changed)
	require.NoError(f.t, err)
	require.NoError(f.t, f.Catalog.RefreshTenant(f.t.Context(), tenant))
}

// one submits a task and waits for its end.
func (f *family) one(doc string) store.Task {
	return f.ended(f.submitOne(doc))
}

func (f *family) submitOne(doc string) asyncflow.TaskID {
	got := f.Submit(f.t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
		Context: json.RawMessage(doc)}})[0]
	require.NoError(f.t, got.Err)
	return got.ID
}

func (f *family) ended(id asyncflow.TaskID) store.Task {
	task, err := f.AwaitFinal(f.t.Context(), tenant, id, patience)
	require.NoError(f.t, err)
	task, err = f.Task(f.t.Context(), tenant, task.ID)
	require.NoError(f.t, err)
	return task
}

// echo answers with the context.
func echo(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	o := done
	o.Output = slices.Clone(d.Lease.Context)
	return o
}

func TestItemsJoin(t *testing.T) {
	rule := asyncflow.FanOut{Items: "/pages", Shared: "/options"}
	f := startFamily(t, rule, func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		assert.JSONEq(t, `{"dpi":300}`, string(d.Lease.Options.Child.Shared))
		if d.Lease.Options.Child.Index == 1 { // one without an output
			return done
		}
		return echo(ctx, d)
	})
	task := f.one(`{"pages": [ {"n": 1.0}, 2, "é"], "options": {"dpi":300}}`)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	want := `{"count":3,"succeeded":3,"failed":0,"cancelled":0,"results":[{"n": 1.0},null,"é"]}`
	assert.Equal(t, []string{want}, f.joined)
	assert.Equal(t, map[int]int{0: 1, 1: 1, 2: 1}, f.first)
	assert.Equal(t, &asyncflow.Children{Total: 3, Succeeded: 3}, task.Children)
	children, err := f.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: task.ID, Limit: 9})
	require.NoError(t, err)
	assert.Len(t, children, 3)
}

func TestManyChildrenJoinOnce(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Shards: 2500}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		return done
	})
	task := f.one(`{"a":1}`)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Len(t, f.joined, 1)
	assert.Len(t, f.first, 2500)
	for index, n := range f.first {
		assert.Equal(t, 1, n, index)
	}
	assert.Equal(t, &asyncflow.Children{Total: 2500, Succeeded: 2500}, task.Children)
}

func TestLongResultsHaveAnAddress(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Items: "/pages"}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		o := done
		o.Output = json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
		return o
	})
	task := f.one(`{"pages": [` + strings.Repeat("1,", 11) + `1]}`)
	require.Len(t, f.joined, 1)
	assert.Contains(t, f.joined[0],
		`"results_url":"/v1/tasks/`+task.ID.String()+`/results?fan_out=2"`)
	results, count, err := f.ChildResults(t.Context(), tenant, task.ID, 2, 3, 5)
	require.NoError(t, err)
	assert.Equal(t, 12, count)
	require.Len(t, results, 5)
	assert.Equal(t, 3, results[0].Index)
	assert.Len(t, results[4].Output, 100_002)
}

// A stage fans out over the results of the stage before, also if they are only by their URL.
func TestAFanOutOverLongResults(t *testing.T) {
	var mu sync.Mutex
	got := map[int]int{}
	b := setup(t)
	f := &family{t: t, b: b, first: map[int]int{}}
	f.node = b.start("a", dispatcher.Config{}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		o, child := done, d.Lease.Options.Child
		if d.Lease.Stage == "first" {
			o.Output = json.RawMessage(`"` + strings.Repeat("x", 100_000+child.Index) + `"`)
			return o
		}
		mu.Lock()
		defer mu.Unlock()
		got[child.Index] = len(d.Lease.Context)
		return o
	})
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	changed := pipe.TaskType
	changed.Stages = slices.Clone(changed.Stages)
	changed.Stages[0].FanOut = &asyncflow.FanOut{Items: "/pages"}
	changed.Stages[1].FanOut = &asyncflow.FanOut{Items: "/results"}
	_, _, err = f.PutTaskType(t.Context(), tenant, changed)
	require.NoError(t, err)
	require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
	task := f.one(`{"pages": [` + strings.Repeat("1,", 24) + `1]}`)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status, task.Error)
	require.Len(t, got, 25)
	for i := range 25 {
		assert.Equal(t, 100_002+i, got[i], "item %d", i)
	}
	// Those of another task are refused.
	other := f.one(`{"pages": [], "x": 1}`)
	assert.Equal(t, asyncflow.StatusSucceeded, other.Status)
	changed.Stages[0].FanOut = &asyncflow.FanOut{Items: "/results"}
	_, _, err = f.PutTaskType(t.Context(), tenant, changed)
	require.NoError(t, err)
	require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
	foreign := f.one(`{"count": 25, "results_url": "https://x/v1/tasks/` + task.ID.String() +
		`/results?fan_out=2"}`)
	assert.Equal(t, asyncflow.StatusFailed, foreign.Status)
	assert.Contains(t, foreign.Error, "fan_out.items: the results of task "+task.ID.String())
}

// A context that names stored results wrongly fails the task: anyone can write it.
func TestStoredResultsThatAreNone(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Items: "/pages"}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		if string(d.Lease.Context) != "null" { // the result of a child that failed
			return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"}
		}
		return done
	})
	task := f.one(`{"pages": [1, 2]}`) // can be redriven, because it fails
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	f.fansOut(asyncflow.FanOut{Items: "/results"})
	id := task.ID.String()
	for doc, want := range map[string]string{
		`{"count": 2, "results_url": "/v1/tasks/` + id +
			`/results?fan_out=32767"}`: "fan_out.items: " + "task " + id +
			" has no fan-out 32767, or it is no longer kept",
		`{"count": 3, "results_url": "/v1/tasks/` + id +
			`/results?fan_out=2"}`: "fan_out.items: count " + "is 3; fan-out 2 of task " + id +
			" has 2 results",
		`{"count": 2, "results_url": "/v1/tasks/` + id + `/results?fan_out=9999999999"}`: "" +
			`fan_out.items: /results: the context has no "results" there`,
	} {
		_, err := f.Redrive(t.Context(), tenant, task.ID,
			store.Redrive{Stage: "first", Context: json.RawMessage(doc)})
		require.NoError(t, err)
		again := f.ended(task.ID)
		assert.Equal(t, asyncflow.StatusFailed, again.Status)
		assert.Equal(t, want, again.Error)
	}
	doc := `{"count": 2, "results_url": "/v1/tasks/` + id + `/results?fan_out=2"}`
	_, err := f.Redrive(t.Context(), tenant, task.ID,
		store.Redrive{Stage: "first", Context: json.RawMessage(doc)})
	require.NoError(t, err)
	last := f.ended(task.ID)
	assert.Equal(t, asyncflow.StatusSucceeded, last.Status, last.Error)
}

func TestListsThatAreNone(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Items: "/pages"}, echo)
	empty := f.one(`{"pages": []}`)
	assert.Equal(t, asyncflow.StatusSucceeded, empty.Status)
	assert.Equal(t, []string{string(asyncflow.NoResults)}, f.joined)
	for doc, want := range map[string]string{
		`{"pages": {}}`:  "fan_out.items: /pages is an object; it must be an array",
		`{"page": []}`:   `fan_out.items: /pages: the context has no "pages" there`,
		`[1]`:            `fan_out.items: /pages: an array of 1 has no entry "pages"`,
		`{"pages":null}`: "fan_out.items: /pages is null; it must be an array",
	} {
		task := f.one(doc)
		assert.Equal(t, asyncflow.StatusFailed, task.Status)
		assert.Equal(t, want, task.Error)
	}
	f.quota(asyncflow.QuotaChildren, 2)
	task := f.one(`{"pages": [1, 2, 3]}`)
	assert.Equal(t, "fan_out: the task would have 3 children; the tenant's quota children is 2",
		task.Error)
}

func (f *family) quota(name asyncflow.QuotaName, limit float64) {
	_, err := f.PatchTenant(f.t.Context(), tenant, store.TenantPatch{
		Quotas: map[asyncflow.QuotaName]float64{name: limit}})
	require.NoError(f.t, err)
	require.NoError(f.t, f.Catalog.RefreshTenant(f.t.Context(), tenant))
}

// Children count as pending tasks, as many as may be under way at once.
func TestAFanOutKeepsTheQuotaOfPendingTasks(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Items: "/pages"}, echo)
	f.quota(asyncflow.QuotaPendingTasks, 6)
	task := f.one(`{"pages": [1, 2, 3, 4, 5, 6]}`)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, "fan_out: 6 children would be pending at once; the tenant's quota "+
		"pending_tasks is 6, and 1 are in use", task.Error)
	f.fansOut(asyncflow.FanOut{Items: "/pages", MaxParallel: 4})
	task = f.one(`{"pages": [1, 2, 3, 4, 5, 6]}`)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status, task.Error)
}

func TestFailuresOfChildren(t *testing.T) {
	t.Parallel()
	const fails, goesOn = asyncflow.StatusFailed, asyncflow.StatusSucceeded
	for name, test := range map[string]struct {
		rule asyncflow.ChildFailure
		bad  int
		want asyncflow.Status
	}{
		"fail fast":   {asyncflow.ChildFailure{}, 1, fails},
		"all settled": {asyncflow.ChildFailure{Policy: asyncflow.AllSettled}, 8, goesOn},
		"within a count": {asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Count: 2}, 2,
			goesOn},
		"over a count": {asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Count: 2}, 3,
			fails},
		"within a percent": {asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Percent: 25}, 2,
			goesOn},
		"over a percent": {asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Percent: 25}, 3,
			fails},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFamily(t, asyncflow.FanOut{Shards: 8, OnChildFailure: test.rule},
				func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
					if d.Lease.Options.Child.Index < test.bad {
						return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422,
							Error: "no"}
					}
					return done
				})
			task := f.one(`{}`)
			assert.Equal(t, test.want, task.Status)
			c := task.Children
			assert.Equal(t, 8, c.Succeeded+c.Failed+c.Cancelled)
			if test.want == asyncflow.StatusSucceeded {
				assert.Equal(t, test.bad, c.Failed)
			}
		})
	}
}

func TestMaxParallel(t *testing.T) {
	var now, most atomic.Int32
	f := startFamily(t, asyncflow.FanOut{Shards: 60, MaxParallel: 4}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		return done
	})
	task := f.one(`{}`)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.LessOrEqual(t, most.Load(), int32(4))
	assert.Len(t, f.first, 60)
}

func TestCancelATree(t *testing.T) {
	begun := make(chan struct{}, 2000)
	end := make(chan struct{})
	f := startFamily(t, asyncflow.FanOut{Shards: 1500}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		begun <- struct{}{}
		<-end
		return done
	})
	id := f.submitOne(`{}`)
	<-begun
	_, err := f.Cancel(t.Context(), tenant, id, "stop it")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		task, err := f.Task(t.Context(), tenant, id)
		return err == nil && task.Children != nil && task.Children.Cancelled == 1500
	}, patience, 20*time.Millisecond)
	close(end)
	assert.Empty(t, f.joined)
}

func TestRedriveATree(t *testing.T) {
	var well atomic.Bool
	f := startFamily(t, asyncflow.FanOut{Shards: 700,
		OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.Tolerate, Count: 9}},
		func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if !well.Load() && d.Lease.Options.Child.Index%50 == 7 {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422, Error: "no"}
			}
			return echo(ctx, d)
		})
	task := f.one(`[1]`)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	succeeded := task.Children.Succeeded
	well.Store(true)
	_, err := f.Redrive(t.Context(), tenant, task.ID, store.Redrive{})
	require.NoError(t, err)
	task = f.ended(task.ID)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status, task.Error)
	assert.Equal(t, &asyncflow.Children{Total: 700, Succeeded: 700}, task.Children)
	require.Len(t, f.joined, 1)
	assert.NotContains(t, f.joined[0], "null")
	again := 0
	for _, n := range f.first {
		again += n - 1
	}
	assert.LessOrEqual(t, again, 700-succeeded)
	children, err := f.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: task.ID, Limit: 1})
	require.NoError(t, err)
	_, err = f.Redrive(t.Context(), tenant, children[0].ID, store.Redrive{})
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
}

// A child is redriven while its parent waits for a sibling.
func TestRedriveOfAChild(t *testing.T) {
	var well atomic.Bool
	end := make(chan struct{})
	f := startFamily(t, asyncflow.FanOut{Shards: 2,
		OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.AllSettled}},
		func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			switch {
			case d.Lease.Options.Child.Index == 1:
				<-end
			case !well.Load():
				return asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 422, Error: "no"}
			}
			return echo(ctx, d)
		})
	id := f.submitOne(`"x"`)
	var failed []store.Task
	require.Eventually(t, func() bool {
		var err error
		failed, err = f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id,
			Status: asyncflow.StatusFailed, Limit: 9})
		return err == nil && len(failed) == 1
	}, patience, 20*time.Millisecond)
	well.Store(true)
	_, err := f.Redrive(t.Context(), tenant, failed[0].ID, store.Redrive{})
	require.NoError(t, err)
	f.ended(failed[0].ID)
	close(end)
	require.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	assert.Equal(t, `{"count":2,"succeeded":2,"failed":0,"cancelled":0,"results":["x","x"]}`,
		f.joined[0])
}

// What a node leaves undone when it dies, a background job does.
func TestSweepOfAnotherNode(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Shards: 1200}, echo)
	f.StopFollowUps()
	id := f.submitOne(`1`)
	require.Eventually(t, func() bool {
		_, _, err := f.SweepFollowUps(t.Context(), tenant)
		require.NoError(t, err)
		task, err := f.Task(t.Context(), tenant, id)
		return err == nil && task.Status.Final()
	}, patience, 20*time.Millisecond)
	assert.Len(t, f.joined, 1)
	assert.Len(t, f.first, 1200)
	due, err := f.FirstFollowUps(t.Context(), []string{tenant})
	require.NoError(t, err)
	assert.Empty(t, due)
}
