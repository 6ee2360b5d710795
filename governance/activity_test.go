package governance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// notCounted is why tests don't run on Citus.
const notCounted = "it counts rows on the workers, so jobs visit all tenants"

// run runs some jobs once.
func (b *bundle) run(t *testing.T, names ...string) (rows int) {
	t.Helper()
	for _, name := range names {
		n, err := b.jobs[name].Run(t.Context())
		require.NoError(t, err, name)
		rows += n
	}
	return rows
}

// everyJob are the jobs that look after tenants.
var everyJob = []string{"rescue", "promote", "vacuum", "roll", "operations", "schedules",
	"follow-up", "expire-keys", "fold", "history", "alerts", "forget", "drop-tenants", "erase"}

// workJobs are the ones that find nothing where no work is. History records a minute that is over.
var workJobs = slices.DeleteFunc(slices.Clone(everyJob),
	func(name string) bool { return name == "history" })

// The jobs ask the database as little about many idle tenants as about a few.
func TestIdleTenantsCostNothing(t *testing.T) {
	pgtest.NotOnCitus(t, notCounted)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	tenants := longform.Size(10, 20)
	for i := range tenants {
		_, err := store.CreateTenant(t.Context(), url, fmt.Sprint("idle", i), noRoles())
		require.NoError(t, err)
	}
	b := setup(t, url, "a", governance.Config{AuditRetention: 48 * time.Hour})
	pipe := b.pipe(t, "pipe")
	for i := range tenants {
		slug := fmt.Sprint("idle", i)
		_, _, err := b.PutTaskType(t.Context(), slug, pipe.TaskType)
		require.NoError(t, err)
		r := b.Submit(t.Context(), slug, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
			Delay: asyncflow.NewDuration(2 * time.Hour), Options: asyncflow.Options{Key: "k"}}})
		require.NoError(t, r[0].Err)
		s := asyncflow.Schedule{Name: "s", Type: "pipe", Context: json.RawMessage(`1`),
			Every: asyncflow.NewDuration(24 * time.Hour)}.WithDefaults()
		_, _, err = b.PutSchedule(t.Context(), slug, s)
		require.NoError(t, err)
	}
	statements := func() (n int64) {
		for _, pool := range b.PoolStats() {
			n -= pool.Acquires
		}
		b.run(t, everyJob...)
		for _, pool := range b.PoolStats() {
			n += pool.Acquires
		}
		return n
	}
	first := statements()
	assert.Greater(t, first, int64(tenants), "nothing is known yet")
	// Postgres counts what was written a few seconds later, and there are new tallies for a minute.
	exec(t, url, `DO $$ DECLARE t name; BEGIN
		FOR t IN SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenant\_%' LOOP
		  EXECUTE format('UPDATE %I.tallies SET at = at - interval ''10 min''', t);
		END LOOP; END $$`)
	least := first
	assert.Eventually(t, func() bool {
		least = min(least, statements())
		return least <= int64(len(everyJob))+1 // forget deals with tokens, too, of no tenant
	}, patience, 500*time.Millisecond)
	t.Logf("first %d, then %d", first, least)
}

// A job finds what another node wrote and announced to nobody.
func TestUnannouncedWorkIsFound(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	a.pipe(t, "pipe")
	woken := make(chan store.TypeKey, 1000)
	listen(t, a.Store, func(k store.TypeKey, _ time.Time) { woken <- k }, func() {})
	require.Zero(t, a.run(t, workJobs...))

	b := setup(t, url, "b", governance.Config{})
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	b.submitAndLease(t, pipe, 3)
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	rescued := 0
	assert.Eventually(t, func() bool { // not sooner than rescueEvery after the last visit
		rescued += a.run(t, "rescue")
		return rescued == 3
	}, patience, 100*time.Millisecond, "leases that have run out")

	require.Zero(t, a.run(t, workJobs...))
	for _, r := range b.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
			Delay: asyncflow.NewDuration(time.Hour)}}) {
		require.NoError(t, r.Err)
	}
	exec(t, url, `UPDATE tenant_acme.wait SET until = now(), order_time = now()
		WHERE until > now() + interval '30 min'`)
	assert.Equal(t, 1, a.run(t, "promote"), "a task that is due")

	require.Zero(t, a.run(t, workJobs...))
	for len(woken) > 0 {
		<-woken
	}
	exec(t, url, `DELETE FROM tenant_acme.ready_1`)
	for len(woken) > 0 {
		<-woken
	}
	require.Zero(t, a.run(t, workJobs...))
	require.Empty(t, woken)
	for _, r := range b.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)}}) {
		require.NoError(t, r.Err)
	}
	assert.Eventually(t, func() bool { // Postgres counts the task within 10 s
		a.run(t, "promote")
		return len(woken) > 0
	}, patience, 100*time.Millisecond, "a task in line")
}

// What Postgres counted may begin anew, as after a crash: then it tells nothing about before.
func TestCountsBeginAnew(t *testing.T) {
	pgtest.NotOnCitus(t, notCounted)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	const tally = `INSERT INTO tenant_acme.tallies (type, at) VALUES ('pipe', now() - interval '9 d')`
	toFold := func() []string {
		tenants, err := b.gov.ToFold(t.Context())
		require.NoError(t, err)
		return tenants
	}
	exec(t, url, tally)
	require.Equal(t, []string{tenant}, toFold())
	for b.run(t, "fold") > 0 {
	}
	assert.Eventually(t, func() bool { // until it is told of its own writes
		b.run(t, "fold")
		return len(toFold()) == 0
	}, patience, 100*time.Millisecond)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(),
		`SELECT pg_stat_reset_single_table_counters('tenant_acme.rolls'::regclass)`)
	require.NoError(t, err)
	assert.Equal(t, []string{tenant}, toFold(), "although the tallies have the same count")
}

// A schedule of another node is found by the version of the tenant's configuration, not a moment
// later; and so is one of a tenant that is no longer suspended.
func TestPlansOfOtherNodes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	a.pipe(t, "pipe")
	b := setup(t, url, "b", governance.Config{})
	require.Zero(t, a.run(t, "schedules", "operations"))
	put := func(name string) {
		s := asyncflow.Schedule{Name: name, Type: "pipe", Context: json.RawMessage(`1`),
			Every:    asyncflow.NewDuration(time.Second),
			StartsAt: b.Clock.Now().Add(-time.Hour).Truncate(time.Second)}.WithDefaults()
		_, _, err := b.PutSchedule(t.Context(), tenant, s)
		require.NoError(t, err)
	}
	ticks := func() bool {
		require.NoError(t, a.Catalog.Refresh(t.Context()))
		return a.run(t, "schedules") > 0
	}
	put("one")
	assert.Eventually(t, ticks, patience, 100*time.Millisecond, "its first tick")
	assert.Eventually(t, ticks, patience, 100*time.Millisecond, "and the next one")
	suspend := func(yes bool) {
		_, err := b.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &yes})
		require.NoError(t, err)
	}
	suspend(true)
	require.NoError(t, a.Catalog.Refresh(t.Context()))
	require.Zero(t, a.run(t, "schedules"))
	exec(t, url, `UPDATE tenant_acme.schedules SET next_at = now() - interval '1 s'`)
	require.Zero(t, a.run(t, "schedules"), "its ticks stay due")
	suspend(false)
	assert.True(t, ticks())
	_, err := b.DeleteTenant(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.NoError(t, a.Catalog.Refresh(t.Context()))
	require.Zero(t, a.run(t, "schedules"))
	_, err = b.RestoreTenant(t.Context(), tenant)
	require.NoError(t, err)
	assert.Eventually(t, ticks, patience, 100*time.Millisecond)

	for _, r := range b.Submit(t.Context(), tenant,
		[]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)}}) {
		require.NoError(t, r.Err)
	}
	_, err = b.StartOperation(t.Context(), tenant,
		store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}})
	require.NoError(t, err)
	require.NoError(t, a.Catalog.Refresh(t.Context()))
	assert.Positive(t, a.run(t, "operations"))
}

// Alerts are evaluated while something is going on, and left alone otherwise.
func TestCalmAlerts(t *testing.T) {
	pgtest.NotOnCitus(t, notCounted)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	_, err := b.PutAlerts(t.Context(), tenant, store.Alerts{
		Endpoint: asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000001",
			URL: "https://x.example.com"},
		Rules: asyncflow.AlertRules{BacklogAge: asyncflow.NewDuration(time.Minute)}})
	require.NoError(t, err)
	evaluates := func() bool {
		exec(t, url, `UPDATE tenant_acme.alerts SET evaluated_at = 'epoch'`)
		b.run(t, "alerts")
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		var did bool
		require.NoError(t, conn.QueryRow(t.Context(),
			`SELECT evaluated_at > 'epoch' FROM tenant_acme.alerts`).Scan(&did))
		return did
	}
	require.True(t, evaluates(), "nobody has yet")
	calm := func() bool { return !evaluates() }
	require.Eventually(t, calm, patience, 100*time.Millisecond)
	exec(t, url, `INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time,
		reason, until) SELECT number, 1, 1, 'only', 1, now() - interval '1 h', 'delay', 'infinity'
		FROM tenant_acme.task_types WHERE name = 'pipe'`)
	assert.True(t, evaluates())
	assert.True(t, evaluates(), "a task waits")
	exec(t, url, `DELETE FROM tenant_acme.wait`)
	assert.True(t, evaluates(), "an episode is open")
	assert.True(t, evaluates())
}
