package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// linkedApproval is approval with links. Its last stage may lead back to the first one.
func linkedApproval() asyncflow.TaskType {
	t := approval()
	t.Stages[1].Wait.Links = &asyncflow.Links{}
	t.Stages[2].Next = []string{"first", asyncflow.NextFinish}
	return t
}

// link returns how a task stands to the links of the delivery of a lease.
func (b *bundle) link(l asyncflow.Lease) store.Link {
	b.t.Helper()
	link, err := b.Link(b.t.Context(), tenant, l.ID, l.Seq, "wait")
	require.NoError(b.t, err)
	return link
}

// decide decides by an open link, and reports whether that was the first decision.
func (b *bundle) decide(link store.Link, decision string) bool {
	b.t.Helper()
	d := asyncflow.LinkDecision{Decision: decision, By: "Anna", At: b.Clock.Now().UTC()}
	doc, err := json.Marshal(d)
	require.NoError(b.t, err)
	signal := link.Signal
	signal.Data = doc
	_, err = b.SendSignal(b.t.Context(), tenant, signal)
	if err != nil {
		require.Equal(b.t, asyncflow.CodeKeyReused, asyncflow.CodeOf(err), "%v", err)
	}
	return err == nil
}

// first leases the task in line and makes its next stage the wait.
func (b *bundle) passFirst() asyncflow.Lease {
	b.t.Helper()
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, to("wait", `{"summary":"ask"}`))
	return l
}

// takeSignal makes a task that waits take its signal, however late its note counts as due.
func (b *bundle) takeSignal(id asyncflow.TaskID) {
	b.t.Helper()
	eventually(b.t, "the task waits no more", func() bool {
		b.followUp()
		return b.task(id).WaitsFor != asyncflow.WaitSignal
	})
}

// A link decides before its task waits, or while it does; once.
func TestALinkDecides(t *testing.T) { eachSet(t, testALinkDecides) }

func testALinkDecides(t *testing.T, b *bundle) {
	b.put(linkedApproval())
	for _, early := range []bool{true, false} {
		b.submit(newTask(`{"summary":"submitted"}`))
		l := b.leaseAll(b.known(), 1)[0]
		link := b.link(l)
		require.True(t, link.Open)
		require.Nil(t, link.Decided)
		require.Zero(t, link.Until)
		require.JSONEq(t, `{"summary":"submitted"}`, string(link.Context))
		if early {
			require.True(t, b.decide(link, "approve"))
			require.False(t, b.decide(link, "reject"))
			b.followUp()
			require.Equal(t, "approve", b.link(l).Decided.Decision)
			require.False(t, b.link(l).Open)
		}
		b.settle(b.known(), l, to("wait", `{"summary":"ask"}`))
		b.await()
		if !early {
			b.followUp()
			link = b.link(l)
			require.True(t, link.Open)
			require.JSONEq(t, `{"summary":"ask"}`, string(link.Context))
			require.WithinDuration(t, b.Clock.Now().Add(time.Hour), link.Until, time.Minute)
			require.True(t, b.decide(link, "approve"))
			require.False(t, b.decide(link, "reject"))
		}
		b.takeSignal(l.ID)
		link = b.link(l)
		require.False(t, link.Open)
		require.Equal(t, []string{"approve", "Anna"}, []string{link.Decided.Decision,
			link.Decided.By})
		require.WithinDuration(t, b.Clock.Now(), link.Decided.At, time.Minute)
		next := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, "second", next.Stage)
		require.Contains(t, string(next.Context), `{"decision":"approve","by":"Anna","at":"`)
		b.settle(b.known(), next, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Finish: true})
		require.Equal(t, "approve", b.link(l).Decided.Decision, "also when the task is over")
	}
	b.checkTokens("pipe")
}

// The links of all attempts of a visit lead to one decision: whichever is used first counts.
func TestLinksOfSeveralAttempts(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	b.submit(newTask(`1`))
	first := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), first, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no"})
	second := b.passFirst()
	require.NotEqual(t, first.Seq, second.Seq)
	b.await()
	b.followUp()
	require.Equal(t, b.link(first).Signal, b.link(second).Signal)
	link := b.link(second)
	require.True(t, b.decide(b.link(first), "approve"))
	require.False(t, b.decide(link, "reject"))
	b.takeSignal(first.ID)
}

// A link of an earlier round of a loop decides about nothing of a later one, also if it was used
// in time and its task went another way.
func TestLinksOfEarlierRounds(t *testing.T) {
	b := setup(t)
	spec := linkedApproval()
	spec.Stages[0].Next = []string{"wait", "second"}
	b.put(spec)
	b.submit(newTask(`1`))
	old := b.leaseAll(b.known(), 1)[0]
	require.True(t, b.decide(b.link(old), "approve"))
	b.settle(b.known(), old, to("second", `1`))
	require.False(t, b.link(old).Open, "the task went another way")
	require.Nil(t, b.link(old).Decided)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("first", `2`))
	l := b.passFirst()
	b.await()
	b.followUp()
	require.True(t, b.link(l).Open, "the old decision doesn't count")
	require.False(t, b.link(old).Open)
	require.Nil(t, b.link(old).Decided)
	require.True(t, b.decide(b.link(l), "reject"))
	b.takeSignal(l.ID)
	require.Equal(t, "reject", b.link(l).Decided.Decision)
	require.Nil(t, b.link(old).Decided)
	require.Contains(t, string(b.leaseAll(b.known(), 1)[0].Context), "reject")
}

// Another round may follow a timeout, and its links are others.
func TestLinksAfterATimeout(t *testing.T) {
	b := setup(t)
	spec := linkedApproval()
	spec.Stages[1].Wait.OnTimeout = &asyncflow.StageFailure{Next: "first"}
	b.put(spec)
	b.submit(newTask(`1`))
	old := b.passFirst()
	b.await()
	b.followUp()
	require.True(t, b.link(old).Open)
	b.timeUp()
	b.takeSignal(old.ID)
	require.False(t, b.link(old).Open)
	l := b.passFirst()
	require.False(t, b.link(old).Open)
	require.True(t, b.link(l).Open)
	b.await()
	b.followUp()
	require.False(t, b.link(old).Open)
	require.True(t, b.decide(b.link(l), "approve"))
	b.takeSignal(l.ID)
	require.Equal(t, "approve", b.link(l).Decided.Decision)
	require.Nil(t, b.link(old).Decided)
}

// A stage that fails for good may lead to a wait: the links of its attempts count.
func TestLinksOfAStageThatFailed(t *testing.T) {
	b := setup(t)
	spec := linkedApproval()
	spec.Stages[0].OnFailure = &asyncflow.StageFailure{Next: "wait"}
	spec.Stages[0].Next = []string{"second"}
	b.put(spec)
	b.submit(newTask(`1`))
	l := b.leaseAll(b.known(), 1)[0]
	require.True(t, b.decide(b.link(l), "approve"))
	b.settle(b.known(), l, badEnd)
	b.await()
	b.takeSignal(l.ID)
	require.Equal(t, "approve", b.link(l).Decided.Decision)
}

// The links of a stage that joined count while its children are redriven.
func TestLinksWhileChildrenAreRedriven(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	spec := linkedApproval()
	spec.Stages[0].Spawn = []string{"base"}
	b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, joining(asyncflow.Join{}, spawned("base", `1`)))
	b.followUp()
	require.True(t, b.link(l).Open)
	b.endAll(b.kind("base"), 1, `1`)
	require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	require.False(t, b.link(l).Open)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	require.True(t, b.link(l).Open)
	b.change(id, asyncflow.Patch{Priority: asyncflow.Priority{9}})
	b.followUp()
	require.True(t, b.link(l).Open)
	b.endAll(b.kind("base"), 1, "")
	b.await()
	b.followUp()
	require.True(t, b.link(l).Open)
	require.True(t, b.decide(b.link(l), "approve"))
	b.takeSignal(id)
	require.Equal(t, "approve", b.link(l).Decided.Decision)
}

// A redrive of the wait leaves the links valid; one of the stage before makes others.
func TestLinksAfterARedrive(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	old := b.passFirst()
	b.await()
	cancel := func() {
		_, err := b.Cancel(t.Context(), tenant, id, "no")
		require.NoError(t, err)
		require.False(t, b.link(old).Open)
	}
	cancel()
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.await()
	b.followUp()
	require.True(t, b.link(old).Open)
	cancel()
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "first"})
	require.NoError(t, err)
	l := b.passFirst()
	b.await()
	b.followUp()
	require.False(t, b.link(old).Open)
	require.True(t, b.link(l).Open)
}

// A signal that was sent before comes first: then the link decides nothing, and isn't open.
func TestALinkBehindASignal(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	_, err := b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
		Task: id.String()})
	require.NoError(t, err)
	require.False(t, b.link(l).Open)
	require.Nil(t, b.link(l).Decided)
	b.settle(b.known(), l, to("wait", `1`))
	b.await()
	b.takeSignal(id)
	require.Nil(t, b.link(l).Decided)
	b.takeSignal(id)
	require.Equal(t, `1`, string(b.leaseAll(b.known(), 1)[0].Context), "it has no data")
}

// The stage is renamed while a decision is kept: it still counts. Without links the wait takes it
// as any signal.
func TestLinksOfAStageThatChanges(t *testing.T) {
	for name, change := range map[string]func(*asyncflow.TaskType){
		"renamed": func(t *asyncflow.TaskType) {
			t.Stages[1].Name = "review"
			t.StageMapping = map[string]string{"wait": "review"}
		},
		"without links": func(t *asyncflow.TaskType) { t.Stages[1].Wait.Links = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.put(linkedApproval())
			b.submit(newTask(`1`))
			l := b.leaseAll(b.known(), 1)[0]
			require.True(t, b.decide(b.link(l), "approve"))
			spec := linkedApproval()
			change(&spec)
			b.put(spec)
			if link := b.link(l); name == "renamed" {
				require.False(t, link.Open)
				require.Equal(t, "approve", link.Decided.Decision, "nobody decides again")
			}
			b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
			b.await()
			b.takeSignal(l.ID)
			require.Contains(t, string(b.leaseAll(b.known(), 1)[0].Context), "approve")
		})
	}
}

// A task that waits for tasks that it started is still in the visit with the links.
func TestLinksOfAStageThatJoins(t *testing.T) {
	b := setup(t)
	b.put(base())
	spec := linkedApproval()
	spec.Stages[0].Spawn = []string{"base"}
	b.put(spec)
	b.submit(newTask(`1`))
	l := b.leaseAll(b.known(), 1)[0]
	require.True(t, b.link(l).Open)
	b.settle(b.known(), l, joining(asyncflow.Join{}, spawned("base", `{}`)))
	b.followUp()
	require.True(t, b.link(l).Open, "while its children run")
	b.endAll(b.kind("base"), 1, "")
	require.True(t, b.link(l).Open)
	b.await()
	b.followUp()
	require.True(t, b.link(l).Open)
	require.True(t, b.decide(b.link(l), "approve"))
	b.takeSignal(l.ID)
	require.Equal(t, "approve", b.link(l).Decided.Decision)
	require.Contains(t, string(b.leaseAll(b.known(), 1)[0].Context), "approve")
}

// A link of what is gone, or another one now, decides nothing.
func TestLinksOfWhatIsGone(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	for _, other := range []string{"pipe.1.999", "pipe.9.1", "none.1.1"} {
		unknown, err := asyncflow.ParseTaskID(other)
		require.NoError(t, err)
		_, err = b.Link(t.Context(), tenant, unknown, 1, "wait")
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), other)
	}
	link, err := b.Link(t.Context(), tenant, id, 1, "second")
	require.NoError(t, err)
	require.False(t, link.Open)
}

// A worker gets a link, and starts tasks for which its task waits: the link decides about the wait
// after that, before the end of the tasks, and then. So it does after they were redriven.
func TestALinkOfATaskThatJoins(t *testing.T) {
	for name, early := range map[string]bool{"early": true, "late": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			b.put(base())
			spec := linkedApproval()
			spec.Stages[0].Spawn = []string{"base"}
			b.put(spec)
			id := b.submit(newTask(`1`))[0].ID
			l := b.leaseAll(b.known(), 1)[0]
			b.settle(b.known(), l, joining(asyncflow.Join{}, spawned("base", `1`)))
			b.followUp()
			require.True(t, b.link(l).Open, "its tasks run")
			if early {
				require.True(t, b.decide(b.link(l), "approve"))
			}
			b.endAll(b.kind("base"), 1, "1")
			require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
			_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.NoError(t, err)
			b.followUp()
			b.endAll(b.kind("base"), 1, "")
			b.await()
			b.followUp()
			if !early {
				require.True(t, b.link(l).Open)
				require.True(t, b.decide(b.link(l), "approve"))
			}
			b.takeSignal(id)
			require.Equal(t, "approve", b.link(l).Decided.Decision)
			require.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
		})
	}
}

// A stage that failed for good and is redriven asks anew: links of before count no more.
func TestLinksAfterARedriveOfTheirStage(t *testing.T) {
	b := setup(t)
	b.put(linkedApproval())
	id := b.submit(newTask(`1`))[0].ID
	old := b.leaseAll(b.known(), 1)[0]
	link := b.link(old)
	require.True(t, b.decide(link, "approve"))
	b.settle(b.known(), old, badEnd)
	require.False(t, b.link(old).Open)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	l := b.passFirst()
	b.await()
	b.followUp()
	require.True(t, b.link(l).Open, "the old decision doesn't count")
	require.False(t, b.link(old).Open)
	require.True(t, b.decide(b.link(l), "reject"))
	b.takeSignal(id)
	require.Equal(t, "reject", b.link(l).Decided.Decision)
}
