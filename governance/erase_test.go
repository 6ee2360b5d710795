package governance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// ended makes n tasks of the type pipe of a tenant that ended some time ago.
func ended(t *testing.T, url, slug string, n int, ago time.Duration) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`WITH new AS (SELECT number, (1::bigint << 40) + n AS id
		  FROM tenant_%[1]s.task_types, generate_series(1, %[2]d) n WHERE name = 'pipe'),
		task AS (INSERT INTO tenant_%[1]s.task_1 (type, id, created_at, order_time, context)
		  SELECT number, id, now() - interval '%[3]d s', now(), '"x"' FROM new)
		INSERT INTO tenant_%[1]s.journal_1 (type, id, seq, at, stage, attempt, outcome, final)
		SELECT number, id, 1, now() - interval '%[3]d s', 'only', 1, 'done', 'succeeded' FROM new`,
		slug, n, int(ago.Seconds())))
}

// One tenant with many due tasks doesn't keep another waiting. A tenant rests until the next task
// is due.
func TestEraseInTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "few")
	require.NoError(t, err)
	b := setup(t, url, "a", governance.Config{})
	b.gov.SetEraseTurn(time.Nanosecond)
	kind := b.put(t, asyncflow.TaskType{Name: "pipe",
		ContextRetention: asyncflow.NewDuration(time.Hour)})
	_, _, err = b.PutTaskType(t.Context(), "few", kind.TaskType)
	require.NoError(t, err)
	ended(t, url, tenant, 350, 2*time.Hour)
	ended(t, url, "few", 5, 2*time.Hour)
	run := func() int {
		n, err := b.jobs["erase"].Run(t.Context())
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 105, run())
	due, err := b.jobs["erase"].DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []store.Due{{Tenant: tenant, Type: "pipe", Rows: 250}}, due)
	sum := 0
	for range 20 {
		sum += run()
	}
	assert.Equal(t, 250, sum)

	exec(t, url, `UPDATE tenant_acme.content_cursors SET since = 'infinity'`)
	b.gov.SetEraseTurn(time.Minute)
	for range 3 {
		assert.Zero(t, run())
	}
	before := acquires(b)
	assert.Zero(t, run())
	assert.Equal(t, before, acquires(b), "both rest")
}

func acquires(b *bundle) (n int64) {
	for _, pool := range b.PoolStats() {
		n += pool.Acquires
	}
	return n
}
