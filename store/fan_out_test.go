package store_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// setupFanOut returns a bundle with a type pipe that makes children in its first stage. What
// follows from ends is only done when a test says so.
func setupFanOut(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.byHand()
	spec := twoStages()
	spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items"}
	b.put(spec)
	return b
}

// fanOut submits a task, and makes it wait for its children.
func (b *bundle) fanOut(rule asyncflow.FanOut) asyncflow.TaskID {
	b.t.Helper()
	id := b.submit(newTask(`{"items":[1,2]}`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: 2}})
	b.followUp()
	return id
}

var (
	badEnd     = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"}
	goodEnd    = asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	allSettled = asyncflow.ChildFailure{Policy: asyncflow.AllSettled}
)

// endChildren ends two children.
func (b *bundle) endChildren(first, second asyncflow.Outcome) {
	b.t.Helper()
	for i, l := range b.leaseAll(b.known(), 2) {
		b.settle(b.known(), l, []asyncflow.Outcome{first, second}[i])
	}
}

// Children are left out of lists, whatever other options they take from their parent.
func TestListsLeaveOutChildren(t *testing.T) {
	b := setupFanOut(t)
	plain := newTask(`{"items":[1,2],"shared":1}`)
	full := newTask(`{"items":[1,2],"shared":{"key":"k"}}`)
	full.Options = asyncflow.Options{Priority: asyncflow.Priority{5, 5},
		Key:     strings.Repeat("<", asyncflow.MaxKeyLength), // it is long in JSON
		FlowKey: strings.Repeat("<", asyncflow.MaxFlowKey),
		Retry:   &asyncflow.RetryPolicy{MaxAttempts: 3}}
	var want []asyncflow.TaskID
	for _, task := range []asyncflow.NewTask{plain, full} {
		want = append(want, b.submit(task)[0].ID)
	}
	for _, l := range b.leaseAll(b.known(), 2) {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{Count: 2,
				FanOut: asyncflow.FanOut{Items: "/items", Shared: "/shared"}}})
	}
	b.followUp()
	all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 6)
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Limit: 10, NoChildren: true})
	require.NoError(t, err)
	var got []asyncflow.TaskID
	for _, task := range list {
		got = append(got, task.ID)
	}
	assert.ElementsMatch(t, want, got)
}

// A task that is redriven, and cancelled before its children were, can be redriven again.
func TestCancelDuringTheRedriveOfATree(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(badEnd, goodEnd)
	b.followUp()
	b.comesTo(id, asyncflow.StatusFailed)
	for range 2 {
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
		require.NoError(t, err)
		_, err = b.Cancel(t.Context(), tenant, id, "")
		require.NoError(t, err)
		b.followUp()
	}
	task := b.comesTo(id, asyncflow.StatusCancelled)
	assert.Equal(t, &asyncflow.Children{Total: 2, Succeeded: 1, Failed: 1}, task.Children)
	b.checkTokens("pipe")
}

// What is left of a cancel doesn't stop the children of a task that was redriven since.
func TestAnOldCancelDoesNotStopATree(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	leases := b.leaseAll(b.known(), 2)
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	b.settle(b.known(), leases[0], badEnd)
	b.settle(b.known(), leases[1], goodEnd)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.outbox WHERE kind = 'stop' FOR UPDATE`)
	require.NoError(t, err)
	b.followUp() // another node is about to stop the children
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	b.followUp()
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, "second", task.Stage)
	b.checkTokens("pipe")
}

// A task that is redriven from a stage with children gets that stage's context, not their results.
func TestRedriveFromTheStageWithChildren(t *testing.T) {
	b := setupFanOut(t)
	b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	l := b.leaseAll(b.known(), 1)[0]
	assert.Equal(t, `{"count":2,"succeeded":2,"failed":0,"cancelled":0,"results":[null,null]}`,
		string(l.Context))
	b.settle(b.known(), l, badEnd)
	_, err := b.Redrive(t.Context(), tenant, l.ID, store.Redrive{Stage: "first"})
	require.NoError(t, err)
	again := b.leaseAll(b.known(), 1)[0]
	assert.Equal(t, json.RawMessage(`{"items":[1,2]}`), again.Context)
	assert.Equal(t, "first", again.Stage)
}

// A redrive keeps no more children under way than max_parallel allows.
func TestRedriveWithMaxParallel(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Shards: 2, MaxParallel: 1, OnChildFailure: allSettled})
	for range 2 {
		b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
		b.followUp()
	}
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "first"})
	require.NoError(t, err)
	for range 2 {
		b.followUp()
		task := b.comesTo(id, asyncflow.StatusWaiting)
		assert.Equal(t, 1, task.Children.Pending)
		b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	}
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, &asyncflow.Children{Total: 2, Succeeded: 2}, task.Children)
}

// A stage that is renamed while a task waits for its children there.
func TestAFanOutInARenamedStage(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	spec := b.known().TaskType
	spec.Stages = slices.Clone(spec.Stages)
	spec.Stages[0].Name = "renamed"
	spec.StageMapping = map[string]string{"first": "renamed"}
	b.put(spec)
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusPending)
	assert.Equal(t, "second", task.Stage)
	b.checkTokens("pipe")
}

// Results of children are gone with their roll.
func TestResultsOfDroppedChildren(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	b.exec(`UPDATE tenant_acme.fan_outs SET firsts = ARRAY[1::bigint]`) // in roll 0
	results, count, err := b.ChildResults(t.Context(), tenant, id, 2, 0, 9)
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	require.Len(t, results, 2)
	assert.Empty(t, results[0].Output)
	assert.Zero(t, results[0].ID)
}

// The error of a task names the child that failed first, and its error: not one that failed before
// it was redriven, nor one that was cancelled because of it.
func TestTheErrorOfATaskNamesTheChildThatFailedFirst(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	leases := b.leaseAll(b.known(), 2)
	b.settle(b.known(), leases[0], badEnd)
	_, err := b.Redrive(t.Context(), tenant, leases[0].ID, store.Redrive{})
	require.NoError(t, err)
	b.exec(`UPDATE tenant_acme.fan_outs SET rule = '{"items":"/items"}'`)
	long := badEnd
	long.Error = "é" + strings.Repeat("x", 4000)
	b.settle(b.known(), leases[1], long)
	b.followUp() // stops the other child
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusFailed)
	assert.Equal(t, "of 2 children, 1 failed and 1 were cancelled; the first to fail is "+
		leases[1].ID.String()+" (index 1): é"+strings.Repeat("x", 998)+"…", task.Error)
}

// Without a failure, it names the child that was cancelled first.
func TestTheErrorOfATaskNamesTheChildThatWasCancelled(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	child := b.leaseAll(b.known(), 2)[0].ID
	_, err := b.Cancel(t.Context(), tenant, child, "not needed")
	require.NoError(t, err)
	b.followUp() // stops the other child
	b.followUp()
	task := b.comesTo(id, asyncflow.StatusFailed)
	assert.Equal(t, "of 2 children, 0 failed and 2 were cancelled; the first to be cancelled is "+
		child.String()+" (index 0): not needed", task.Error)
}
