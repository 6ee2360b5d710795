package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func TestPutTaskType(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	stored, created, err := b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.True(t, created)
	assert.Equal(t, 1, stored.Version)
	stored, created, err = b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, 1, stored.Version, "the same document again changes nothing")
	spec.ScheduleLimit = 7
	stored, _, err = b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 7}, []int{stored.Version, stored.ScheduleLimit})
	_, err = b.TaskType(t.Context(), "other", "pipe")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "another tenant has none of it")
}

func TestPutTaskTypeAtOnce(t *testing.T) {
	b := setup(t)
	var wg sync.WaitGroup
	created := make([]bool, 8)
	for i := range created {
		wg.Go(func() {
			var err error
			_, created[i], err = b.PutTaskType(t.Context(), tenant, twoStages())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	n := 0
	for _, c := range created {
		if c {
			n++
		}
	}
	assert.Equal(t, 1, n, "one of them made it")
}

func TestStageWithLiveTasksStays(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	fewer := twoStages()
	fewer.Stages = fewer.Stages[1:]
	_, _, err := b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in ready")
	l := b.lease(pipe, 1)[0]
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in lease")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.NoError(t, err, "it has moved on")
}

func TestDeleteTaskType(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe")))
	l := b.lease(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe"))
	var left int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'tenant_acme' AND tablename ~ 'pipe'`).Scan(&left))
	assert.Zero(t, left)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe")))
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r[0].Err))
	b.put(twoStages()) // and it can come again
	b.submit(newTask(`1`))
}

// A delete must not slip between the submits of another node that knows nothing of
// it: they are refused, not lost.
func TestDeleteWhileSubmitting(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	stop := make(chan struct{})
	accepted := make(chan asyncflow.TaskID, 10000)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(accepted)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, r := range far.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)}) {
				if r.Err == nil {
					accepted <- r.ID
				} else {
					assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r.Err), "%v", r.Err)
				}
			}
		}
	})
	<-accepted
	err := b.DeleteTaskType(t.Context(), tenant, "pipe")
	assert.Contains(t, []asyncflow.Code{asyncflow.CodeConflict, asyncflow.CodeUnavailable}, asyncflow.CodeOf(err), "live tasks keep it from being deleted")
	close(stop)
	wg.Wait()
	for id := range accepted {
		_, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err, "%s was acknowledged", id)
	}
}

func TestOtherNodeLearnsOfChanges(t *testing.T) {
	b := setup(t)
	far := open(t, b.url, "node-2")
	b.put(twoStages())
	eventually(t, "the other node knows the type", func() bool { _, err := far.Catalog.Type(tenant, "pipe"); return err == nil })
	e, err := b.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000001", Type: "pipe", Stage: "first", URL: "http://x/", Weight: 1})
	require.NoError(t, err)
	eventually(t, "the other node knows the endpoint", func() bool {
		pipe, err := far.Catalog.Type(tenant, "pipe")
		return err == nil && len(pipe.Endpoints("first")) == 1
	})
	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant, e.ID))
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(b.DeleteEndpoint(t.Context(), tenant, e.ID)))
	for _, bad := range []asyncflow.Endpoint{{ID: e.ID, Type: "nope", Stage: "first"}, {ID: e.ID, Type: "pipe", Stage: "nope"}} {
		_, err = b.CreateEndpoint(t.Context(), tenant, bad)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
}

func TestWakeupsReachOtherNodes(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	woken := make(chan store.TypeKey, 100)
	far := openWith(t, b.url, "node-2", func(s *store.Store) {
		s.Wakeups.Subscribe(func(k store.TypeKey, _ time.Time) { woken <- k }, func() { woken <- store.TypeKey{} })
	})
	_ = far
	require.Equal(t, store.TypeKey{}, <-woken, "a new LISTEN connection says that news may have been missed")
	b.submit(newTask(`1`))
	select {
	case k := <-woken:
		assert.Equal(t, store.TypeKey{Tenant: tenant, Type: "pipe"}, k)
	case <-time.After(patience):
		t.Fatal("no wake-up came")
	}
}

func TestList(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	for i := range 10 {
		task := newTask(fmt.Sprint(i))
		if i == 9 {
			task.Delay = asyncflow.Duration(time.Hour)
		}
		b.submit(task)
	}
	for i, l := range b.lease(pipe, 5) {
		switch i {
		case 0:
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "bad"})
		case 1, 2:
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		}
	}
	for _, l := range b.lease(pipe, 6) { // 5..8 are in stage first, two in stage second
		if l.Stage == "second" {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		} else {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
		}
	}
	counts := map[asyncflow.Status]int{"": 10, asyncflow.StatusFailed: 1, asyncflow.StatusSucceeded: 2, asyncflow.StatusRunning: 2, asyncflow.StatusPending: 4, asyncflow.StatusWaiting: 1}
	for status, want := range counts {
		list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Status: status, Limit: 100})
		require.NoError(t, err, status)
		assert.Len(t, list, want, "status %q", status)
		for _, task := range list {
			one, err := b.Task(t.Context(), tenant, task.ID)
			require.NoError(t, err)
			assert.Equal(t, one.Status, task.Status)
		}
	}
	var pages []string
	f := store.Filter{Type: "pipe", Limit: 4}
	for {
		page, err := b.Tasks(t.Context(), tenant, f)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, task := range page {
			pages = append(pages, task.ID.String())
		}
		f.Before = page[len(page)-1].ID.Number
	}
	assert.Len(t, pages, 10)
	assert.IsDecreasing(t, numbers(t, pages), "newest first, each once")
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Since: b.Clock.Now().Add(time.Minute), Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, list)
	list, err = b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Until: b.Clock.Now().Add(time.Minute), Limit: 100})
	require.NoError(t, err)
	assert.Len(t, list, 10)
}

func numbers(t *testing.T, ids []string) []int64 {
	out := make([]int64, len(ids))
	for i, s := range ids {
		id, err := asyncflow.ParseTaskID(s)
		require.NoError(t, err)
		out[i] = id.Number
	}
	return out
}
