package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// forget makes this node not know that types are awaited, as if its catalog were too old.
func (b *bundle) forgetAwaited() {
	b.t.Helper()
	b.followUp()
	b.exec(`UPDATE tenant_acme.task_types SET awaited_since = NULL`)
	b.exec(`UPDATE asyncflow.tenants SET version = version + 1000000 WHERE slug = 'acme'`)
	require.NoError(b.t, b.Catalog.RefreshTenant(b.t.Context(), tenant))
	b.exec(`DELETE FROM tenant_acme.outbox`)
}

// sweepOpen looks for missed ends once, and handles them.
func (b *bundle) sweepOpen() (n int) {
	b.t.Helper()
	due, err := b.DryRunOpenEdges(b.t.Context(), tenant)
	require.NoError(b.t, err)
	n, err = b.SweepOpenEdges(b.t.Context(), tenant)
	require.NoError(b.t, err)
	if n > 0 {
		assert.Equal(b.t, []store.Due{{Tenant: tenant, Rows: n}}, due)
	}
	b.followUp()
	return n
}

func TestMissedEndsAreFound(t *testing.T) {
	b := setupTwo(t)
	b.put(base())
	b.put(twoStages())
	byID1 := b.submit(newBase(""))[0].ID
	first := b.submit(dependent(byID(byID1)))[0].ID
	second := b.submit(dependent(byKey("k")))[0].ID // before the task with the key
	b.submit(newBase("k"))
	third := b.submit(dependent(byKey("never")))[0].ID
	b.forgetAwaited()
	open, err := b.OpenEdges(t.Context(), []string{tenant, "other"})
	require.NoError(t, err)
	assert.Contains(t, open, tenant)
	assert.NotContains(t, open, "other")
	assert.Zero(t, b.sweepOpen(), "none has ended")

	b.forgetAwaited()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.followUp()
	for _, id := range []asyncflow.TaskID{first, second, third} {
		require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status, "nobody has told")
	}
	assert.Equal(t, 2, b.sweepOpen())
	b.comesTo(first, asyncflow.StatusPending)
	b.comesTo(second, asyncflow.StatusPending)
	assert.Equal(t, asyncflow.StatusWaiting, b.task(third).Status)
	assert.Zero(t, b.sweepOpen(), "once is enough")

	b.exec(`UPDATE tenant_acme.edges SET on_id = $1 WHERE status IS NULL`, int64(1)<<60)
	assert.Equal(t, 1, b.sweepOpen(), "a task that is gone")
	b.comesTo(third, asyncflow.StatusFailed)
	assert.Zero(t, b.sweepOpen())
	b.checkTokens("pipe")
}

// A sweep is bounded. The next one goes on, until all open edges were looked at.
func TestSweepsOfOpenEdgesGoOn(t *testing.T) {
	b := setupEdges(t)
	var tasks []asyncflow.NewTask
	for i := range store.JobBatch {
		tasks = append(tasks, dependent(byKey(fmt.Sprintf("a%04d", i))))
	}
	b.submit(tasks...)
	last := b.submit(dependent(byKey("z")))[0].ID
	b.submit(newBase("z"))
	b.forgetAwaited()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	assert.Zero(t, b.sweepOpen())
	assert.Equal(t, 1, b.sweepOpen())
	b.comesTo(last, asyncflow.StatusPending)
	b.exec(`DELETE FROM tenant_acme.edges WHERE on_key <> 'a0000'`)
	b.submit(newBase("a0000"))
	b.forgetAwaited()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	assert.Equal(t, 1, b.sweepOpen(), "it begins anew")
}

// A dependent that is redriven after its wait was over waits again, and as long.
func TestARedrivenDependentDoesNotWaitForEver(t *testing.T) {
	b := setupEdges(t)
	bad := b.submit(newBase(""))[0].ID
	on := byID(bad)
	on.WaitFor = asyncflow.NewDuration(time.Hour)
	got := b.submit(dependent(on))[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	b.comesTo(got, asyncflow.StatusFailed)
	b.exec(`UPDATE tenant_acme.edges SET until = until - interval '1 day'`)
	begin := b.Clock.Now()
	_, err := b.Redrive(t.Context(), tenant, bad, store.Redrive{Dependents: true})
	require.NoError(t, err)
	task := b.comesTo(got, asyncflow.StatusWaiting)
	assert.WithinRange(t, task.Dependencies[0].Until, begin.Add(time.Hour),
		b.Clock.Now().Add(time.Hour))
}
