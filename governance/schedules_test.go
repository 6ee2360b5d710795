package governance_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Schedules of all tenants get their tasks once, however many nodes run the job. One tenant's
// failure doesn't affect others.
func TestSchedules(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "beta", noRoles())
	require.NoError(t, err)
	a := setup(t, url, "a", governance.Config{})
	pipe := a.pipe(t, "pipe")
	_, _, err = a.PutTaskType(t.Context(), "beta", pipe.TaskType)
	require.NoError(t, err)
	b := setup(t, url, "b", governance.Config{})
	s := asyncflow.Schedule{Type: "pipe", Context: json.RawMessage(`1`),
		Every:    asyncflow.NewDuration(time.Minute),
		StartsAt: a.Clock.Now().Add(-5 * time.Second).Truncate(time.Second)}.WithDefaults()
	const n = 130 // more than one round takes
	for i := range n {
		s.Name = fmt.Sprint("s", i)
		_, _, err = a.PutSchedule(t.Context(), tenant, s)
		require.NoError(t, err)
	}
	_, _, err = a.PutSchedule(t.Context(), "beta", s)
	require.NoError(t, err)
	due := func() {
		for _, name := range []string{tenant, "beta"} {
			exec(t, url, `UPDATE tenant_`+name+
				`.schedules SET next_at = (spec->>'starts_at')::timestamptz`)
		}
	}
	due()
	var mu sync.Mutex
	sum := 0
	var wg sync.WaitGroup
	for _, node := range []*bundle{a, b} {
		wg.Go(func() {
			n, err := node.jobs["schedules"].Run(t.Context())
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			sum += n
		})
	}
	wg.Wait()
	assert.Equal(t, n+1, sum)
	again, err := a.jobs["schedules"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
	exec(t, url,
		fmt.Sprintf(`DO $$ BEGIN ASSERT (SELECT count(*) FROM tenant_acme.task_1) = %d; END $$`, n))

	due()
	exec(t, url,
		`ALTER TABLE tenant_acme.schedules ADD CONSTRAINT trouble CHECK (next_at <= now()) NOT VALID`)
	again, err = a.jobs["schedules"].Run(t.Context())
	require.ErrorContains(t, err, "trouble")
	assert.Equal(t, 1, again, "the other tenant's")
}

func (b *bundle) suspend(t *testing.T, suspended bool) {
	t.Helper()
	_, err := b.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &suspended})
	require.NoError(t, err)
}

// The ticks of a suspended tenant's schedules stay due, and its alerts silent.
func TestSchedulesOfASuspendedTenant(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	_, _, err := b.PutSchedule(t.Context(), tenant,
		asyncflow.Schedule{Name: "often", Type: "pipe", Context: json.RawMessage(`1`),
			Every:    asyncflow.NewDuration(time.Minute),
			StartsAt: b.Clock.Now().Add(-5 * time.Second).Truncate(time.Second)}.WithDefaults())
	require.NoError(t, err)
	exec(t, url, `UPDATE tenant_acme.schedules SET next_at = (spec->>'starts_at')::timestamptz`)
	b.suspend(t, true)
	n, err := b.jobs["schedules"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	due, err := b.jobs["schedules"].DryRun(t.Context())
	require.NoError(t, err)
	assert.Empty(t, due)
	b.suspend(t, false)
	n, err = b.jobs["schedules"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "it was kept")
}

// At the quota of pending tasks a tick gets no task; it gets one when the quota allows it.
func TestTicksAtTheQuota(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	_, err := b.PatchTenant(t.Context(), tenant,
		store.TenantPatch{Quotas: map[asyncflow.QuotaName]float64{asyncflow.QuotaPendingTasks: 1}})
	require.NoError(t, err)
	lease := b.submitAndLease(t, pipe, 1)[0]
	_, _, err = b.PutSchedule(t.Context(), tenant,
		asyncflow.Schedule{Name: "often", Type: "pipe", Context: json.RawMessage(`1`),
			Every:    asyncflow.NewDuration(time.Minute),
			StartsAt: b.Clock.Now().Add(-5 * time.Second).Truncate(time.Second)}.WithDefaults())
	require.NoError(t, err)
	exec(t, url, `UPDATE tenant_acme.schedules SET next_at = (spec->>'starts_at')::timestamptz`)
	n, err := b.jobs["schedules"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	_, err = b.Cancel(t.Context(), tenant, lease.ID, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		n, err := b.jobs["schedules"].Run(t.Context())
		return err == nil && n == 1
	}, patience, 20*time.Millisecond)
}
