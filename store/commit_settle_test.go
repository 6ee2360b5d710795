package store_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Concurrent reports of one task count once, and don't delay the others in their batch.
func TestReportsAtOnce(t *testing.T) { eachSet(t, reportsAtOnce) }

func reportsAtOnce(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 20)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	b.submit(tasks...)
	b.leaseAll(pipe, 20)
	b.loseAll(pipe, 20)
	start := time.Now()
	var told sync.WaitGroup
	for _, l := range b.leaseAll(pipe, 20) {
		for _, seq := range []int{2, 1, 2} {
			l.Seq = seq
			told.Add(1)
			b.Settle(tenant, asyncflow.Settlement{Lease: l,
				Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeRejected},
				Verdict: asyncflow.Verdict{Kind: asyncflow.Fail}},
				func(r store.Settled) {
					assert.NoError(t, r.Err)
					assert.Equal(t, seq == 1, r.Stale)
					told.Done()
				})
		}
	}
	waitAll(t, &told)
	assert.Less(t, time.Since(start), time.Minute)
	assert.Equal(t, tallied{Submitted: 20, Attempts: 40, Failures: 40, Failed: 20},
		first(b.tallies(tenant, "pipe")))
	b.checkTokens("pipe")
}

// settleAgain settles a lease without knowledge of earlier tries.
func (b *bundle) settleAgain(t *store.Type, e *store.Ending) store.Settled {
	b.t.Helper()
	again := &store.Ending{Settlement: e.Settlement}
	require.NoError(b.t, b.SettleAgain(b.t.Context(), t, []*store.Ending{again}))
	return again.Settled
}

// A task goes on with the lease of its next stage, which the transaction writes that ends the last
// one. The others stand in line. If the node dies, the leases run out.
func TestCommitOfTheNextStage(t *testing.T) { eachSet(t, commitOfTheNextStage) }

func commitOfTheNextStage(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := leased(b.insertions(pipe, `1`, `2`, `3`)...)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
	output := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`{"made":1}`)}
	ends := []*store.Ending{goesOn(b.ending(pipe, *items[0].Lease, output)),
		b.ending(pipe, *items[1].Lease, stageDone),
		goesOn(b.ending(pipe, *items[2].Lease, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}))}
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, Settled: ends}}))
	b.checkTokens("pipe")
	l, stands, err := b.LeaseOf(t.Context(), tenant, items[0].ID, 2)
	require.NoError(t, err)
	require.True(t, stands)
	assert.Equal(t, []any{"second", 1}, []any{l.Stage, l.Attempt})
	assert.WithinDuration(t, ends[0].Next.Until, l.Until, time.Microsecond)
	waiting := b.lease(pipe, 5)
	require.Len(t, waiting, 1)
	assert.Equal(t, []any{items[1].ID, "second", 2, `2`},
		[]any{waiting[0].ID, waiting[0].Stage, waiting[0].Seq, string(waiting[0].Context)})
	task, err := b.Task(t.Context(), tenant, items[2].ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status, "a final verdict has no next stage")

	b.expire(items[0])
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	kind, stage := b.lastOutcome(items[0].ID)
	assert.Equal(t, []any{asyncflow.OutcomeLost, "second"}, []any{kind, stage})
	b.checkTokens("pipe")
	again := b.leaseAll(pipe, 1)[0]
	assert.Equal(t, []any{items[0].ID, "second", 3, `{"made":1}`},
		[]any{again.ID, again.Stage, again.Seq, string(again.Context)})
}

// If a settlement can't be written, the next stage doesn't begin, and the leases are unchanged.
func TestNextStageThatCantBeWritten(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	items := leased(b.insertions(pipe, `1`, `2`)...)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
	before := b.endsOf(pipe)
	b.exec(`ALTER TABLE tenant_acme.journal_1 ADD CONSTRAINT shut CHECK (false) NOT VALID`)
	ends := []*store.Ending{goesOn(b.ending(pipe, *items[0].Lease, stageDone)),
		goesOn(b.ending(pipe, *items[1].Lease, stageDone))}
	require.Error(t, b.commit([]*store.Writes{{Type: pipe, Settled: ends}}))
	require.True(t, store.IsDataError(b.SettleAgain(t.Context(), pipe, ends)))
	assert.Equal(t, before, b.endsOf(pipe))
	for _, item := range items {
		_, stands, err := b.LeaseOf(t.Context(), tenant, item.ID, 1)
		require.NoError(t, err)
		assert.True(t, stands)
	}
	b.checkTokens("pipe")
	b.exec(`ALTER TABLE tenant_acme.journal_1 DROP CONSTRAINT shut`)
	require.NoError(t, b.SettleAgain(t.Context(), pipe, ends))
	for _, e := range ends {
		assert.Equal(t, store.Settled{}, e.Settled)
		_, stands, err := b.LeaseOf(t.Context(), tenant, e.Lease.ID, 2)
		require.NoError(t, err)
		assert.True(t, stands)
	}
	b.checkTokens("pipe")
}

// After a try with an unknown commit, each settlement gets how its lease ended. A repeated
// settlement is not stale.
func TestSettleAgain(t *testing.T) {
	t.Parallel()
	output := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`1`)}
	other := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`2`)}
	rejected := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}
	for name, c := range map[string]struct {
		before   *asyncflow.Outcome // nil: the lease stands
		seq      int                // of the settlement
		again    asyncflow.Outcome
		want     store.Settled
		attempts int64 // in all
	}{
		"a lease that stands": {nil, 1, output, store.Settled{}, 2},
		"the same again": {&output, 1, output,
			store.Settled{Written: asyncflow.OutcomeDone}, 2},
		"another output": {&output, 1, other,
			store.Settled{Stale: true, Written: asyncflow.OutcomeDone}, 2},
		"another outcome": {&rejected, 1, output,
			store.Settled{Stale: true, Written: asyncflow.OutcomeRejected}, 2},
		"a lease that never was": {nil, 2, output, store.Settled{Stale: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			pipe := b.put(twoStages())
			items := leased(b.insertions(pipe, `"this"`, `"beside"`)...)
			require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
			l := *items[0].Lease
			if c.before != nil {
				require.NoError(t, b.commit([]*store.Writes{{Type: pipe,
					Settled: []*store.Ending{b.ending(pipe, l, *c.before)}}}))
			}
			l.Seq = c.seq
			ends := []*store.Ending{goesOn(b.ending(pipe, l, c.again)),
				b.ending(pipe, *items[1].Lease, output)}
			if c.want != (store.Settled{}) {
				before := b.dump()
				require.Error(t, b.commit([]*store.Writes{{Type: pipe, Settled: ends}}))
				assert.Equal(t, before, b.dump(), "nothing was changed")
			}
			require.NoError(t, b.SettleAgain(t.Context(), pipe, ends))
			assert.Equal(t, c.want, ends[0].Settled)
			assert.Equal(t, store.Settled{}, ends[1].Settled)
			require.NoError(t, b.SettleAgain(t.Context(), pipe, ends))
			assert.Equal(t, []store.Settled{c.want, {}},
				[]store.Settled{ends[0].Settled, ends[1].Settled}, "a further try says the same")
			assert.Equal(t, c.attempts, first(b.tallies(tenant, "pipe")).Attempts)
			_, stands, err := b.LeaseOf(t.Context(), tenant, l.ID, l.Seq+1)
			require.NoError(t, err)
			assert.Equal(t, c.want == store.Settled{}, stands,
				"it goes on only by its own settlement")
			b.checkTokens("pipe")
			assert.Equal(t, store.Settled{Written: asyncflow.OutcomeDone},
				b.settleAgain(pipe, ends[1]))
			assert.Equal(t, c.attempts, first(b.tallies(tenant, "pipe")).Attempts, "it counts once")
		})
	}
}
