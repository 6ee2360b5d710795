package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// startIn makes a leased task start tasks and wait for them.
func (b *bundle) startIn(
	l asyncflow.Lease, join asyncflow.Join, tasks ...asyncflow.SpawnedTask,
) {
	b.t.Helper()
	pipe := b.kind(l.ID.Type)
	o := joining(join, tasks...)
	require.NoError(b.t, pipe.CheckSpawn(l, o))
	require.False(b.t, b.settle(pipe, l, o).Stale)
}

// childOf returns the latest task of a type with a context.
func (b *bundle) childOf(taskType, context string) store.Task {
	b.t.Helper()
	all, err := b.Tasks(b.t.Context(), tenant, store.Filter{Type: taskType, Limit: 1000})
	require.NoError(b.t, err)
	for _, one := range all {
		if task := b.task(one.ID); string(task.Context) == context {
			return task
		}
	}
	b.t.Fatalf("there is no %s with %s", taskType, context)
	return store.Task{}
}

// priorities returns the priorities of tasks of the type base by their contexts.
func (b *bundle) priorities() map[string]asyncflow.Priority {
	b.t.Helper()
	all, err := b.Tasks(b.t.Context(), tenant, store.Filter{Type: "base", Limit: 1000})
	require.NoError(b.t, err)
	found := map[string]asyncflow.Priority{}
	for _, one := range all {
		task := b.task(one.ID)
		found[string(task.Context)] = task.Options.Priority
	}
	return found
}

// The priority of a task that waits goes down to its children that are not begun, on all levels,
// and to children that are made later. The call itself changes only the task.
func TestPriorityGoesDown(t *testing.T) { eachSet(t, testPriorityGoesDown) }

func testPriorityGoesDown(t *testing.T, b *bundle) {
	b.byHand()
	b.SetChunks(2, 2, 2)
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	named := spawned("base", `"named"`)
	named.Priority = asyncflow.Priority{7}
	low := spawned("base", `"d"`)
	low.Priority = asyncflow.Priority{8}
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("pipe", `"middle"`),
		spawned("pipe", `"runs"`), spawned("base", `"a"`), spawned("base", `"begun"`), named)
	b.followUp()
	begun := asyncflow.Lease{}
	for _, l := range b.leaseAll(b.kind("base"), 3) {
		if string(l.Context) == `"begun"` {
			begun = l
			continue
		}
		b.settle(b.kind("base"), l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
	}
	var runs asyncflow.Lease
	for _, l := range b.leaseAll(pipe, 2) {
		if string(l.Context) == `"runs"` {
			runs = l
			continue
		}
		b.startIn(l, asyncflow.Join{MaxParallel: 2}, spawned("base", `"b"`), spawned("base", `"c"`),
			low)
	}
	b.followUp()
	middle := b.childOf("pipe", `"middle"`)
	require.Equal(t, asyncflow.WaitChildren, middle.WaitsFor)
	before := b.childOf("base", `"b"`).OrderTime

	b.change(root, asyncflow.Patch{Priority: asyncflow.Priority{600}})
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: nil, `"begun"`: nil, `"named"`: {7},
		`"b"`: nil, `"c"`: nil}, b.priorities(), "the call goes no further than the task")
	b.startIn(runs, asyncflow.Join{}, spawned("base", `"e"`)) // it began before the change
	b.followUp()
	high := asyncflow.Priority{600}
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: high, `"begun"`: nil, `"named"`: high,
		`"b"`: high, `"c"`: high, `"e"`: high}, b.priorities())
	require.Equal(t, high, b.task(middle.ID).Options.Priority, "for its later stages")
	require.Equal(t, asyncflow.WaitChildren, b.task(middle.ID).WaitsFor)
	require.Equal(t, before.Add(-600*time.Second), b.childOf("base", `"b"`).OrderTime)
	b.checkTokens("base")
	b.checkTokens("pipe")
	require.Zero(t, b.sweep())

	b.change(b.childOf("base", `"c"`).ID, asyncflow.Patch{Priority: asyncflow.Priority{900}})
	first := b.leaseAll(b.kind("base"), 1)[0]
	require.Equal(t, `"c"`, string(first.Context), "the later change decides")
	b.settle(b.kind("base"), first, goodEnd)
	b.followUp()
	require.Equal(t, high, b.priorities()[`"d"`], "it is made after the change")
	b.settle(b.kind("base"), begun, goodEnd)
	b.endAll(b.kind("base"), 5, "")
	b.endAll(pipe, 2, "")
	b.endAll(pipe, 1, "")
	require.Equal(t, asyncflow.StatusSucceeded, b.task(root).Status)
	b.checkTallies("base")
	b.checkTallies("pipe")
}

// A task of a cancelled tree ends as cancelled, also if its children were cancelled before it.
func TestAMiddleTaskIsCancelled(t *testing.T) { eachSet(t, testAMiddleTaskIsCancelled) }

func testAMiddleTaskIsCancelled(t *testing.T, b *bundle) {
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("pipe", `1`), spawned("pipe", `2`))
	b.followUp()
	for _, l := range b.leaseAll(pipe, 2) {
		b.startIn(l, asyncflow.Join{}, spawned("base", `3`))
	}
	b.followUp()
	leaves := b.leaseAll(b.kind("base"), 2)
	_, err := b.Cancel(t.Context(), tenant, root, "")
	require.NoError(t, err)
	b.exec(`UPDATE tenant_acme.outbox SET due = now() + interval '1 h' WHERE kind = 'stop'`)
	begun, err := b.ParkHalted(t.Context(), b.kind("base"), leaves[:1])
	require.NoError(t, err)
	require.Empty(t, begun)
	b.settle(b.kind("base"), leaves[1], badEnd)
	b.followUp()
	require.Equal(t, asyncflow.StatusCancelled, b.childOf("pipe", `1`).Status)
	require.Equal(t, asyncflow.StatusFailed, b.childOf("pipe", `2`).Status, "its child has failed")
	b.exec(`UPDATE tenant_acme.outbox SET due = now() - interval '1 s'`)
	b.followUp()
	require.Equal(t, &asyncflow.Children{Total: 2, Failed: 1, Cancelled: 1}, b.task(root).Children)
	require.Zero(t, b.sweep())
	b.checkTokens("pipe")
	b.checkTallies("pipe")
	b.checkTallies("base")

	_, err = b.Redrive(t.Context(), tenant, root, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	b.endAll(b.kind("base"), 2, "")
	b.endAll(pipe, 2, "")
	b.endAll(pipe, 1, "")
	require.Equal(t, asyncflow.StatusSucceeded, b.task(root).Status)
}

// A redrive of a task that waited for its children redrives these, also if its type may no longer
// start any.
func TestRedriveOfAJoinWithoutSpawn(t *testing.T) {
	b := setup(t)
	_, id := setupJoin(t, b, asyncflow.Join{})
	b.endAll(b.kind("base"), 2, `3`)
	require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	spec := spawning()
	spec.Stages[0].Spawn = nil
	pipe := b.put(spec)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	require.Equal(t, asyncflow.WaitChildren, b.task(id).WaitsFor)
	b.followUp()
	b.endAll(b.kind("base"), 1, "")
	b.endAll(pipe, 1, "")
	b.endAll(pipe, 1, "")
	l := b.leaseAll(pipe, 1)[0]
	require.Equal(t, id, l.ID)
	require.Equal(t, "second", l.Stage)
	b.checkTokens("pipe")
}

// A list may leave out children of earlier fan-outs, and tasks for which nobody waits.
func TestLatestChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	listed := func(latest bool) (contexts []string) {
		all, err := b.Tasks(t.Context(), tenant,
			store.Filter{Type: "base", Parent: id, Latest: latest, Limit: 10})
		require.NoError(t, err)
		for _, one := range all {
			contexts = append(contexts, string(b.task(one.ID).Context))
		}
		return contexts
	}
	require.Empty(t, listed(true))
	l := b.leaseAll(pipe, 1)[0]
	b.startIn(l, asyncflow.Join{}, spawned("base", `1`))
	b.followUp()
	b.endAll(b.kind("base"), 1, `1`)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{AllChildren: true})
	require.NoError(t, err)
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `2`))
	b.followUp()
	require.Equal(t, []string{`2`, `1`}, listed(false))
	require.Equal(t, []string{`2`}, listed(true))
}

// A child that was changed by itself keeps what it got, if that was later, and a task that names a
// priority after the change keeps that.
func TestTheLaterPriorityDecides(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `"a"`),
		spawned("base", `"b"`), spawned("pipe", `"runs"`))
	b.followUp()
	runs := b.leaseAll(pipe, 1)[0]
	b.change(b.childOf("base", `"a"`).ID, asyncflow.Patch{Priority: asyncflow.Priority{1}})
	b.change(root, asyncflow.Patch{Priority: asyncflow.Priority{2}})
	b.change(b.childOf("base", `"b"`).ID, asyncflow.Patch{Priority: asyncflow.Priority{3}})
	named := spawned("base", `"named"`)
	named.Priority = asyncflow.Priority{4}
	b.startIn(runs, asyncflow.Join{}, named, spawned("base", `"c"`))
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: {2}, `"b"`: {3}, `"named"`: {4},
		`"c"`: {2}}, b.priorities())
	b.change(runs.ID, asyncflow.Patch{Priority: asyncflow.Priority{5}})
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: {2}, `"b"`: {3}, `"named"`: {5},
		`"c"`: {5}}, b.priorities())
	b.change(root, asyncflow.Patch{Priority: asyncflow.Priority{6}})
	b.followUp()
	six := asyncflow.Priority{6}
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: six, `"b"`: six, `"named"`: six,
		`"c"`: six}, b.priorities())
}

// A transaction that gives a task in the middle its priority may count its children as well.
func TestPriorityAndEndsTogether(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("pipe", `"a"`),
		spawned("pipe", `"b"`))
	b.followUp()
	for _, l := range b.leaseAll(pipe, 2) {
		tasks := []asyncflow.SpawnedTask{spawned("base", `1`)}
		if string(l.Context) == `"b"` {
			tasks = append(tasks, spawned("base", `2`))
		}
		b.startIn(l, asyncflow.Join{}, tasks...)
	}
	b.followUp()
	leaves := b.leaseAll(b.kind("base"), 3)
	b.change(root, asyncflow.Patch{Priority: asyncflow.Priority{60}})
	_, err := b.FollowUpRows(t.Context(), tenant, 1)
	require.NoError(t, err)
	require.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.outbox
		WHERE kind = 'priority' AND at = -1`))
	for _, l := range leaves {
		if string(l.Context) == `1` {
			b.settle(b.kind("base"), l, goodEnd)
		}
	}
	b.followUp()
	require.Zero(t, b.sweep(), "the counts are right")
	next := b.leaseAll(pipe, 1)[0]
	require.Equal(t, []any{"second", asyncflow.Priority{60}},
		[]any{next.Stage, next.Options.Priority}, "one has joined")
	b.checkTokens("pipe")
	b.checkTokens("base")
}

// Children of paused tasks stay where they are, and go on with the new priority, also if one
// transaction would end the pause and change them.
func TestPriorityOfPausedChildren(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{})
	_, err := b.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	b.followUp()
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{60}})
	b.followUp()
	require.Equal(t, &asyncflow.Children{Total: 2, Waiting: 2}, b.task(id).Children)
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{90}})
	_, err = b.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	b.followUp()
	for _, l := range b.leaseAll(b.known(), 2) {
		require.Equal(t, asyncflow.Priority{90}, l.Options.Priority)
		b.settle(b.known(), l, goodEnd)
	}
	b.followUp()
	require.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
	b.checkTokens("pipe")
}

// A transaction changes few children with shared input, as each change writes all of it.
func TestPriorityOfChildrenWithSharedInput(t *testing.T) {
	b := setupFanOut(t)
	b.SetChunks(100, 100, 40)
	const n = 5
	id := b.submit(newTask(`{"items":[1,2,3,4,5],"shared":"x"}`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind: asyncflow.OutcomeFannedOut, FannedOut: &asyncflow.FannedOut{Count: n,
			FanOut: asyncflow.FanOut{Items: "/items", Shared: "/shared"}}})
	b.followUp()
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{60}})
	for _, changed := range []int{2, 4, 5} {
		_, err := b.FollowUpRows(t.Context(), tenant, 1)
		require.NoError(t, err)
		require.Equal(t, changed, b.count(`SELECT count(*) FROM tenant_acme.journal_1
			WHERE outcome = 'changed'`)-1)
	}
	for _, l := range b.leaseAll(b.known(), n) {
		require.Equal(t, asyncflow.Priority{60}, l.Options.Priority)
		require.Equal(t, `"x"`, string(l.Options.Child.Shared))
	}
}

// Only the priority of a task that waits for its children can be changed.
func TestChangeOfAParent(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{})
	_, err := b.Change(t.Context(), tenant, id, asyncflow.Patch{RunAt: b.Clock.Now()})
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	assert.ErrorContains(t, err, "only its priority can be changed")
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{0}})
	b.followUp()
	_, err = b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	b.followUp()
	assert.Equal(t, &asyncflow.Children{Total: 2, Cancelled: 2}, b.task(id).Children)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	assert.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
	b.checkTokens("pipe")
}
