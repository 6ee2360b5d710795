package store_test

import (
	"sync"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

// followUp handles some of the rows of outbox in one transaction.
func (m *treeMachine) followUp(t *rapid.T) {
	_, err := m.b.FollowUpRows(m.b.t.Context(), tenant, rapid.IntRange(1, 4).Draw(t, "rows"))
	require.NoError(t, err)
}

// followUpTwice does so twice at once.
func (m *treeMachine) followUpTwice(t *rapid.T) {
	rows := rapid.IntRange(1, 4).Draw(t, "rows")
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		all.Go(func() { _, errs[i] = m.b.FollowUpRows(m.b.t.Context(), tenant, rows) })
	}
	all.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
}

// die makes a node die while it follows up, or while its background job does what others left.
func (m *treeMachine) die(t *rapid.T) {
	if m.seen.outbox == 0 || rapid.Bool().Draw(t, "lives") { // the next life costs 0.1 s
		t.Skip("nothing to do")
	}
	sweeps := rapid.Bool().Draw(t, "sweeps")
	died, err := m.dying(t, func(b *bundle) (err error) {
		if sweeps {
			_, _, err = b.SweepFollowUps(b.t.Context(), tenant)
		} else {
			_, err = b.FollowUp(b.t.Context(), tenant)
		}
		return err
	})
	// without a SQLSTATE it is a connection that was cut in an earlier step
	require.True(t, died || sqlState(err) == "", "%v", err)
}

// sweep compares the counts of children: they are never wrong.
func (m *treeMachine) sweep(t *rapid.T) {
	n, err := m.b.SweepFanOuts(m.b.t.Context(), tenant)
	require.NoError(t, err)
	require.Zero(t, n)
}

// finish drives all tasks to their ends: none may wait for ever.
func (m *treeMachine) finish() {
	m.check(m.t)
	for round := 0; ; round++ {
		m.quiet(m.t)
		live := 0
		for _, w := range m.order {
			if !w.status.Final() {
				live++
			}
		}
		if live == 0 {
			break
		}
		require.Less(m.t, round, 200, "%d tasks don't end", live)
		m.goOn()
		m.check(m.t)
	}
	for _, name := range m.types {
		m.b.checkTallies(name)
	}
}

// goOn leases and settles what it can. If nothing moves, it cancels the first task that waits for a
// key without a task.
func (m *treeMachine) goOn() {
	moved := false
	m.lease()
	for _, w := range m.order {
		if w.status == asyncflow.StatusRunning {
			m.report(m.t, w, w.leases[len(w.leases)-1], asyncflow.OutcomeDone)
			moved = true
		}
	}
	for _, w := range m.order {
		for _, on := range w.deps {
			if !moved && w.reason == asyncflow.WaitDependencies && m.other(on) == nil {
				_, err := m.b.Cancel(m.b.t.Context(), tenant, w.id, "nobody comes")
				require.NoError(m.t, err)
				w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled})
				moved = true
			}
		}
	}
	require.True(m.t, moved, "nothing moves")
}
