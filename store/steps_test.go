package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// looping is a type in which the second stage may send tasks back to the first.
func looping() asyncflow.TaskType {
	t := twoStages()
	t.Stages[0].Next = []string{"second", asyncflow.NextFinish}
	t.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	t.MaxSteps = 5
	return t.WithDefaults()
}

// to is the outcome of a worker that names the next stage; "" is the end.
func to(stage, output string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Next: stage, Finish: stage == "",
		Output: json.RawMessage(output), Status: 200}
}

func visit(stage string, n, attempts int) store.Visit {
	return store.Visit{Stage: stage, Visit: n, Attempts: attempts}
}

// goTo settles a lease, as dispatcher and API do.
func (b *bundle) goTo(l asyncflow.Lease, o asyncflow.Outcome) {
	b.t.Helper()
	pipe := b.known()
	require.NoError(b.t, pipe.CheckStep(l, o))
	if pipe.NeedsPath(l, o) {
		var err error
		o.Path, err = b.Passed(b.t.Context(), pipe, l)
		require.NoError(b.t, err)
	}
	require.False(b.t, b.settle(pipe, l, o).Stale)
}

// A loop ends at max_steps. A redrive repeats the last visit with what it got, and counts anew.
func TestALoopEnds(t *testing.T) { eachSet(t, testALoopEnds) }

func testALoopEnds(t *testing.T, b *bundle) {
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	for i, next := range []string{"second", "first", "second", "first"} {
		l := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, string(rune('0'+i)), string(l.Context))
		if i == 2 { // a failed attempt is no step
			b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "busy"})
			l = b.leaseAll(b.known(), 1)[0]
			require.Equal(t, 2, l.Attempt)
		}
		b.goTo(l, to(next, string(rune('1'+i))))
	}
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []any{"first", 1}, []any{l.Stage, l.Attempt}, "attempts count by visit")
	require.Equal(t, []store.Visit{visit("first", 1, 1), visit("second", 1, 1),
		visit("first", 2, 2), visit("second", 2, 1), visit("first", 3, 1)}, b.task(id).Path)
	over := to("second", `5`)
	b.goTo(l, over)
	task := b.task(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	require.Equal(t, "it took 5 steps; max_steps is 5: first → second → first → second → first",
		task.Error)
	require.Equal(t, 5, task.Steps)
	_, same, err := b.WrittenAs(t.Context(), b.known(), id, l.Seq, over)
	require.NoError(t, err)
	require.True(t, same, "the same report again is no error")
	require.Equal(t, tallied{Submitted: 1, Attempts: 6, Failures: 1, Failed: 1},
		first(b.tallies(tenant, "pipe")))

	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	l = b.leaseAll(b.known(), 1)[0]
	require.Equal(t, `4`, string(l.Context), "the output of the last step isn't its own input")
	b.goTo(l, over)
	require.Equal(t, store.Visit{Stage: "second", Visit: 3}, b.task(id).Path[6])
	b.goTo(b.leaseAll(b.known(), 1)[0], to("", `6`))
	task = b.task(id)
	require.Equal(t, []any{asyncflow.StatusSucceeded, `6`, 7},
		[]any{task.Status, string(task.Result), task.Steps})
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	var went []string
	for _, a := range attempts {
		went = append(went, a.NextStage)
	}
	require.Equal(t, "second first  second first   second ", strings.Join(went, " "))
	b.checkTokens("pipe")
}

// The path of a new task is its stage.
func TestPathOfANewTask(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	require.Equal(t, []store.Visit{{Stage: "first", Visit: 1}}, b.task(id).Path)
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `1`))
	require.Equal(t, []store.Visit{visit("first", 1, 1), visit("second", 1, 0)}, b.task(id).Path)
	b.put(twoStages())
	require.Empty(t, b.task(id).Path)
}

// A repeated report is the same only with the same choice, wherever the task is by now.
func TestTheSameChoice(t *testing.T) { eachSet(t, testTheSameChoice) }

func testTheSameChoice(t *testing.T, b *bundle) {
	spec := looping()
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"})
	spec.Stages[0].Next = []string{"second", "third", asyncflow.NextFinish}
	b.put(spec.WithDefaults())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	check := func(where string) {
		t.Helper()
		for _, c := range []struct {
			next, output string
			same         bool
		}{{"third", `1`, true}, {"third", `2`, false}, {"second", `1`, false}, {"", `1`, false},
			{"a\x00b", `1`, false}} {
			o := to(c.next, c.output)
			kind, same, err := b.WrittenAs(t.Context(), b.known(), id, l.Seq, o)
			require.NoError(t, err)
			require.Equal(t, asyncflow.OutcomeDone, kind)
			require.Equal(t, c.same, same, "%s: %q", where, c.next)
		}
	}
	b.goTo(l, to("third", `1`))
	check("ready")
	again := b.settleAgain(b.known(), b.ending(b.known(), l, to("third", `1`)))
	require.False(t, again.Stale)
	again = b.settleAgain(b.known(), b.ending(b.known(), l, to("second", `1`)))
	require.True(t, again.Stale)
	third := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, "third", third.Stage)
	check("lease")
	b.settle(b.known(), third, asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed,
		FirstSent: b.Clock.Now(), RetryAfter: time.Hour})
	check("wait")
	b.goTo(b.due(id), goodEnd)
	check("final")
}

// A late report counts with its choice, and the same one again is no error.
func TestLateChoice(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `1`))
	l := b.leaseAll(b.known(), 1)[0]
	b.loseAll(b.known(), 1)
	_, _, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, to("second", `2`))
	require.Equal(t, asyncflow.CodeNextStage, asyncflow.CodeOf(err))
	require.Equal(t, "second", b.task(id).Stage)
	for range 2 {
		_, taken, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, to("first", `2`))
		require.NoError(t, err)
		require.True(t, taken)
		task := b.task(id)
		require.Equal(t, []any{"first", 1}, []any{task.Stage, task.Attempt})
	}
	_, _, err = b.SettleLate(t.Context(), b.known(), id, l.Seq, to("", `2`))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	b.checkTokens("pipe")
}

// A late report ends a loop, too.
func TestLateLastStep(t *testing.T) {
	b := setup(t)
	spec := looping()
	spec.MaxSteps = 2
	b.put(spec)
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `1`))
	l := b.leaseAll(b.known(), 1)[0]
	b.loseAll(b.known(), 1)
	for range 2 {
		_, taken, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, to("first", `2`))
		require.NoError(t, err)
		require.True(t, taken)
	}
	require.Equal(t, "it took 2 steps; max_steps is 2: first → second", b.task(id).Error)
}

// A report of an earlier visit of a stage doesn't settle a later one.
func TestAReportBelongsToAVisit(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.goTo(l, to("second", `1`))
	b.goTo(b.leaseAll(b.known(), 1)[0], to("first", `2`))
	now := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []any{l.Stage, l.Attempt}, []any{now.Stage, now.Attempt})
	other := b.settleAgain(b.known(), b.ending(b.known(), l, to("", `3`)))
	require.True(t, other.Stale)
	_, taken, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, to("", `3`))
	require.NoError(t, err)
	require.False(t, taken)
	require.Equal(t, asyncflow.StatusRunning, b.task(id).Status)
}

// max_snooze counts from the first delivery of each visit.
func TestSnoozeCountsByVisit(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	b.snooze(b.leaseAll(b.known(), 1)[0], time.Hour)
	b.goTo(b.due(id), to("second", `1`))
	b.exec(b.at(1, `UPDATE {journal} SET at = at - interval '100 h'`))
	b.goTo(b.leaseAll(b.known(), 1)[0], to("first", `2`))
	l := b.leaseAll(b.known(), 1)[0]
	at, err := b.FirstSent(t.Context(), b.known(), l)
	require.NoError(t, err)
	require.Equal(t, l.LeasedAt, at)
}

// A stage with children may be visited again: it makes new ones, and a redrive repeats the children
// of the last visit.
func TestAFanOutIsVisitedAgain(t *testing.T) {
	b := setupFanOut(t)
	spec := twoStages()
	spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled}
	spec.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	b.put(spec)
	id := b.fanOut(*spec.Stages[0].FanOut)
	b.endChildren(goodEnd, badEnd)
	b.followUp()
	require.Equal(t, "second", b.comesTo(id, asyncflow.StatusPending).Stage)
	b.goTo(b.leaseAll(b.known(), 1)[0], to("first", `{"items":[3,4]}`))
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []any{id, "first"}, []any{l.ID, l.Stage})
	b.settle(b.known(), l, badEnd) // before it fanned out
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	task := b.task(id)
	require.Equal(t, asyncflow.StatusPending, task.Status,
		"it has children of an earlier visit only")
	l = b.leaseAll(b.known(), 1)[0]
	require.JSONEq(t, `{"items":[3,4]}`, string(l.Context))
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
	b.followUp()
	b.endChildren(goodEnd, badEnd)
	b.followUp()
	b.comesTo(id, asyncflow.StatusFailed)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	require.Equal(t, asyncflow.WaitChildren, b.task(id).WaitsFor)
	again := b.leaseAll(b.known(), 1)
	require.Equal(t, `4`, string(again[0].Context), "only the child that failed is redriven")
	b.settle(b.known(), again[0], goodEnd)
	b.followUp()
	require.Equal(t, "second", b.comesTo(id, asyncflow.StatusPending).Stage)
	b.checkTokens("pipe")
}

// Joins count as steps.
func TestAFanOutEndsItsLoop(t *testing.T) {
	b := setupFanOut(t)
	spec := twoStages()
	spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items"}
	spec.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	spec.MaxSteps = 3
	b.put(spec)
	id := b.fanOut(*spec.Stages[0].FanOut)
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	b.goTo(b.leaseAll(b.known(), 1)[0], to("first", `{"items":[3,4]}`))
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind:      asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
	b.followUp()
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	require.Equal(t, "it took 3 steps; max_steps is 3: first → second → first",
		b.comesTo(id, asyncflow.StatusFailed).Error)
}

// A stage to which tasks may be sent isn't removed without a mapping. With one, workers may still
// name it.
func TestRemovingAStageThatIsNext(t *testing.T) {
	b := setup(t)
	spec := looping()
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"})
	spec.Stages[0].Next = []string{"third", asyncflow.NextFinish}
	spec = spec.WithDefaults()
	b.put(spec)
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	without := looping()
	_, _, err := b.CheckTaskType(t.Context(), tenant, without)
	require.ErrorContains(t, err, `live tasks stand in stage "first", from which next leads to a `+
		`stage that would be removed`)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	without.StageMapping = map[string]string{"third": "second"}
	b.put(without)
	b.goTo(l, to("third", `1`))
	require.Equal(t, "second", b.task(id).Stage)
	_, same, err := b.WrittenAs(t.Context(), b.known(), id, l.Seq, to("third", `1`))
	require.NoError(t, err)
	require.True(t, same)
}

// A task that fails for good in a stage with on_failure goes on there, with the context that it
// had; the visit counts as a step.
func TestOnFailure(t *testing.T) { eachSet(t, testOnFailure) }

func testOnFailure(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Retry = asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Interval{}}
	spec.Stages[0].Next = []string{"second"}
	spec.Stages[1].Next = []string{asyncflow.NextFinish}
	spec.Stages[1].OnFailure = &asyncflow.StageFailure{Next: "undo"}
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "undo",
		OnFailure: &asyncflow.StageFailure{Next: "second"}})
	spec.MaxSteps = 4
	b.put(spec.WithDefaults())
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `"charged"`))
	refused := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "out of stock"}
	for _, stage := range []string{"second", "undo"} {
		l := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, []any{stage, 1, `"charged"`}, []any{l.Stage, l.Attempt, string(l.Context)})
		b.goTo(l, refused)
		require.Equal(t, "out of stock", b.task(id).Error)
	}
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, "second", l.Stage)
	path, err := b.Passed(t.Context(), b.known(), l)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second", "undo"}, path)
	b.goTo(l, refused)
	task := b.task(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	require.Equal(t, "it took 4 steps; max_steps is 4: first → second → undo → second. "+
		"It failed: out of stock", task.Error)
	require.Equal(t, []store.Visit{visit("first", 1, 1), visit("second", 1, 1), visit("undo", 1, 1),
		visit("second", 2, 1)}, task.Path)
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	var went []string
	for _, a := range attempts {
		went = append(went, a.NextStage)
	}
	require.Equal(t, []string{"second", "undo", "second", ""}, went)
	b.checkTokens("pipe")
}
