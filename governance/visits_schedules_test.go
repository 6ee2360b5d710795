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

// Schedules of all tenants have their tasks once, however many nodes run the job. One tenant's
// failure doesn't affect others.
func TestSchedules(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "beta")
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
		exec(t, url, `UPDATE tenant_acme.schedules SET next_at = (spec->>'starts_at')::timestamptz;
			UPDATE tenant_beta.schedules SET next_at = (spec->>'starts_at')::timestamptz`)
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
