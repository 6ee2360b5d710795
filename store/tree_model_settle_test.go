package store_test

import (
	"encoding/json"
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// report reports an outcome of a lease, and again if it was reported before.
func (m *treeMachine) report(
	t *rapid.T, w *treeTask, l asyncflow.Lease, kind asyncflow.OutcomeKind,
) {
	k, o := m.kind(w.id.Type), asyncflow.Outcome{Kind: kind}
	switch {
	case kind == asyncflow.OutcomeDone && k.FansOut(l) != nil:
		o = m.fanOut(t, l)
	case kind == asyncflow.OutcomeDone && rapid.Bool().Draw(t, "with output"):
		o.Output = json.RawMessage(fmt.Sprintf(`"%s.%d"`, w.id, l.Seq))
	case kind == asyncflow.OutcomeSnoozed:
		o.FirstSent = m.b.Clock.Now()
	}
	b, end := m.node(t)
	r := b.settle(k, l, o)
	end()
	require.NoError(t, r.Err)
	if w.status == asyncflow.StatusRunning && l.Seq == w.seq {
		require.False(t, r.Stale, "%s seq %d holds the lease", w.id, l.Seq)
		w.end(o)
		if o.FannedOut != nil {
			m.families[w.own.key()] = w.own
		}
		return
	}
	same := w.written[l.Seq] == o.Kind && w.outputs[l.Seq] == string(o.Output)
	require.Equal(t, store.Settled{Stale: !same, Written: w.written[l.Seq]}, r, "%s seq %d", w.id,
		l.Seq)
}

// fanOut is what a node reports of a task with children in its stage.
func (m *treeMachine) fanOut(t *rapid.T, l asyncflow.Lease) asyncflow.Outcome {
	rule := asyncflow.FanOut{Items: "/items",
		MaxParallel: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "most in parallel")}
	if rapid.Bool().Draw(t, "shards") {
		rule.Items, rule.Shards = "", rapid.IntRange(1, 5).Draw(t, "of them")
	}
	rule.OnChildFailure = rapid.SampledFrom([]asyncflow.ChildFailure{{},
		{Policy: asyncflow.AllSettled}, {Policy: asyncflow.Tolerate, Count: 1}}).
		Draw(t, "on child failure")
	work, err := rule.Spread(l.Context)
	require.NoError(t, err)
	if work.Count == 0 {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeJoined, Output: asyncflow.NoResults}
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: work.Count}}
}

// end lets the current attempt end.
func (w *treeTask) end(o asyncflow.Outcome) {
	w.written[w.seq], w.outputs[w.seq], w.last = o.Kind, string(o.Output), o.Kind
	w.seq++
	lastStage := w.family != nil || w.id.Type == "base" || w.stage == 1
	switch o.Kind {
	case asyncflow.OutcomeReleased, asyncflow.OutcomeSnoozed:
		w.status = asyncflow.StatusPending
	case asyncflow.OutcomeRejected:
		w.finish(asyncflow.StatusFailed)
	case asyncflow.OutcomeCancelled:
		w.finish(asyncflow.StatusCancelled)
	case asyncflow.OutcomeFannedOut:
		w.fanOut(*o.FannedOut)
	case asyncflow.OutcomeDone, asyncflow.OutcomeJoined:
		if lastStage {
			w.finish(asyncflow.StatusSucceeded)
			return
		}
		w.next(w.contexts[w.stage], string(o.Output))
	default:
		if w.attempt++; w.attempt > modelAttempts {
			w.finish(asyncflow.StatusFailed)
			return
		}
		w.status = asyncflow.StatusPending
	}
}

// next brings the task to its second stage.
func (w *treeTask) next(context, output string) {
	if output != "" {
		context = output
	}
	w.stage, w.attempt, w.status, w.reason = 1, 1, asyncflow.StatusPending, ""
	w.contexts[1] = context
}

func (w *treeTask) finish(status asyncflow.Status) {
	w.status, w.reason = status, ""
	w.ends[status] = true
	w.seq-- // no token row follows
}

func (w *treeTask) fanOut(o asyncflow.FannedOut) {
	w.own = &family{parent: w, seq: w.seq, waits: w.seq, rule: o.FanOut}
	w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitChildren
	work, _ := o.Spread(json.RawMessage(w.contexts[0]))
	items := work.Items(0, o.Count)
	for i := range o.Count {
		context := w.contexts[0]
		if o.Shards == 0 {
			context = string(items[i])
		}
		w.own.contexts = append(w.own.contexts, context)
	}
}
