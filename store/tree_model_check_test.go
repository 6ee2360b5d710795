package store_test

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// check compares the database with the models after a step. What follows from the ends of other
// tasks may be in it, if there is a reason for it: then it is noted in the model.
func (m *treeMachine) check(t *rapid.T) {
	require.Empty(t, m.b.wrongEnds())
	m.seen = m.look()
	require.Empty(t, m.seen.later, "rows that couldn't be handled")
	tooMany := map[*family]bool{}
	for _, w := range m.order {
		if w.family != nil {
			tooMany[w.family] = w.family.tooMany()
		}
	}
	for _, s := range m.seen.tasks { // what is the reason for others' steps may stand after them
		if w := m.tasks[s.id]; w != nil && s.tokens == 0 {
			w.ends[s.final] = true
		}
	}
	for _, s := range m.seen.tasks {
		if s.tokens == 0 {
			s.status, s.seq = s.final, s.lastSeq
		} else {
			require.Empty(t, s.final, "%s is final and has a token row", s.id)
		}
		require.True(t, s.tokens == 1 || s.tokens == 0 && s.final != "", "%s has %d token rows",
			s.id, s.tokens)
		require.Equal(t, s.lastSeq, s.rows, "%s: its journal has a gap", s.id)
		w := m.tasks[s.id]
		if w == nil {
			w = m.born(s)
		}
		if s.status != w.status || s.reason != w.reason || s.seq != w.seq {
			m.moved(w, s, tooMany)
		}
	}
	require.Len(t, m.seen.tasks, len(m.order))
	for _, s := range m.seen.tasks {
		m.same(m.tasks[s.id], s)
	}
	m.checkFamilies()
	m.checkEdges()
}

// same compares a task with its model.
func (m *treeMachine) same(w *treeTask, s taskSeen) {
	if s.tokens == 0 {
		require.Equal(m.t, []any{w.status, w.seq, w.last}, []any{s.final, s.lastSeq, s.last}, "%s",
			w.id)
		return
	}
	require.Equal(m.t, []any{w.status, w.reason, w.seq, w.stage, w.attempt, w.last},
		[]any{s.status, s.reason, s.seq, m.kind(w.id.Type).StageIndex(s.stage), s.attempt, s.last},
		"%s",
		w.id)
}

// born notes a new child: the next one of its parent.
func (m *treeMachine) born(s taskSeen) *treeTask {
	require.NotNil(m.t, s.child, "%s is none of ours", s.id)
	parent := m.tasks[asyncflow.TaskID{Type: s.id.Type, Number: s.child.Parent}]
	require.NotNil(m.t, parent)
	f := m.families[familyKey{parent.id, s.child.Seq}]
	require.NotNil(m.t, f, "%s is a child of nothing", s.id)
	require.Equal(m.t, []any{len(f.children), len(f.contexts)}, []any{s.child.Index, s.child.Count})
	require.Equal(m.t, f.contexts[s.child.Index], s.context)
	w := &treeTask{id: s.id, family: f, contexts: []string{s.context},
		status: asyncflow.StatusPending}
	f.children = append(f.children, w)
	m.add(w)
	return w
}

// moved notes what happened to a task because of others, if there is a reason for it.
func (m *treeMachine) moved(w *treeTask, s taskSeen, tooMany map[*family]bool) {
	f, o := w.family, asyncflow.Outcome{Kind: s.last}
	switch {
	case w.reason == asyncflow.WaitDependencies && s.status == asyncflow.StatusPending:
		m.requireReason(w, func(on asyncflow.Dependency, ends map[asyncflow.Status]bool) bool {
			return ends[asyncflow.StatusSucceeded] ||
				on.Failure() == asyncflow.DependentRuns && len(ends) > 0
		}, true)
		w.status, w.reason = asyncflow.StatusPending, ""
	case w.reason == asyncflow.WaitDependencies && s.last == asyncflow.OutcomeDependencies:
		policy := asyncflow.DependentFails
		if s.final == asyncflow.StatusCancelled {
			policy = asyncflow.DependentCancelled
		}
		m.requireReason(w, func(on asyncflow.Dependency, ends map[asyncflow.Status]bool) bool {
			return on.Failure() == policy &&
				(ends[asyncflow.StatusFailed] || ends[asyncflow.StatusCancelled])
		}, false)
		w.written[w.seq], w.last = s.last, s.last
		w.seq++
		w.finish(s.final)
	case w.own != nil && w.own.waitedFor() && s.last == asyncflow.OutcomeJoined:
		m.joined(w, s)
	case f != nil && w.status.Final() && s.last == asyncflow.OutcomeRedriven:
		m.redrivenWithParent(w)
	case f != nil && s.final == asyncflow.StatusCancelled:
		if w.status.Final() { // it was redriven before in the same step
			m.redrivenWithParent(w)
		}
		require.True(m.t, tooMany[f] || !f.waitedFor(), "%s was cancelled for no reason", w.id)
		w.reason = ""
		w.end(o)
	default:
		m.t.Fatalf("%s went from %s %s to %s %s (%s) for no reason", w.id, w.status, w.reason,
			s.status, s.reason, s.last)
	}
}

// redrivenWithParent notes that a child was redriven as its parent was.
func (m *treeMachine) redrivenWithParent(w *treeTask) {
	require.True(m.t, w.family.again && w.status != asyncflow.StatusSucceeded,
		"%s was redriven for no reason", w.id)
	w.redrive(0, asyncflow.StatusPending, "")
}

// requireReason asserts that all, or some, of a task's dependencies ended in a way.
func (m *treeMachine) requireReason(
	w *treeTask, way func(asyncflow.Dependency, map[asyncflow.Status]bool) bool, all bool,
) {
	n := 0
	for _, on := range w.deps {
		if other := m.other(on); other != nil && way(on, other.ends) {
			n++
		}
	}
	require.True(m.t, n == len(w.deps) || n > 0 && !all, "%s no longer waits for no reason: %v",
		w.id, w.deps)
}

// other returns the task that another depends on; nil: there is none yet.
func (m *treeMachine) other(on asyncflow.Dependency) *treeTask {
	if on.Key == "" {
		return m.tasks[on.Task]
	}
	return m.keys[asyncflow.Dependency{Type: on.Type, Key: on.Key}]
}

// joined notes that a parent goes on, or fails, at the end of all its children.
func (m *treeMachine) joined(w *treeTask, s taskSeen) {
	f, n := w.own, w.own.count()
	require.Zero(m.t, n[""], "%s goes on, and has live children", w.id)
	w.written[w.seq], w.last = s.last, s.last
	w.seq++
	f.again = false
	if s.final == asyncflow.StatusFailed {
		require.True(m.t, f.tooMany(), "%s failed for no reason", w.id)
		w.finish(asyncflow.StatusFailed)
		return
	}
	require.False(m.t, f.tooMany(), "%s goes on, though children have failed", w.id)
	require.Len(m.t, f.children, len(f.contexts), "%s goes on, and has children to make", w.id)
	w.outputs[w.seq-1] = f.results()
	w.next("", f.results())
}

// checkFamilies compares what is counted of ended children, and still to be, with the children.
func (m *treeMachine) checkFamilies() {
	require.Len(m.t, m.seen.families, len(m.families))
	for key, f := range m.families {
		s, n := m.seen.families[key], f.count()
		require.NotNil(m.t, s)
		require.Equal(m.t, []int{len(f.children), n[asyncflow.StatusSucceeded],
			n[asyncflow.StatusFailed], n[asyncflow.StatusCancelled]}, []int{s.spawned,
			s.succeeded + s.toCome[0], s.failed + s.toCome[1], s.cancelled + s.toCome[2]}, "%v",
			key)
		require.False(m.t, s.closed && f.waitedFor(), "%v is closed, and waited for", key)
		if most := f.rule.MaxParallel; most > 0 {
			require.LessOrEqual(m.t, n[""], most+f.extra, "children of %v in parallel", key)
		}
	}
}

// checkEdges asserts that edges are closed as the other tasks ended.
func (m *treeMachine) checkEdges() {
	for _, e := range m.seen.edges {
		if e.status != "" {
			require.True(m.t, m.tasks[e.on].ends[asyncflow.Status(e.status)],
				"%s has never %s, but an edge of %s says so", e.on, e.status, e.of)
		}
	}
}

// quiet follows up until nothing is left to do. Then nothing waits for what happened.
func (m *treeMachine) quiet(t *rapid.T) {
	until := time.Now().Add(patience)
	for more := true; more; {
		require.True(t, time.Now().Before(until), "follow-ups don't end")
		var err error
		more, err = m.b.FollowUpRows(m.b.t.Context(), tenant, 200)
		require.NoError(t, err)
		m.check(t)
		more = more || m.seen.outbox > 0
	}
	for _, e := range m.seen.edges {
		if w := m.tasks[e.of]; w.reason == asyncflow.WaitDependencies {
			other := m.other(w.deps[e.n])
			require.True(t, e.status != "" || other == nil || !other.status.Final(),
				"%s waits for %s, which has %s", w.id, e.on, "ended")
			require.True(t, !e.failed() || w.deps[e.n].Failure() == asyncflow.DependentRuns,
				"%s waits on, though %s has failed", w.id, e.on)
		}
	}
	for _, w := range m.order {
		if w.reason == asyncflow.WaitDependencies {
			require.True(t, m.hasOpenEdge(w), "%s waits for nothing", w.id)
		}
	}
	for key, f := range m.families {
		m.checkQuiet(key, f)
	}
}

func (m *treeMachine) hasOpenEdge(w *treeTask) bool {
	for _, e := range m.seen.edges {
		if e.of == w.id && e.status == "" {
			return true
		}
	}
	return false
}

// checkQuiet asserts that nothing is left to do for a family but by its children.
func (m *treeMachine) checkQuiet(key familyKey, f *family) {
	n, s := f.count(), m.seen.families[key]
	if !f.waitedFor() {
		require.Zero(m.t, n[""], "%v has live children, for whom nobody waits", key)
		require.True(m.t, s.closed, "%v isn't closed", key)
		return
	}
	require.False(m.t, f.tooMany(), "%v waits on, though children have failed", key)
	require.NotZero(m.t, n[""], "%v hangs", key)
	full := f.rule.MaxParallel > 0 && n[""] >= f.rule.MaxParallel
	require.True(m.t, full || len(f.children) == len(f.contexts), "%v has children to make", key)
}
