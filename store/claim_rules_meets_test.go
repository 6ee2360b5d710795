package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// notAnna are rules that keep a task from one claimer.
var notAnna = &asyncflow.ClaimRules{Exclude: []string{"anna"}}

// claimsOf returns what a claimer gets of a stage of pipe, to the end of the line.
func (b *bundle) claimsOf(stage, claimer string, n int) []asyncflow.Lease {
	b.t.Helper()
	ask := &store.ClaimAsk{Claimer: claimer, N: n}
	for {
		_, err := b.LeaseForClaims(b.t.Context(), b.known(), stage, []*store.ClaimAsk{ask}, n,
			1<<20)
		require.NoError(b.t, err)
		if !ask.Further {
			return ask.Leases
		}
	}
}

// claimSoon claims a task of a stage, once it is due.
func (b *bundle) claimSoon(stage, claimer string) (l asyncflow.Lease) {
	b.t.Helper()
	eventually(b.t, "a task for "+claimer, func() bool {
		all := b.claimsOf(stage, claimer, 1)
		if len(all) > 0 {
			l = all[0]
		}
		return len(all) > 0
	})
	return l
}

// A stage without mode claim ignores the rules. They hold in the next stage, if that is claimed.
func TestPushesIgnoreRules(t *testing.T) { eachSet(t, pushesIgnoreRules) }

func pushesIgnoreRules(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Stages[1].Mode = asyncflow.ModeClaim
	b.put(spec)
	id := b.submit(ruled(&asyncflow.ClaimRules{Exclude: []string{"*"},
		Labels: map[string]string{"lang": "de"}}))[0].ID
	leases := b.lease(b.known(), 1)
	require.Len(t, leases, 1)
	b.endBy(asyncflow.OutcomeDone)(leases[0])
	assert.Empty(t, b.claimsOf("second", "anna", 1))
	assert.Equal(t, asyncflow.WaitClaimer, b.task(id).WaitsFor)
	assert.Empty(t, b.lease(b.known(), 1))
	b.checkTokens("pipe")
}

// A window counts only the tasks that its claimer was shown, and none that it passed over.
func TestExcludedTasksDontCountInAWindow(t *testing.T) {
	b := setup(t)
	ordered := false
	b.claimType(&asyncflow.Window{Tasks: 2, Per: asyncflow.NewDuration(time.Hour),
		Random: &ordered})
	b.submit(ruled(notAnna), ruled(notAnna), ruled(notAnna))
	want := b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	for _, one := range want[:2] {
		l := b.claimSoon("first", "anna")
		assert.Equal(t, one.ID, l.ID)
		b.endBy(asyncflow.OutcomeRejected)(l)
	}
	assert.Empty(t, b.claimsOf("first", "anna", 1), "her window is used up")
	for range 2 {
		b.endBy(asyncflow.OutcomeRejected)(b.claimSoon("first", "bob"))
	}
	assert.Empty(t, b.claimsOf("first", "bob", 1))
}

// Bulk reruns keep the rules of each task.
func TestBulkRerunsHaveRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	b.submit(ruled(notAnna), ruled(notAnna))
	for range 2 {
		b.endBy(asyncflow.OutcomeRejected)(b.claimSoon("first", "bob"))
	}
	_, due := b.start(store.RerunTasks, store.NewOperation{})
	require.Equal(t, []any{store.OperationDone, int64(2), int64(2), int64(0)},
		figures(b.finish(due)))
	assert.Empty(t, b.claimsOf("first", "anna", 2))
	assert.Len(t, b.claimsOf("first", "bob", 2), 2)
}

// A late report on a claim counts while its task with rules is back in line, unless the task was
// changed meanwhile.
func TestALateReportOfATaskWithRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	for name, changed := range map[string]bool{"as it was": false, "with other rules": true} {
		t.Run(name, func(t *testing.T) {
			id := b.submit(ruled(&asyncflow.ClaimRules{Exclude: []string{"bob"}}))[0].ID
			l := b.claimSoon("first", "anna")
			b.loseAll(b.known(), 1) // unheard
			if changed {
				_, err := b.Change(t.Context(), tenant, id, asyncflow.Patch{Claim: notAnna})
				require.NoError(t, err)
				require.Empty(t, b.claimsOf("first", "anna", 1))
			}
			_, taken, err := b.SettleLate(t.Context(), b.known(), l.ID, l.Seq, doneWith(`1`))
			require.NoError(t, err)
			assert.Equal(t, !changed, taken)
			assert.Equal(t, taken, b.task(id).Status.Final())
		})
	}
}
