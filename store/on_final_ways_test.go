package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// A task tells its end in each way in which it may end, and once. Its type tells none, so each way
// knows the options of the task.
func TestEachWayToEndIsTold(t *testing.T) {
	longform.Costly(t)
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`1`)}
	told := func(task asyncflow.NewTask) asyncflow.NewTask {
		task.Options.OnFinal = shop()
		return task
	}
	for name, end := range map[string]func(t *testing.T, b *bundle, pipe *store.Type){
		"report": func(_ *testing.T, b *bundle, pipe *store.Type) {
			b.submit(told(newTask(`1`)))
			b.end(pipe, done)
		},
		"report, tried again": func(t *testing.T, b *bundle, pipe *store.Type) {
			b.submit(told(newTask(`1`)))
			l := b.leaseAll(pipe, 1)[0]
			ending := &store.Ending{Settlement: &asyncflow.Settlement{Lease: l, Outcome: done,
				Verdict: asyncflow.Decide(pipe.TaskType, l, done, b.Clock.Now())}}
			require.NoError(t, b.SettleAgain(t.Context(), pipe, []*store.Ending{ending}))
		},
		"report of an accepted attempt": func(t *testing.T, b *bundle, pipe *store.Type) {
			id := b.submit(told(newTask(`1`)))[0].ID
			b.leaseAll(pipe, 1)
			l, stands, err := b.LeaseOf(t.Context(), tenant, id, 1)
			require.NoError(t, err)
			require.True(t, stands)
			require.NoError(t, b.settle(pipe, l, done).Err)
		},
		"rescue": func(_ *testing.T, b *bundle, pipe *store.Type) {
			b.submit(told(newTask(`1`)))
			b.leaseAll(pipe, 1)
			b.loseAll(pipe, 1)
		},
		"late report": func(t *testing.T, b *bundle, _ *store.Type) {
			spec := single()
			spec.Stages[0].Retry.MaxAttempts = 2
			pipe := b.put(spec)
			id := b.submit(told(newTask(`1`)))[0].ID
			b.leaseAll(pipe, 1)
			b.loseAll(pipe, 1)
			_, taken, err := b.SettleLate(t.Context(), pipe, id, 1, done)
			require.NoError(t, err)
			require.True(t, taken)
		},
		"cancel": func(t *testing.T, b *bundle, pipe *store.Type) {
			all := b.submit(told(newTask(`1`)), told(newTask(`2`)))
			b.leaseAll(pipe, 1)
			for _, r := range all {
				_, err := b.Cancel(t.Context(), tenant, r.ID, "no")
				require.NoError(t, err)
			}
		},
		"cancel of many": func(_ *testing.T, b *bundle, _ *store.Type) {
			b.submit(told(newTask(`1`)), told(newTask(`2`)))
			_, due := b.start(store.CancelTasks, store.NewOperation{})
			b.finish(due)
		},
		"dependency": func(t *testing.T, b *bundle, _ *store.Type) {
			on := b.submit(told(newTask(`1`)))[0].ID
			b.submit(told(dependent(asyncflow.Dependency{Task: on})))
			_, err := b.Cancel(t.Context(), tenant, on, "no")
			require.NoError(t, err)
		},
		"signal that doesn't come": func(_ *testing.T, b *bundle, _ *store.Type) {
			b.put(approval())
			b.beforeWait(told(newTask(`1`)))
			b.await()
			b.followUp()
			b.timeUp()
		},
		"join": func(_ *testing.T, b *bundle, _ *store.Type) {
			spec := twoStages()
			spec.Stages = spec.Stages[:1]
			spec.Stages[0].FanOut = &asyncflow.FanOut{Shards: 2}
			pipe := b.put(spec)
			b.submit(told(newTask(`1`)))
			l := b.leaseAll(pipe, 1)[0]
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
				FannedOut: &asyncflow.FannedOut{FanOut: *pipe.FansOut(l), Count: 2}})
			b.followUp()
			for _, l := range b.leaseAll(pipe, 2) {
				b.settle(pipe, l, done)
			}
		},
		"a full journal": func(_ *testing.T, b *bundle, pipe *store.Type) {
			b.submit(told(newTask(`1`)))
			l := b.leaseAll(pipe, 1)[0]
			b.exec(`UPDATE tenant_acme.lease SET seq = 32000`)
			l.Seq = asyncflow.MaxJournal
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			b.told()
			pipe := b.put(single())
			end(t, b, pipe)
			for range 3 {
				b.followUp()
			}
			require.Empty(t, b.wrongEnds())
			var finals int
			require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM (`+
				b.tables("journal", "type, id, final")+`) j JOIN (`+
				b.tables("task", "type, id, options")+`) t USING (type, id)
				WHERE final IS NOT NULL AND t.options -> 'on_final' IS NOT NULL`).Scan(&finals))
			require.NotZero(t, finals, "a task has ended")
			require.Equal(t, finals, b.count(`SELECT count(*) FROM tenant_acme.notifications`))
		})
	}
}
