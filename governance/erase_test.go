package governance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
	endedIn(t, url, slug, 1, n, ago)
}

// endedIn is ended in a roll.
func endedIn(t *testing.T, url, slug string, position, n int, ago time.Duration) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`WITH new AS (SELECT number, (%[4]d::bigint << 40) + n AS id
		  FROM tenant_%[1]s.task_types, generate_series(1, %[2]d) n WHERE name = 'pipe'),
		task AS (INSERT INTO tenant_%[1]s.task_%[4]d (type, id, created_at, order_time, context)
		  SELECT number, id, now() - interval '%[3]d s', now(), '"x"' FROM new)
		INSERT INTO tenant_%[1]s.journal_%[4]d (type, id, seq, at, stage, attempt, outcome, final)
		SELECT number, id, 1, now() - interval '%[3]d s', 'only', 1, 'done', 'succeeded' FROM new`,
		slug, n, int(ago.Seconds()), position))
}

// One tenant with many due tasks doesn't keep another waiting. A tenant rests until the next task
// is due.
func TestEraseInTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "few", noRoles())
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

// An open transaction that holds a roll keeps the job from this roll only. The job looks at it
// again after a while, and reports it if that goes on.
func TestEraseBesideHeldRoll(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	kind := b.put(t, asyncflow.TaskType{Name: "pipe",
		ContextRetention: asyncflow.NewDuration(time.Hour)})
	_, err := b.OpenRoll(t.Context(), kind.Set())
	require.NoError(t, err)
	endedIn(t, url, tenant, 1, 5, 3*time.Hour)
	endedIn(t, url, tenant, 2, 150, 2*time.Hour)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `BEGIN;
		SELECT FROM tenant_acme.rolls WHERE position = 1 FOR KEY SHARE`)
	require.NoError(t, err)
	sum := 0
	for range 20 {
		n, err := b.jobs["erase"].Run(t.Context())
		require.NoError(t, err)
		sum += n
	}
	assert.Equal(t, 150, sum)
	b.gov.HeldSince(time.Hour)
	// A cursor that finds nothing in the roll says nothing about who holds it.
	other, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer other.Close(context.Background())
	_, err = other.Exec(t.Context(), `UPDATE tenant_acme.content_cursors
		SET since = now() - interval '5 h' WHERE upto = (
		  SELECT max(upto) FROM tenant_acme.content_cursors WHERE upto >> 40 = 1)`)
	require.NoError(t, err)
	_, err = b.jobs["erase"].Run(t.Context())
	require.ErrorContains(t, err, "another transaction has held roll 1 for 1h0m")
	_, err = b.jobs["erase"].Run(t.Context())
	require.ErrorContains(t, err, "has held roll 1", "also in a run that leaves it alone")
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	b.gov.HeldSince(time.Hour)
	n, err := b.jobs["erase"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 5, n)
}

func acquires(b *bundle) (n int64) {
	for _, pool := range b.PoolStats() {
		n += pool.Acquires
	}
	return n
}
