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

// backlog returns how many tasks of the type wait, by reason.
func (b *bundle) backlog() map[asyncflow.WaitReason]int64 {
	b.t.Helper()
	s := b.stats("pipe")
	counts := map[asyncflow.WaitReason]int64{}
	oldest := time.Time{}
	for _, one := range s.Backlog {
		counts[one.WaitsFor] += one.Tasks
		if oldest.IsZero() || one.Oldest.Before(oldest) {
			oldest = one.Oldest
		}
	}
	require.Equal(b.t, oldest, s.OldestDue)
	return counts
}

func urgent(context string) asyncflow.NewTask {
	task := newTask(context)
	task.Options.Priority = asyncflow.Priority{3600, 3600}
	return task
}

// The oldest due task counts, however many are before it in the order.
func TestOldestDueBehindAStreamOfPriority(t *testing.T) {
	b := setup(t)
	b.serving(twoStages())
	starving := b.task(b.submit(newTask(`"starving"`))[0].ID)
	for i := range 50 {
		b.submit(urgent(fmt.Sprint(i)), keyed("k", fmt.Sprint(i)))
	}
	require.Equal(t, starving.CreatedAt, b.stats("pipe").OldestDue)
	for _, l := range b.lease(b.known(), 50) {
		require.NotEqual(t, starving.ID, l.ID)
	}
	require.Equal(t, starving.CreatedAt, b.stats("pipe").OldestDue)
}

// Due tasks that are not under way count, in whichever table and for whichever reason they wait.
// A head start is no delay there either. A task keeps the time since when it is due while it
// moves between tables.
func TestBacklogOfHeldTasks(t *testing.T) {
	b := setup(t)
	b.serving(twoStages())
	first := b.task(b.submit(urgent(`1`))[0].ID)
	b.submit(urgent(`2`), urgent(`3`))
	due := func(why asyncflow.WaitReason, n int64) {
		t.Helper()
		require.Equal(t, map[asyncflow.WaitReason]int64{why: n}, b.backlog())
		require.Equal(t, first.CreatedAt, b.stats("pipe").OldestDue)
	}
	due(asyncflow.WaitCapacity, 3)
	require.Empty(t, b.leaseLimited(100, &doorman{capacities: map[string]int{"first": 0}}))
	due(asyncflow.WaitLimit, 3)
	require.Equal(t,
		[]store.Backlog{{WaitsFor: asyncflow.WaitLimit, Stage: "first", Tasks: 3,
			Oldest: first.CreatedAt}}, b.stats("pipe").Backlog)
	n, err := b.Promote(t.Context(), b.known(), []string{"first"})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	due(asyncflow.WaitCapacity, 3)

	_, err = b.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	due(asyncflow.WaitPaused, 3)
	_, err = b.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)

	b.change(first.ID, asyncflow.Patch{Priority: asyncflow.Priority{7200}})
	due(asyncflow.WaitCapacity, 3)
	l := b.lease(b.known(), 1)[0]
	require.Equal(t, first.ID, l.ID)
	b.conclude(l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased},
		asyncflow.ParkFor(l, asyncflow.WaitUnhealthy))
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitCapacity: 2,
		asyncflow.WaitUnhealthy: 1}, b.backlog())
	require.WithinDuration(t, first.CreatedAt, b.stats("pipe").OldestDue, time.Millisecond,
		"it was never sent")

	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant,
		"0190a6f0-0000-7000-8000-000000000001"))
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitEndpoint: 3}, b.backlog())
}

// Tasks that wait for their flow key or for a background job are due; tasks that wait for their
// time are not.
func TestBacklogOfWaitingTasks(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
	b.serving(spec)
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	b.submit(keyed("k", `1`), keyed("k", `2`), keyed("k", `3`), later)
	require.Len(t, b.admitAll(), 1)
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitFlow: 2}, b.backlog())
	b.exec(`UPDATE tenant_acme.wait SET until = now() - interval '1 h',
		order_time = now() - interval '1 h' WHERE reason = 'delay'`)
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitFlow: 2, asyncflow.WaitDelay: 1},
		b.backlog())
	assert.Greater(t, b.Clock.Now().Sub(b.stats("pipe").OldestDue), 59*time.Minute)
}

// The backlog names limits and quotas as single tasks do.
func TestBacklogOfLimits(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.MaxInFlight = 1
	b.serving(spec)
	b.submit(newTask(`1`), newTask(`2`))
	require.Len(t, b.leaseLimited(1, &doorman{}), 1)
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitType: 1}, b.backlog())
	spec.MaxInFlight = 0
	b.put(spec)
	_, err := b.PatchTenant(t.Context(), tenant,
		store.TenantPatch{Quotas: map[asyncflow.QuotaName]float64{asyncflow.QuotaConcurrency: 1}})
	require.NoError(t, err)
	require.Equal(t, map[asyncflow.WaitReason]int64{asyncflow.WaitConcurrency: 1}, b.backlog())
}

// Tasks submitted by SQL also get their head start.
func TestBacklogOfSQLSubmits(t *testing.T) {
	b := setup(t)
	b.serving(twoStages())
	_, err := b.app().Exec(t.Context(),
		`SELECT tenant_acme.submit_task('pipe', '1', priority => 3600)`)
	require.NoError(t, err)
	require.Less(t, b.Clock.Now().Sub(b.stats("pipe").OldestDue), 30*time.Minute)
}

// There are rows of their own for tasks that wait for others. No task is late because of them.
func TestBacklogOfTasksThatWaitForOthers(t *testing.T) {
	b := setupEdges(t)
	b.submit(dependent(byKey("a")), dependent(byKey("b")))
	b.followUp()
	s := b.stats("pipe")
	require.Len(t, s.Backlog, 1)
	assert.Equal(t, asyncflow.WaitDependencies, s.Backlog[0].WaitsFor)
	assert.EqualValues(t, 2, s.Backlog[0].Tasks)
	assert.False(t, s.Backlog[0].Oldest.IsZero())
	assert.EqualValues(t, 2, s.Waiting)
	assert.Zero(t, s.Pending)
	assert.Zero(t, s.OldestDue)
	b.submit(newTask(`1`))
	s = b.stats("pipe")
	require.Len(t, s.Backlog, 2)
	assert.Equal(t, asyncflow.WaitDependencies, s.Backlog[1].WaitsFor)
	assert.Equal(t, s.Backlog[0].Oldest, s.OldestDue)
	b.exec(`UPDATE tenant_acme.wait SET reason = 'children'`)
	assert.Equal(t, asyncflow.WaitChildren, b.stats("pipe").Backlog[1].WaitsFor)
}
