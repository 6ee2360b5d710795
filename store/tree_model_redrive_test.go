package store_test

import (
	"cmp"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// dying does something on a node that may die meanwhile, at any statement, and reports whether it
// did.
func (m *treeMachine) dying(t *rapid.T, do func(*bundle) error) (died bool, err error) {
	m.line.arm(rapid.IntRange(1, 30).Draw(t, "dies at statement"),
		rapid.Bool().Draw(t, "answer lost"), true)
	err = do(m.mortal)
	return m.line.mend(), err
}

// onNode does something, perhaps on a node that dies meanwhile.
func (m *treeMachine) onNode(t *rapid.T, do func(*bundle) error) (died bool, err error) {
	if rapid.IntRange(0, 7).Draw(t, "mortal") == 0 {
		return m.dying(t, do)
	}
	return false, do(m.b)
}

// status reads the status of a task.
func (m *treeMachine) status(w *treeTask) asyncflow.Status {
	task, err := m.b.Task(m.b.t.Context(), tenant, w.id)
	require.NoError(m.t, err)
	return task.Status
}

func (m *treeMachine) cancel(t *rapid.T) {
	w := m.pick(t, func(w *treeTask) bool { return w.status == asyncflow.StatusWaiting })
	died, err := m.onNode(t, func(b *bundle) error {
		_, err := b.Cancel(b.t.Context(), tenant, w.id, "no more")
		return err
	})
	switch {
	case died && m.status(w) == w.status: // it died too early, or there was nothing to do
	case w.status == asyncflow.StatusSucceeded || w.status == asyncflow.StatusFailed:
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	default:
		if !died {
			require.NoError(t, err)
		}
		if !w.status.Final() {
			w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled})
		}
	}
}

// redrive redrives a task: a plain one, a child, a parent with those of its children that didn't
// succeed or with new ones; with its dependents or without.
func (m *treeMachine) redrive(t *rapid.T) {
	w := m.pick(t, func(w *treeTask) bool { return w.redrivable() })
	how := store.Redrive{AllChildren: rapid.IntRange(0, 3).Draw(t, "all children") == 0,
		Dependents: rapid.Bool().Draw(t, "dependents")}
	stage := w.stage
	if stage > 0 && rapid.Bool().Draw(t, "from the first stage") {
		how.Stage, stage = "first", 0
	}
	var task store.Task
	died, err := m.onNode(t, func(b *bundle) (err error) {
		task, err = b.Redrive(b.t.Context(), tenant, w.id, how)
		return err
	})
	again := stage == 0 && w.own != nil && !how.AllChildren
	refused := !w.redrivable() ||
		w.family != nil && m.seen.families[w.family.key()].over() ||
		again && !m.seen.families[w.own.key()].closed
	if died && m.status(w) == w.status {
		return
	}
	if refused {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		return
	}
	var dependents []*treeTask
	if how.Dependents {
		dependents = m.failedBecauseOf(w)
	}
	if !died {
		require.NoError(t, err)
		var ids []asyncflow.TaskID
		for _, d := range dependents {
			ids = append(ids, d.id)
		}
		require.Equal(t, ids, task.Redriven)
	}
	m.redriven(w, stage, how.AllChildren)
	for _, d := range dependents {
		d.redrive(d.stage, asyncflow.StatusWaiting, asyncflow.WaitDependencies)
	}
}

// redriveAtOnce redrives tasks by calls and operations at once, over two nodes: each task once, if
// at all. They are mostly children with parents that wait, and several calls are about the same
// one.
func (m *treeMachine) redriveAtOnce(t *rapid.T) {
	w := m.failedChild(t)
	nodes := []*bundle{m.b, m.far}
	var all []func() error
	calls := map[asyncflow.TaskID]int{}
	var mu sync.Mutex
	for i := range rapid.IntRange(2, 5).Draw(t, "at once") {
		b := nodes[i%2]
		if rapid.Bool().Draw(t, "operation") {
			status := rapid.SampledFrom([]asyncflow.Status{asyncflow.StatusFailed,
				asyncflow.StatusCancelled}).Draw(t, "of those")
			o, err := m.b.StartOperation(t.Context(), tenant,
				store.NewOperation{Kind: store.RedriveTasks,
					Filter: store.Filter{Type: "pipe", Status: status}})
			require.NoError(t, err)
			due := store.DueOperation{Tenant: tenant, Type: "pipe", ID: o.ID}
			all = append(all, func() error { return b.takeSteps(due) })
			continue
		}
		if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
			w = m.pick(t, func(w *treeTask) bool { return w.redrivable() })
		}
		w := w
		all = append(all, func() error {
			_, err := b.Redrive(b.t.Context(), tenant, w.id, store.Redrive{})
			if asyncflow.CodeOf(err) == asyncflow.CodeConflict {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			calls[w.id]++
			return nil
		})
	}
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, do := range all {
		running.Go(func() { errs[i] = do() })
	}
	running.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for _, s := range m.look().tasks {
		w := m.tasks[s.id]
		if w != nil && w.redrivable() && s.last == asyncflow.OutcomeRedriven &&
			s.lastSeq == w.seq+1 {
			m.redriven(w, w.stage, false)
			require.LessOrEqual(t, calls[s.id], 1, "%s was redriven twice", s.id)
			delete(calls, s.id)
		}
	}
	require.Empty(t, calls, "they were not redriven")
}

// failedChild returns a child that failed, or fails now, while its parent waits for it.
func (m *treeMachine) failedChild(t *rapid.T) *treeTask {
	m.lease()
	w := m.pick(t, func(w *treeTask) bool {
		return w.family != nil && w.family.waitedFor() && !m.seen.families[w.family.key()].over() &&
			(w.redrivable() || w.status == asyncflow.StatusRunning &&
				w.family.rule.OnChildFailure.Policy != "")
	})
	if w.status == asyncflow.StatusRunning {
		m.report(t, w, w.leases[len(w.leases)-1], asyncflow.OutcomeRejected)
	}
	return w
}

// takeSteps takes all steps of an operation.
func (b *bundle) takeSteps(due store.DueOperation) error {
	for {
		step, err := b.StepOperation(b.t.Context(), due, b.Submit)
		if err != nil || !step.Next.IsZero() {
			return err
		}
		o, err := b.Operation(b.t.Context(), tenant, due.ID)
		if err != nil || o.State != store.OperationRunning {
			return err
		}
	}
}

func (w *treeTask) redrivable() bool {
	return w.status == asyncflow.StatusFailed || w.status == asyncflow.StatusCancelled
}

// redriven notes that a task was redriven from a stage.
func (m *treeMachine) redriven(w *treeTask, stage int, allChildren bool) {
	w.redrive(stage, asyncflow.StatusPending, "")
	if w.family != nil {
		w.family.extra++
	}
	if stage == 0 && w.own != nil && !allChildren &&
		w.own.count()[asyncflow.StatusSucceeded] < len(w.own.contexts) {
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitChildren
		w.own.waits, w.own.again = w.seq, true
	}
}

func (w *treeTask) redrive(stage int, status asyncflow.Status, reason asyncflow.WaitReason) {
	w.seq += 2
	w.written[w.seq-1], w.last = asyncflow.OutcomeRedriven, asyncflow.OutcomeRedriven
	w.stage, w.attempt, w.status, w.reason = stage, 1, status, reason
}

// failedBecauseOf returns the tasks that ended because of another one, and because of those.
func (m *treeMachine) failedBecauseOf(w *treeTask) (all []*treeTask) {
	for found := []*treeTask{w}; len(found) > 0; {
		var next []*treeTask
		for _, e := range m.seen.edges {
			d := m.tasks[e.of]
			if d.status.Final() && d.last == asyncflow.OutcomeDependencies && e.failed() &&
				d.deps[e.n].Failure() != asyncflow.DependentRuns &&
				slices.ContainsFunc(found, func(f *treeTask) bool { return f.id == e.on }) &&
				!slices.Contains(all, d) && !slices.Contains(next, d) && d != w {
				next = append(next, d)
			}
		}
		all, found = append(all, next...), next
	}
	slices.SortFunc(all, func(a, b *treeTask) int {
		return cmp.Or(cmp.Compare(a.id.Type, b.id.Type), cmp.Compare(a.id.Number, b.id.Number))
	})
	return all
}
