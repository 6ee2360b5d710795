package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// failure is an outcome of an attempt that failed.
func failure(status int, code asyncflow.FailureCode, text string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: status, Failure: code,
		Error: text}
}

// fates submits tasks of a type that end in many ways, and returns their ids by name.
func (b *bundle) fates(pipe *store.Type) map[string]asyncflow.TaskID {
	b.t.Helper()
	ids := map[string]asyncflow.TaskID{}
	submit := func(name string, o asyncflow.Options) asyncflow.Lease {
		task := newTask(`1`)
		task.Type = pipe.Name
		task.Options = o
		ids[name] = b.submit(task)[0].ID
		leases := b.lease(pipe, 1)
		require.Len(b.t, leases, 1)
		require.Equal(b.t, ids[name], leases[0].ID)
		return leases[0]
	}
	var none asyncflow.Options
	reject := func(name string, o asyncflow.Outcome) {
		l := submit(name, none)
		require.Equal(b.t, store.Settled{},
			b.conclude(l, o, asyncflow.Verdict{Kind: asyncflow.Fail}))
	}
	reject("timeout", failure(0, asyncflow.FailureTimeout, "no answer within 5s"))
	reject("refused", failure(0, asyncflow.FailureNoConnection, "dial: refused"))
	reject("503", failure(503, 0, "503 Service Unavailable"))
	reject("504", failure(504, 0, "504 Gateway Timeout"))
	reject("word", failure(200, 0, "card_declined: no funds"))
	reject("no word", failure(200, 0, "it is: broken"))
	reject("lost", asyncflow.Outcome{Kind: asyncflow.OutcomeLost, Error: "the lease ran out"})
	l := submit("with a flow key", asyncflow.Options{FlowKey: "customer-17", Key: "order-17"})
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	l = b.leaseOne(pipe)
	for l.Attempt < 3 {
		b.settle(pipe, l, failure(503, 0, "503 Service Unavailable"))
		b.hasten(l.ID)
		l = b.leaseOne(pipe)
	}
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	submit("running", asyncflow.Options{FlowKey: "customer-18"})
	return ids
}

// hasten makes a task that waits due.
func (b *bundle) hasten(id asyncflow.TaskID) {
	b.t.Helper()
	_, err := b.Change(b.t.Context(), tenant, id, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(b.t, err)
}

// where are filters, and the tasks of fates that they find.
func where(now time.Time) map[string]struct {
	filter store.Filter
	want   []string
} {
	all := []string{"timeout", "refused", "503", "504", "word", "no word", "lost",
		"with a flow key"}
	return map[string]struct {
		filter store.Filter
		want   []string
	}{
		"timeout":        {store.Filter{Code: "timeout"}, []string{"timeout"}},
		"refused":        {store.Filter{Code: "no_connection"}, []string{"refused"}},
		"other":          {store.Filter{Code: "other"}, nil},
		"503":            {store.Filter{Code: "503"}, []string{"503"}},
		"5xx":            {store.Filter{Code: "5xx"}, []string{"503", "504"}},
		"4xx":            {store.Filter{Code: "4xx"}, nil},
		"word":           {store.Filter{Code: "card_declined"}, []string{"word"}},
		"half":           {store.Filter{Code: "card"}, nil},
		"lost":           {store.Filter{Code: "lost"}, []string{"lost"}},
		"flow":           {store.Filter{FlowKey: "customer-17"}, []string{"with a flow key"}},
		"runs":           {store.Filter{FlowKey: "customer-18"}, []string{"running"}},
		"three":          {store.Filter{Attempts: 3}, []string{"with a flow key"}},
		"four":           {store.Filter{Attempts: 4}, nil},
		"ended":          {store.Filter{EndedSince: now.Add(-time.Hour)}, all},
		"ended long ago": {store.Filter{EndedUntil: now.Add(-time.Hour)}, nil},
		"ended, and a code": {store.Filter{EndedSince: now.Add(-time.Hour), Code: "5xx",
			Status: asyncflow.StatusFailed}, []string{"503", "504"}},
		"running and ended": {store.Filter{EndedSince: now.Add(-time.Hour),
			Status: asyncflow.StatusRunning}, nil},
		"key": {store.Filter{Key: "order-17"}, []string{"with a flow key"}},
	}
}

func TestFiltersByWhatHappened(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	ids := b.fates(pipe)
	for name, c := range where(b.Clock.Now()) {
		t.Run(name, func(t *testing.T) {
			for _, taskType := range []string{"pipe", ""} {
				f := c.filter
				f.Type = taskType
				f.Limit = 100
				list, err := b.Tasks(t.Context(), tenant, f)
				require.NoError(t, err)
				assert.ElementsMatch(t, c.want, namesOf(ids, list))
				n, err := b.TaskCount(t.Context(), tenant, f)
				require.NoError(t, err)
				assert.Equal(t, store.TaskCount{Tasks: int64(len(c.want)), Exact: true}, n)
			}
			_, due := b.start(store.CountAll, store.NewOperation{Filter: c.filter})
			assert.EqualValues(t, len(c.want), b.finish(due).Done)
		})
	}
}

// Postgres writes the options of tasks that were submitted by SQL in its own way.
func TestFlowKeyOfATaskSubmittedBySQL(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	_, err := b.db.Exec(t.Context(),
		`SELECT tenant_acme.submit_task('pipe', '1', flow_key => 'customer-17')`)
	require.NoError(t, err)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{FlowKey: "customer-17", Limit: 10})
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func namesOf(ids map[string]asyncflow.TaskID, list []store.Task) (names []string) {
	for _, task := range list {
		for name, id := range ids {
			if id == task.ID {
				names = append(names, name)
			}
		}
	}
	return names
}

// A task that failed just now is found by when it failed, however long ago it was submitted, and
// one that failed long ago isn't.
func TestEndedSinceIsTheTimeOfTheEnd(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	ids := b.fates(pipe)
	_, err := b.db.Exec(t.Context(), b.at(1, `UPDATE {task} SET created_at = now() - interval '8 h'
		WHERE id = $1`), ids["timeout"].Number)
	require.NoError(t, err)
	_, err = b.db.Exec(t.Context(), b.at(1, `UPDATE {journal} SET at = now() - interval '3 h'
		WHERE id = $1`), ids["503"].Number)
	require.NoError(t, err)
	f := store.Filter{Type: "pipe", Status: asyncflow.StatusFailed,
		EndedSince: b.Clock.Now().Add(-2 * time.Hour), Limit: 100}
	list, err := b.Tasks(t.Context(), tenant, f)
	require.NoError(t, err)
	names := namesOf(ids, list)
	assert.Contains(t, names, "timeout")
	assert.NotContains(t, names, "503")
	o, due := b.start(store.RedriveTasks, store.NewOperation{Filter: f})
	assert.EqualValues(t, 7, o.Total)
	assert.EqualValues(t, 7, b.finish(due).Done)
	task, err := b.Task(t.Context(), tenant, ids["503"])
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	list, err = b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 100,
		EndedSince: b.Clock.Now().Add(-24 * time.Hour)})
	require.NoError(t, err)
	assert.Equal(t, []string{"503"}, namesOf(ids, list), "a redriven task hasn't ended")
}

// Rolls in which nothing happened since then aren't searched.
func TestEndedSinceSkipsIdleRolls(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.past(pipe, 2*store.PageLook, 2*store.PageLook)
	f := store.Filter{Type: "pipe", EndedSince: b.Clock.Now().Add(-time.Hour), Stage: "none",
		Limit: 10}
	page, err := b.TaskPage(t.Context(), tenant, f)
	require.NoError(t, err)
	assert.Equal(t, store.PageLook, page.Searched.Tasks)
	_, err = b.db.Exec(t.Context(), b.at(1, `UPDATE {rolls} SET idle_since = now() - interval '2 h'
		WHERE table_set = $1`), pipe.Set().Name)
	require.NoError(t, err)
	page, err = b.TaskPage(t.Context(), tenant, f)
	require.NoError(t, err)
	assert.Zero(t, page.Searched.Tasks)
	assert.Zero(t, page.Next)
	_, due := b.start(store.RedriveTasks, store.NewOperation{Filter: store.Filter{
		EndedSince: f.EndedSince}})
	assert.Equal(t, store.OperationDone, b.operation(due).State)
}

// threeTypes makes tasks of three types, one with tables of its own.
func threeTypes(t *testing.T) (*bundle, map[string][]asyncflow.TaskID) {
	b := setup(t)
	ids := map[string][]asyncflow.TaskID{}
	for _, name := range []string{"beta", "alpha", "gamma"} {
		spec := twoStages()
		spec.Name = name
		if name == "gamma" {
			spec = withOwnSet(spec)
		}
		known := b.put(spec)
		for i := range 5 {
			task := newTask(fmt.Sprint(i))
			task.Type = name
			ids[name] = append(ids[name], b.submit(task)[0].ID)
			if i < 3 {
				b.settle(known, b.leaseOne(known), rejected(0, asyncflow.Lease{}))
			}
		}
		slices.Reverse(ids[name])
	}
	return b, ids
}

// A list without a type shows the tasks of all types, by the names of the types, on pages of any
// size.
func TestPagesOfAllTypes(t *testing.T) {
	b, ids := threeTypes(t)
	for status, per := range map[asyncflow.Status][2]int{"": {0, 5},
		asyncflow.StatusPending: {0, 2}, asyncflow.StatusFailed: {2, 5}} {
		var want []asyncflow.TaskID
		for _, name := range []string{"alpha", "beta", "gamma"} {
			want = append(want, ids[name][per[0]:per[1]]...)
		}
		for limit := 1; limit < 17; limit += 3 {
			f := store.Filter{Status: status, Limit: limit}
			var got []asyncflow.TaskID
			for pages := 0; pages == 0 || f.FromType != ""; pages++ {
				page, err := b.TaskPage(t.Context(), tenant, f)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Tasks), limit)
				require.Less(t, pages, 20)
				for _, task := range page.Tasks {
					got = append(got, task.ID)
				}
				f.FromType, f.After = page.NextType, page.Next
			}
			assert.Equal(t, want, got, "%s by %d", status, limit)
			b.sameBackwards(store.Filter{Status: status, Limit: limit})
		}
		n, err := b.TaskCount(t.Context(), tenant, store.Filter{Status: status})
		require.NoError(t, err)
		assert.Equal(t, store.TaskCount{Tasks: int64(len(want)), Exact: true}, n)
	}
}

// A page of all types ends when it searched enough, and says where the next one begins.
func TestPagesOfAllTypesAreBounded(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.past(pipe, store.PageLook+1000, 0)
	later := twoStages()
	later.Name = "zeta"
	b.put(later)
	task := newTask(`1`)
	task.Type = "zeta"
	id := b.submit(task)[0].ID
	f := store.Filter{Stage: "first", Status: asyncflow.StatusPending, Limit: 10}
	page, err := b.TaskPage(t.Context(), tenant, f)
	require.NoError(t, err)
	require.Len(t, page.Tasks, 1, "no task of pipe is pending")
	f = store.Filter{Attempts: 7, Limit: 10}
	page, err = b.TaskPage(t.Context(), tenant, f)
	require.NoError(t, err)
	assert.Equal(t, []any{store.PageLook, "pipe", 0},
		[]any{page.Searched.Tasks, page.NextType, len(page.Tasks)})
	f.FromType, f.After, f.Attempts = page.NextType, page.Next, 0
	f.Stage = "first"
	f.Status = asyncflow.StatusPending
	page, err = b.TaskPage(t.Context(), tenant, f)
	require.NoError(t, err)
	require.Len(t, page.Tasks, 1)
	assert.Equal(t, id, page.Tasks[0].ID)
	assert.Empty(t, page.NextType)
	n, err := b.TaskCount(t.Context(), tenant, store.Filter{Attempts: 7})
	require.NoError(t, err)
	assert.Equal(t, store.TaskCount{Exact: true}, n)
}

// runAll takes all steps of an operation on all types.
func (b *bundle) runAll(o store.Operation) store.Operation {
	b.t.Helper()
	for o.State == store.OperationRunning {
		b.step(store.DueOperation{Tenant: tenant, Type: o.Filter.Type, ID: o.ID})
		o = b.operation(store.DueOperation{ID: o.ID})
	}
	return o
}

func TestOperationOnAllTypes(t *testing.T) {
	b, _ := threeTypes(t)
	b.put(twoStages()) // there are no tasks of pipe
	o, err := b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.RedriveTasks,
		AllTypes: true, Filter: store.Filter{EndedSince: b.Clock.Now().Add(-time.Hour)}})
	require.NoError(t, err)
	assert.Equal(t, []any{store.OperationRunning, int64(9), int64(0), int64(0)}, figures(o))
	assert.Equal(t, []any{"alpha", true}, []any{o.Filter.Type, o.AllTypes})
	step := b.step(store.DueOperation{Tenant: tenant, Type: "gamma", ID: o.ID})
	assert.Equal(t, store.Step{}, step, "it is at another type")
	step = b.step(store.DueOperation{Tenant: tenant, Type: "alpha", ID: o.ID})
	assert.Equal(t, []any{3, "beta"}, []any{step.Done, step.Type})
	o = b.runAll(b.operation(store.DueOperation{ID: o.ID}))
	assert.Equal(t, []any{store.OperationDone, int64(9), int64(9), int64(0)}, figures(o))

	o, err = b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.CountAll,
		AllTypes: true, Filter: store.Filter{Status: asyncflow.StatusPending}})
	require.NoError(t, err)
	o = b.runAll(o)
	assert.Equal(t, []any{store.OperationDone, int64(15)}, []any{o.State, o.Done})

	o, err = b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.CancelTasks,
		AllTypes: true})
	require.NoError(t, err)
	o = b.runAll(o)
	assert.Equal(t, []any{store.OperationDone, int64(15), int64(15), int64(0)}, figures(o))
	_, err = b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.RedriveTasks,
		AllTypes: true, FromStage: "first"})
	assert.ErrorContains(t, err, "from_stage needs a type")
}

// An operation on all types outlives the type that it is at.
func TestOperationOutlivesItsType(t *testing.T) {
	b, ids := threeTypes(t)
	_, err := b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.CancelTasks,
		Filter: store.Filter{Type: "alpha"}})
	require.NoError(t, err)
	for _, id := range ids["alpha"][:2] {
		_, err := b.Cancel(t.Context(), tenant, id, "")
		require.NoError(t, err)
	}
	o, err := b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.RedriveTasks,
		AllTypes: true})
	require.NoError(t, err)
	assert.Equal(t, "alpha", o.Filter.Type)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "alpha", false))
	o = b.runAll(b.operation(store.DueOperation{ID: o.ID}))
	assert.Equal(t, []any{store.OperationDone, int64(9), int64(6), int64(3)}, figures(o))
	all, _, err := b.OperationPage(t.Context(), tenant, store.Place{}, 500)
	require.NoError(t, err)
	assert.Len(t, all, 1, "the other one went with its type")
}

// A node of the version before leaves operations alone with a filter which it doesn't know.
func TestOldNodesLeaveNewFiltersAlone(t *testing.T) {
	b := setup(t)
	b.fates(b.put(twoStages()))
	for name, n := range map[string]store.NewOperation{
		"redrive":       {},
		"redrive_where": {Filter: store.Filter{EndedSince: b.Clock.Now().Add(-time.Hour)}},
	} {
		o, _ := b.start(store.RedriveTasks, n)
		var kind string
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT kind FROM tenant_acme.operations WHERE id = $1::uuid`, o.ID).Scan(&kind))
		assert.Equal(t, name, kind)
		assert.Equal(t, store.RedriveTasks, b.operation(store.DueOperation{ID: o.ID}).Kind)
	}
}

func TestBadFilters(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	now := b.Clock.Now()
	for field, f := range map[string]store.Filter{
		"code":        {Code: "no code"},
		"until":       {Since: now, Until: now},
		"ended_until": {EndedSince: now, EndedUntil: now.Add(-time.Second)},
	} {
		f.Type = "pipe"
		_, err := b.TaskPage(t.Context(), tenant, f)
		var known *asyncflow.Error
		require.ErrorAs(t, err, &known, field)
		assert.Equal(t, field, known.Fields[0].Field)
		_, err = b.TaskCount(t.Context(), tenant, f)
		require.ErrorAs(t, err, &known, field)
		_, err = b.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.RedriveTasks, Filter: f})
		require.ErrorAs(t, err, &known, field)
	}
}

// A call that changes many tasks takes the children of one task.
func TestOperationOnChildren(t *testing.T) {
	b := setupFanOut(t)
	f := store.Filter{Parent: b.fanOut(asyncflow.FanOut{})}
	other := b.submit(newTask(`1`))[0].ID
	_, due := b.start(store.CountAll, store.NewOperation{Filter: f})
	assert.EqualValues(t, 2, b.finish(due).Done)
	o, due := b.start(store.CancelTasks, store.NewOperation{Filter: f})
	assert.EqualValues(t, 2, o.Total)
	assert.EqualValues(t, 2, b.finish(due).Done)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Parent: f.Parent, Limit: 10,
		Status: asyncflow.StatusCancelled})
	require.NoError(t, err)
	assert.Len(t, list, 2)
	assert.Equal(t, asyncflow.StatusPending, b.task(other).Status)
	_, due = b.start(store.CountAll, store.NewOperation{Filter: store.Filter{Key: "none"}})
	assert.Zero(t, b.finish(due).Done)
}

// A task of a removed stage is in the first attempt of the stage that it is mapped to.
func TestAttemptsOfARemovedStage(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	l := b.leaseOne(pipe)
	b.settle(pipe, l, failure(503, 0, "503"))
	spec := twoStages()
	spec.Stages[0].Name = "third"
	spec.StageMapping = map[string]string{"first": "third"}
	for n, want := range map[int]int{1: 1, 2: 1} {
		list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Attempts: n, Limit: 9})
		require.NoError(t, err)
		assert.Len(t, list, want)
	}
	b.put(spec)
	for n, want := range map[int]int{1: 1, 2: 0} {
		list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Attempts: n, Limit: 9})
		require.NoError(t, err)
		assert.Len(t, list, want)
		for _, task := range list {
			assert.Equal(t, 1, task.Attempt)
		}
	}
}
