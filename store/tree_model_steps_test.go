package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// pick picks a task, mostly one of some.
func (m *treeMachine) pick(t *rapid.T, some func(*treeTask) bool) *treeTask {
	if len(m.order) == 0 {
		t.Skip("no task yet")
	}
	from := m.order
	if rapid.IntRange(0, 7).Draw(t, "any") > 0 {
		from = slices.DeleteFunc(slices.Clone(m.order), func(w *treeTask) bool { return !some(w) })
		if len(from) == 0 {
			t.Skip("no such task")
		}
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(t, "task")]
}

// submit submits a task that may depend on others, by id or by key, which may come later.
func (m *treeMachine) submit(t *rapid.T) {
	task := asyncflow.NewTask{Type: rapid.SampledFrom(m.types).Draw(t, "type")}
	items := rapid.IntRange(0, 5).Draw(t, "items")
	task.Context = json.RawMessage(fmt.Sprintf(`{"n":%d,"items":[%s]}`, len(m.order),
		strings.Join([]string{`"a"`, `{"b": 1.0}`, `null`, `3`, `"é"`}[:items], ",")))
	key := rapid.SampledFrom([]string{"", "", "x", "y", "z"}).Draw(t, "key")
	own := asyncflow.Dependency{Type: task.Type, Key: key}
	if key != "" && m.keys[own] == nil {
		task.Options.Key = key
	}
	m.dependencies(t, &task)
	b, end := m.node(t)
	got := b.Submit(b.t.Context(), tenant, []asyncflow.NewTask{task})[0]
	end()
	if task.Options.Key != "" && asyncflow.CodeOf(got.Err) == asyncflow.CodeDependency {
		return // a cycle, or the task itself
	}
	require.NoError(t, got.Err)
	require.False(t, got.Existing)
	w := &treeTask{id: got.ID, contexts: []string{string(task.Context), ""}, deps: task.DependsOn,
		status: asyncflow.StatusPending}
	if len(w.deps) > 0 {
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitDependencies
	}
	if task.Options.Key != "" {
		m.keys[own] = w
	}
	m.add(w)
}

func (m *treeMachine) dependencies(t *rapid.T, task *asyncflow.NewTask) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3}).Draw(t, "dependencies") {
		on := asyncflow.Dependency{OnFailure: rapid.SampledFrom([]asyncflow.OnFailure{"",
			asyncflow.DependentFails, asyncflow.DependentCancelled, asyncflow.DependentRuns}).
			Draw(t, "on failure")}
		if len(m.order) > 0 && rapid.Bool().Draw(t, "by id") {
			on.Task = m.order[rapid.IntRange(0, len(m.order)-1).Draw(t, "on")].id
		} else {
			on.Type = rapid.SampledFrom(m.types).Draw(t, "of type")
			on.Key = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "with key")
		}
		task.DependsOn = append(task.DependsOn, on)
	}
}

// add adds a new task to the model.
func (m *treeMachine) add(w *treeTask) {
	w.attempt, w.seq = 1, 1
	w.written, w.outputs = map[int]asyncflow.OutcomeKind{}, map[int]string{}
	w.ends = map[asyncflow.Status]bool{}
	m.tasks[w.id], m.order = w, append(m.order, w)
}

// lease leases all tasks that are pending.
func (m *treeMachine) lease() {
	for _, name := range m.types {
		n := 0
		for _, w := range m.order {
			if w.id.Type == name && w.status == asyncflow.StatusPending {
				n++
			}
		}
		if n > 0 {
			m.leaseSome(name, n)
		}
	}
}

func (m *treeMachine) leaseSome(name string, n int) {
	kind := m.kind(name)
	for until := time.Now().Add(patience); n > 0; {
		require.True(m.t, time.Now().Before(until), "%d tasks are pending and not to be had", n)
		for _, l := range m.b.lease(kind, n) {
			w := m.tasks[l.ID]
			require.NotNil(m.t, w, "%s is none of ours", l.ID)
			require.Equal(m.t, asyncflow.StatusPending, w.status, l.ID)
			require.Equal(m.t, []any{w.stage, w.attempt, w.seq, w.contexts[w.stage]},
				[]any{kind.StageIndex(l.Stage), l.Attempt, l.Seq, string(l.Context)}, "%s", l.ID)
			w.status = asyncflow.StatusRunning
			w.leases = append(w.leases, l)
			n--
		}
	}
}

// work leases, and settles a task that runs.
func (m *treeMachine) work(t *rapid.T) {
	m.lease()
	w := m.pick(t, func(w *treeTask) bool { return w.status == asyncflow.StatusRunning })
	if w.status != asyncflow.StatusRunning {
		t.Skip("not running")
	}
	m.report(t, w, w.leases[len(w.leases)-1], drawOutcome(t))
}

// repeat reports an outcome for any lease ever given out.
func (m *treeMachine) repeat(t *rapid.T) {
	w := m.pick(t, func(w *treeTask) bool { return len(w.leases) > 0 })
	if len(w.leases) == 0 {
		t.Skip("never leased")
	}
	m.report(t, w, w.leases[rapid.IntRange(0, len(w.leases)-1).Draw(t, "lease")], drawOutcome(t))
}

func drawOutcome(t *rapid.T) asyncflow.OutcomeKind {
	return rapid.SampledFrom([]asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeDone,
		asyncflow.OutcomeDone, asyncflow.OutcomeFailed, asyncflow.OutcomeRejected,
		asyncflow.OutcomeSnoozed, asyncflow.OutcomeReleased}).Draw(t, "outcome")
}

// expire lets a lease run out.
func (m *treeMachine) expire(t *rapid.T) {
	w := m.pick(t, func(w *treeTask) bool { return w.status == asyncflow.StatusRunning })
	if w.status != asyncflow.StatusRunning {
		t.Skip("not running")
	}
	kind := m.kind(w.id.Type)
	m.b.exec(fill(kind, 0, `UPDATE {lease} SET until = now() - interval '1 s'
		WHERE type = {number} AND id = $1`), w.id.Number)
	n, err := m.b.Rescue(m.b.t.Context(), kind)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeLost})
}
