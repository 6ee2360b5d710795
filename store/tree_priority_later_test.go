package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Children that a redrive of their parent did not reach yet get a priority that the parent was
// given meanwhile.
func TestPriorityOfChildrenToRedrive(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `"a"`),
		spawned("base", `"b"`), spawned("pipe", `"middle"`))
	b.followUp()
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `"c"`))
	b.followUp()
	_, err := b.Cancel(t.Context(), tenant, root, "")
	require.NoError(t, err)
	b.followUp()
	_, err = b.Redrive(t.Context(), tenant, root, store.Redrive{})
	require.NoError(t, err)
	b.SetChunks(2, 2, 1)
	_, err = b.FollowUpRows(t.Context(), tenant, 1)
	require.NoError(t, err)
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 1, Cancelled: 2}, b.task(root).Children,
		"one is redriven")
	high := asyncflow.Priority{600}
	b.change(root, asyncflow.Patch{Priority: high})
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: high, `"b"`: high, `"c"`: high},
		b.priorities())
	require.Equal(t, high, b.childOf("pipe", `"middle"`).Options.Priority)
	b.endAll(b.kind("base"), 3, "")
	b.endAll(pipe, 1, "")
	b.endAll(pipe, 1, "")
	require.Equal(t, asyncflow.StatusSucceeded, b.task(root).Status)
	b.checkTokens("base")
	b.checkTokens("pipe")
	require.Zero(t, b.sweep())
}

// An operation that gives a task another priority may look for its tasks for a while. Children
// that are made meanwhile get it, too.
func TestPriorityOfManyBesideNewChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("base", `1`))
	high := asyncflow.Priority{600}
	_, due := b.start(store.PrioritizeTasks, store.NewOperation{Priority: high})
	hold, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer hold.Rollback(t.Context())
	_, err = hold.Exec(t.Context(), `LOCK TABLE tenant_acme.operations`)
	require.NoError(t, err)
	stepped := make(chan error, 1)
	go func() {
		_, err := b.StepOperation(t.Context(), due, b.Submit)
		stepped <- err
	}()
	eventually(t, "the step waits", func() bool {
		return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	b.followUp()
	require.Nil(t, b.childOf("base", `1`).Options.Priority)
	require.NoError(t, hold.Commit(t.Context()))
	require.NoError(t, receive(t, stepped))
	b.followUp()
	require.Equal(t, high, b.task(id).Options.Priority)
	require.Equal(t, high, b.childOf("base", `1`).Options.Priority)
	b.checkTokens("base")
}

// A redrive of many tasks looks at once for the ones with children.
func TestRedriveOfManyIsFewStatements(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	second, line := mortal(t, b)
	var statements []int
	for _, n := range []int{1, 1, 20} {
		for i := range n {
			b.submit(newTask(fmt.Sprint(i)))
		}
		for _, l := range b.leaseAll(b.known(), n) {
			b.settle(b.known(), l, badEnd)
		}
		_, due := b.start(store.RedriveTasks, store.NewOperation{})
		line.arm(1_000_000, true, false)
		step, err := second.StepOperation(t.Context(), due, b.Submit)
		require.NoError(t, err)
		require.Equal(t, n, step.Done)
		statements = append(statements, line.sent())
		line.mend()
		for _, l := range b.leaseAll(b.known(), n) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	more := statements[2] - statements[1]
	require.Less(t, more, 25, "19 more journal rows are written, and little else")
}

// A child that ran when a task above it got another priority keeps its own. If it is redriven by
// itself, by a call or with many others, it comes in line with the one from above, unless it was
// changed by itself after that.
func TestPriorityOfAChildRedrivenByItself(t *testing.T) {
	eachSet(t, testPriorityOfAChildRedrivenByItself)
}

func testPriorityOfAChildRedrivenByItself(t *testing.T, b *bundle) {
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	named := spawned("base", `"named before"`)
	named.Priority = asyncflow.Priority{7}
	join := asyncflow.Join{OnChildFailure: allSettled}
	b.startIn(b.leaseAll(pipe, 1)[0], join, spawned("base", `"runs"`), named,
		spawned("base", `"changed"`), spawned("pipe", `"one of many"`), spawned("pipe", `"middle"`),
		spawned("pipe", `"lives"`))
	b.followUp()
	for _, l := range b.leaseAll(pipe, 3) {
		if string(l.Context) == `"middle"` {
			b.startIn(l, join, spawned("base", `"below"`))
		} else if string(l.Context) == `"one of many"` {
			b.settle(pipe, l, badEnd)
		}
	}
	b.followUp()
	begun := b.leaseAll(b.kind("base"), 4)
	middle := b.childOf("pipe", `"middle"`).ID
	_, err := b.Cancel(t.Context(), tenant, middle, "")
	require.NoError(t, err)
	b.followUp()
	high := asyncflow.Priority{600}
	b.change(root, asyncflow.Patch{Priority: high})
	b.followUp()
	for _, l := range begun {
		if string(l.Context) != `"below"` { // it was cancelled
			b.settle(b.kind("base"), l, badEnd)
		}
	}
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"runs"`: nil, `"named before"`: {7},
		`"changed"`: nil, `"below"`: nil}, b.priorities())

	for _, context := range []string{`"runs"`, `"named before"`, `"changed"`} {
		id := b.childOf("base", context).ID
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
		require.NoError(t, err)
		task := b.task(id)
		require.Equal(t, high, task.Options.Priority, context)
		require.Equal(t, asyncflow.StatusPending, task.Status)
		require.WithinDuration(t, b.Clock.Now().Add(-600*time.Second), task.OrderTime, patience)
	}
	_, err = b.Redrive(t.Context(), tenant, middle, store.Redrive{})
	require.NoError(t, err)
	_, due := b.start(store.RedriveTasks, store.NewOperation{})
	b.step(due)
	require.Equal(t, high, b.childOf("pipe", `"one of many"`).Options.Priority)
	b.followUp()
	require.Equal(t, high, b.task(middle).Options.Priority)
	require.Equal(t, high, b.priorities()[`"below"`])
	b.checkTokens("base")
	b.checkTokens("pipe")
	require.Zero(t, b.sweep())

	changed := b.childOf("base", `"changed"`).ID
	b.change(changed, asyncflow.Patch{Priority: asyncflow.Priority{900}})
	for _, l := range b.leaseAll(b.kind("base"), 4) {
		b.settle(b.kind("base"), l, badEnd)
	}
	_, err = b.Redrive(t.Context(), tenant, changed, store.Redrive{})
	require.NoError(t, err)
	require.Equal(t, asyncflow.Priority{900}, b.task(changed).Options.Priority, "it was later")
	b.checkTokens("base")
	b.checkTallies("base")
}

// An item of a fan-out takes its parent's priority as well. Without a change above, the redrive of
// a child is only that.
func TestPriorityOfAnItemRedrivenByItself(t *testing.T) {
	b := setupFanOut(t)
	b.fanOut(asyncflow.FanOut{OnChildFailure: allSettled})
	redriven := func(rows int) store.Task {
		t.Helper()
		l := b.leaseAll(b.known(), 1)[0]
		parent := asyncflow.TaskID{Type: "pipe", Number: l.Options.Child.Parent}
		b.settle(b.known(), l, badEnd)
		b.followUp()
		if rows == 3 {
			b.change(parent, asyncflow.Patch{Priority: asyncflow.Priority{60}})
			b.followUp()
		}
		_, err := b.Redrive(t.Context(), tenant, l.ID, store.Redrive{})
		require.NoError(t, err)
		all, err := b.Attempts(t.Context(), tenant, l.ID)
		require.NoError(t, err)
		require.Len(t, all, rows)
		return b.task(l.ID)
	}
	first := redriven(2)
	require.Nil(t, first.Options.Priority)
	require.Equal(t, asyncflow.Priority{60}, redriven(3).Options.Priority)
	b.checkTokens("pipe")
}

// A task that got its priority from its worker soon after a change above hands that down to its own
// tasks, on all levels, and takes part in later changes above.
func TestAPriorityNamedAfterAChangeGoesDown(t *testing.T) {
	eachSet(t, testAPriorityNamedAfterAChangeGoesDown)
}

func testAPriorityNamedAfterAChangeGoesDown(t *testing.T, b *bundle) {
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("pipe", `"runs"`))
	b.followUp()
	runs := b.leaseAll(pipe, 1)[0]
	b.change(root, asyncflow.Patch{Priority: asyncflow.Priority{600}})
	b.followUp()
	named := spawned("pipe", `"named"`)
	named.Priority = asyncflow.Priority{5}
	b.startIn(runs, asyncflow.Join{}, named, spawned("pipe", `"unnamed"`))
	b.followUp()
	five, high := asyncflow.Priority{5}, asyncflow.Priority{600}
	for _, l := range b.leaseAll(pipe, 2) {
		if string(l.Context) == `"named"` {
			require.Equal(t, five, l.Options.Priority)
			b.startIn(l, asyncflow.Join{}, spawned("pipe", `"deep"`), spawned("base", `"a"`))
			continue
		}
		require.Equal(t, high, l.Options.Priority)
		b.startIn(l, asyncflow.Join{}, spawned("base", `"b"`))
	}
	b.followUp()
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{MaxParallel: 1}, spawned("base", `"c"`),
		spawned("base", `"d"`))
	b.followUp()
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: five, `"b"`: high, `"c"`: five},
		b.priorities())

	last := asyncflow.Priority{700}
	b.change(root, asyncflow.Patch{Priority: last})
	b.followUp()
	b.endAll(b.kind("base"), 3, "")
	require.Equal(t, map[string]asyncflow.Priority{`"a"`: last, `"b"`: last, `"c"`: last,
		`"d"`: last}, b.priorities())
}
