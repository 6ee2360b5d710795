package store_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/metrics"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// age makes the tasks of the type pipe older: due for some time, and submitted before.
func (b *bundle) age(due, submitted time.Duration) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), `
		UPDATE tenant_acme.ready_1 SET order_time = now() - $1::interval, since = NULL`, due)
	require.NoError(b.t, err)
	_, err = b.db.Exec(b.t.Context(), `
		UPDATE tenant_acme.task_1 SET created_at = now() - $1::interval`, submitted)
	require.NoError(b.t, err)
}

// startOne leases a task and counts its delivery, as a dispatcher does.
func (b *bundle) startOne() asyncflow.Lease {
	b.t.Helper()
	pipe := b.known()
	l := b.leaseOne(pipe)
	b.CountDeliveries(pipe.Key(), []asyncflow.Delivery{{Lease: l, At: b.Clock.Now()}})
	return l
}

// Stats tell how long tasks were due until they were started, by stage, and how long they took.
func TestTimesOfTasks(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	none := b.stats("pipe")
	assert.Zero(t, none.TypeTimes, "nothing has happened")
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}

	b.submit(newTask(`1`))
	b.age(time.Minute, time.Hour)
	l := b.startOne()
	assert.WithinDuration(t, b.Clock.Now().Add(-time.Minute), l.DueAt, 30*time.Second)
	assert.WithinDuration(t, b.Clock.Now().Add(-time.Hour), l.CreatedAt, 30*time.Second)
	b.settle(b.known(), l, done)
	b.age(10*time.Minute, time.Hour)
	l = b.startOne()
	require.Equal(t, "second", l.Stage)
	assert.WithinDuration(t, b.Clock.Now().Add(-time.Hour), l.CreatedAt, 30*time.Second,
		"also of a later attempt")
	b.settle(b.known(), l, done)
	require.NoError(t, b.WriteMinutes(t.Context()))

	// Another node adds to the same minute, or to the next one.
	b.submit(newTask(`1`), newTask(`2`))
	b.age(time.Minute, 2*time.Hour)
	other := open(t, b.url, "node-2")
	for range 2 {
		pipe := b.known()
		leases, _, err := other.Lease(t.Context(), pipe, 1)
		require.NoError(t, err)
		require.Len(t, leases, 1)
		other.CountDeliveries(pipe.Key(),
			[]asyncflow.Delivery{{Lease: leases[0], At: other.Clock.Now()}})
	}
	require.NoError(t, other.WriteMinutes(t.Context()))

	got := b.stats("pipe")
	near := func(want, got time.Duration) {
		t.Helper()
		assert.InEpsilon(t, want, got, 0.12)
	}
	near(time.Minute, got.Wait.P50)
	near(10*time.Minute, got.Wait.P99)
	require.Len(t, got.StageWaits, 2)
	assert.Equal(t, []string{"first", "second"},
		[]string{got.StageWaits[0].Stage, got.StageWaits[1].Stage})
	near(time.Minute, got.StageWaits[0].P99)
	near(10*time.Minute, got.StageWaits[1].P50)
	near(time.Hour, got.Turnaround.P99)

	// A report by another node, and the end of a lease, know since when a task is there.
	leases, err := b.LeasesOf(t.Context(), b.known(), b.running())
	require.NoError(t, err)
	require.Len(t, leases, 2)
	for _, l := range leases {
		assert.WithinDuration(t, b.Clock.Now().Add(-2*time.Hour), l.CreatedAt, 30*time.Second)
	}
	b.loseAll(b.known(), 2)

	forgotten, err := b.DryRunForgetMinutes(t.Context(), tenant)
	require.NoError(t, err)
	require.Zero(t, forgotten)
	b.exec(`UPDATE tenant_acme.type_minutes SET at = at - interval '61 min'`)
	rows := b.count(`SELECT count(*) FROM tenant_acme.type_minutes`)
	forgotten, err = b.DryRunForgetMinutes(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, rows, forgotten)
	forgotten, err = b.ForgetMinutes(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, rows, forgotten)
	assert.Zero(t, b.stats("pipe").TypeTimes)
}

// running returns the ids of all running tasks of the type pipe.
func (b *bundle) running() (ids []asyncflow.TaskID) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `SELECT id FROM tenant_acme.lease`)
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		id := asyncflow.TaskID{Type: "pipe"}
		require.NoError(b.t, rows.Scan(&id.Number))
		ids = append(ids, id)
	}
	require.NoError(b.t, rows.Err())
	return ids
}

// Cancelled tasks, and tasks of deleted types, count nowhere.
func TestTimesThatDoNotCount(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	ids := b.submit(newTask(`1`), newTask(`2`))
	_, err := b.Cancel(t.Context(), tenant, ids[0].ID, "")
	require.NoError(t, err)
	require.NoError(t, b.WriteMinutes(t.Context()))
	assert.Zero(t, b.stats("pipe").Turnaround)
	l := b.startOne()
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	_, err = b.db.Exec(t.Context(), `DELETE FROM tenant_acme.task_types`)
	require.NoError(t, err)
	require.NoError(t, b.WriteMinutes(t.Context()))
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.type_minutes`))
}

// An attempt shows how long its task was due before.
func TestWaitOfAttempts(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.age(time.Minute, time.Minute)
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.task_1 SET order_time = now() - interval '1 min'`)
	require.NoError(t, err)
	l := b.leaseOne(pipe)
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	require.NotNil(t, task.Run)
	assert.InDelta(t, time.Minute, task.Run.Wait, float64(30*time.Second))
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no",
		Duration: time.Millisecond})
	b.loseAll(pipe, len(b.lease(pipe, 1)))
	all, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	assert.InDelta(t, time.Minute, all[0].Wait, float64(30*time.Second))
	for _, lost := range all[1:] {
		assert.Equal(t, time.Duration(-1), lost.Wait, "it isn't known when it began")
	}
}

// How long a dependent was due isn't known of its first attempt: there is no row for the end of its
// dependencies in its journal. Of later attempts it is.
func TestWaitOfDependents(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0]
	id := b.submit(dependent(byID(other.ID)))[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.comesTo(id, asyncflow.StatusPending)
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Duration: time.Millisecond}
	for n := range 2 {
		l := b.leaseOne(b.known())
		run := b.task(id).Run
		require.NotNil(t, run)
		require.Equal(t, n > 0, run.Wait >= 0, "%s", run.Wait)
		require.Less(t, run.Wait, 30*time.Minute)
		b.settle(b.known(), l, done)
	}
	all, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, time.Duration(-1), all[0].Wait)
	require.GreaterOrEqual(t, all[1].Wait, time.Duration(0))
	require.Less(t, all[1].Wait, 30*time.Minute)
}

// The times of a tenant don't wait for the deletion of a type, and count for all other types.
func TestTimesDoNotWaitForADeletion(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	other := twoStages()
	other.Name = "other"
	b.put(other)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	now := b.Clock.Now()
	for _, name := range []string{"other", "pipe"} {
		b.CountDeliveries(store.TypeKey{Tenant: tenant, Type: name}, []asyncflow.Delivery{
			{Lease: asyncflow.Lease{Stage: "first", DueAt: now.Add(-time.Minute)}, At: now}})
	}
	tx, err := b.db.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(ctx, `SELECT FROM tenant_acme.task_types WHERE name = 'other' FOR UPDATE`)
	require.NoError(t, err)
	require.NoError(t, b.WriteMinutes(ctx))
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.type_minutes
		WHERE type = 'pipe'`))
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.type_minutes WHERE type = 'other'`))
}

// What the two times of a task cost on the hot path, with their histograms for the history and for
// Prometheus: from due to start, one delivery at a time, and from submit to end. There are other
// counts in a settlement, too; "other" is what they cost without the time of an end. The
// processor's time counts, as other programs may run beside.
func BenchmarkTimes(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{URL: pgtest.Database(b, prepare), Node: "n",
		Meter: metrics.New("v1")})
	require.NoError(b, err)
	defer s.Close()
	key := store.TypeKey{Tenant: tenant, Type: "pipe"}
	now := s.Clock.Now()
	l := asyncflow.Lease{Stage: "first", DueAt: now.Add(-time.Second),
		CreatedAt: now.Add(-time.Minute)}
	deliveries := []asyncflow.Delivery{{Lease: l, At: now}}
	done := []asyncflow.Settlement{{Lease: l, Outcome: asyncflow.Outcome{
		Kind: asyncflow.OutcomeDone, Duration: time.Second},
		Verdict: asyncflow.Verdict{Kind: asyncflow.Succeed}}}
	other := slices.Clone(done)
	other[0].Lease.CreatedAt = time.Time{}
	for name, count := range map[string]func(){
		"start": func() { s.CountDeliveries(key, deliveries) },
		"end":   func() { s.CountSettled(key, done) },
		"other": func() { s.CountSettled(key, other) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					count()
				}
			})
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns for how long this process got a processor.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
