package metrics_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/metrics"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const tenant = "acme"

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant, store.WithoutRoles(pgtest.NoRoles()))
	return err
}

// scrape returns the samples by series, as Prometheus would read them.
func scrape(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain; version=0.0.4")
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.SplitSeq(string(body), "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			all[line[:i]] = line[i+1:]
		}
	}
	return all
}

func settlement(
	kind asyncflow.OutcomeKind, verdict asyncflow.VerdictKind, took time.Duration,
) *asyncflow.Settlement {
	return &asyncflow.Settlement{Outcome: asyncflow.Outcome{Kind: kind, Duration: took},
		Verdict: asyncflow.Verdict{Kind: verdict}}
}

// However many ask, the metrics are read by one at a time. All who wait for a reading share it.
func TestReadingsAreShared(t *testing.T) {
	t.Parallel()
	const callers = 200
	m := metrics.New("v1")
	var asked, under, readings atomic.Int64
	all := make(chan struct{})
	m.InFlight(func() int {
		defer under.Add(-1)
		assert.Equal(t, int64(1), under.Add(1))
		<-all
		return int(readings.Add(1))
	}, 1)
	handler := m.Handler()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if asked.Add(1) == callers {
				close(all)
			}
			assert.Contains(t, scrape(t, handler), "asyncflow_in_flight_tasks")
		})
	}
	wg.Wait()
	assert.Less(t, readings.Load(), int64(callers))
}

// The number of series is bounded: types beyond some are counted together.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			one := m.Type(store.TypeKey{Tenant: tenant, Type: fmt.Sprintf("t%d", i)})
			one.Submitted(2)
			one.Settled(settlement(asyncflow.OutcomeFailed, asyncflow.Retry, time.Second),
				time.Now())
			one.Started("first", time.Second)
		})
	}
	wg.Wait()
	series := scrape(t, m.Handler())
	types, sum := 0, 0
	for name, value := range series {
		if strings.HasPrefix(name, "asyncflow_submitted_tasks_total") &&
			!strings.Contains(name, `type=""`) {
			types++
			assert.Equal(t, "2", value)
			sum += 2
		}
	}
	assert.Equal(t, 200, types)
	assert.Equal(t, "1600", series[`asyncflow_submitted_tasks_total{tenant="",type=""}`])
	assert.Equal(t, "800", series[`asyncflow_attempts_total{outcome="failed",tenant="",type=""}`])
	assert.Equal(t, "800", series[`asyncflow_delivery_duration_seconds_count{tenant="",type=""}`])
	assert.Equal(t, 400, sum)
	assert.Equal(t, "800", series[`asyncflow_wait_seconds_count{stage="",tenant="",type=""}`])
	assert.Less(t, len(series), 14000)
}

// So are the stages of a type. A type that lost its labels counts no more.
func TestStageLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	one := m.Type(store.TypeKey{Tenant: tenant, Type: "pipe"})
	for i := range 100 {
		one.Started(fmt.Sprintf("s%d", i), time.Minute)
	}
	stages, sum := 0, 0
	for name, value := range scrape(t, m.Handler()) {
		if strings.HasPrefix(name, "asyncflow_wait_seconds_count") {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			stages++
			sum += n
		}
	}
	assert.Equal(t, 6, stages, "five, and the rest")
	assert.Equal(t, 100, sum)
}

// One after the other: what the store does is counted, once, by how it came to pass.
func TestWhatHappensIsCounted(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	m := metrics.New("v1")
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "a", Meter: m,
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	m.Watch(s)
	m.InFlight(func() int { return 7 }, 1024)
	series := scrape(t, m.Handler()) // before there is anything
	assert.Equal(t, "1", series["asyncflow_database_up"])
	_, _, err = s.PutTaskType(t.Context(), tenant,
		asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{
			{Name: "only", Retry: asyncflow.RetryPolicy{MaxAttempts: 2,
				Interval: asyncflow.Seconds(-3600)}}}}.WithDefaults())
	require.NoError(t, err)
	pipe, err := s.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	task := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
	keyed, unknown := task, task
	keyed.Options.Key, unknown.Type = "k", "nope"
	c.Submit(t.Context(), tenant, []asyncflow.NewTask{task, task, task, task, keyed, unknown})
	c.Submit(t.Context(), tenant, []asyncflow.NewTask{keyed})
	leases, _, err := s.Lease(t.Context(), pipe, 4)
	require.NoError(t, err)
	require.Len(t, leases, 4)
	settle := func(l asyncflow.Lease, o asyncflow.Outcome) {
		done := make(chan store.Settled, 1)
		c.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o, s.Clock.Now())},
			func(r store.Settled) { done <- r })
		<-done
	}
	settle(leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Duration: 20 * time.Millisecond})
	settle(leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Duration: 20 * time.Millisecond})
	settle(leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Duration: time.Second})
	settle(leases[1], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Duration: 2 * time.Second})
	settle(leases[2], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Duration: 3 * time.Second})
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(context.Background())
	exec := func(sql string) {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	n, err := s.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	report := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	for range 2 { // the worker of the lost one reports after all, twice
		_, taken, err := s.SettleLate(t.Context(), pipe, leases[3].ID, leases[3].Seq, report)
		require.NoError(t, err)
		require.True(t, taken)
	}
	exec(`UPDATE tenant_acme.ready_1 SET order_time = now() - interval '50 s'`)
	exec(`UPDATE tenant_acme.task_1 SET created_at = now() - interval '50 s'`)
	require.NoError(t, s.RecordJob(t.Context(),
		store.JobRun{Name: "rescue", Spec: "@every 3s", Started: s.Clock.Now(),
			Duration: time.Second, Error: "no"}, 3))
	require.NoError(t, s.RecordJob(t.Context(), store.JobRun{Name: "promote", Spec: "@every 10s",
		Started: s.Clock.Now().Add(-time.Hour), Duration: time.Second}, 0))
	exec(`INSERT INTO asyncflow.nodes VALUES ('a', 'api', 'v1', now(), now()), ('b', 'api', 'v1', ` +
		`now(), now() - interval '1 h')`)
	_, err = s.PutAlerts(t.Context(), tenant,
		store.Alerts{Endpoint: asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000001",
			URL: "https://x.example.com"}})
	require.NoError(t, err)
	_, err = s.ObserveAlerts(t.Context(), tenant,
		[]asyncflow.AlertReading{{Alert: asyncflow.AlertBacklogAge, Subject: "pipe", Value: 2,
			Limit: 1}},
		s.Clock.Now())
	require.NoError(t, err)

	again := scrape(t, m.Handler())
	assert.Empty(t, again[`asyncflow_tasks{status="pending",tenant="acme",type="pipe"}`],
		"what was read is shown again for a while")
	fresh := metrics.New("v1")
	fresh.Watch(s)
	stored := scrape(t, fresh.Handler())
	for series, want := range map[string]string{
		`asyncflow_submitted_tasks_total{tenant="acme",type="pipe"}`:                       "5",
		`asyncflow_attempts_total{outcome="done",tenant="acme",type="pipe"}`:               "2",
		`asyncflow_attempts_total{outcome="failed",tenant="acme",type="pipe"}`:             "1",
		`asyncflow_attempts_total{outcome="rejected",tenant="acme",type="pipe"}`:           "1",
		`asyncflow_attempts_total{outcome="lost",tenant="acme",type="pipe"}`:               "1",
		`asyncflow_attempts_total{outcome="released",tenant="acme",type="pipe"}`:           "0",
		`asyncflow_finished_tasks_total{status="succeeded",tenant="acme",type="pipe"}`:     "2",
		`asyncflow_finished_tasks_total{status="failed",tenant="acme",type="pipe"}`:        "1",
		`asyncflow_delivery_duration_seconds_count{tenant="acme",type="pipe"}`:             "3",
		`asyncflow_delivery_duration_seconds_bucket{tenant="acme",type="pipe",le="0.025"}`: "1",
		`asyncflow_delivery_duration_seconds_bucket{tenant="acme",type="pipe",le="2.5"}`:   "2",
		`asyncflow_in_flight_tasks`:                       "7",
		`asyncflow_in_flight_tasks_max`:                   "1024",
		`asyncflow_pool_connections_max{pool="hot-pool"}`: "4",
		`asyncflow_build_info{version="v1"}`:              "1",
	} {
		t.Run(series, func(t *testing.T) {
			assert.Equal(t, want, again[series], series)
		})
	}
	for series, want := range map[string]string{
		`asyncflow_tasks{status="waiting",tenant="acme",type="pipe"}`:              "1",
		`asyncflow_tasks{status="pending",tenant="acme",type="pipe"}`:              "1",
		`asyncflow_tasks{status="running",tenant="acme",type="pipe"}`:              "0",
		`asyncflow_job_consecutive_failures{background_job="rescue"}`:              "3",
		`asyncflow_job_duration_seconds{background_job="rescue"}`:                  "1",
		`asyncflow_job_last_success_timestamp_seconds{background_job="rescue"}`:    "0",
		`asyncflow_job_overdue_seconds{background_job="rescue"}`:                   "0",
		`asyncflow_nodes{state="alive"}`:                                           "1",
		`asyncflow_nodes{state="gone"}`:                                            "1",
		`asyncflow_alert_firing{alert="backlog_age",subject="pipe",tenant="acme"}`: "1",
		`asyncflow_backlog_tasks{tenant="acme",type="pipe",waits_for="endpoint"}`:  "1",
	} {
		t.Run(series, func(t *testing.T) {
			assert.Equal(t, want, stored[series], series)
		})
	}
	assert.Regexp(t, `^5\d(\.\d+)?$`,
		stored[`asyncflow_oldest_due_seconds{tenant="acme",type="pipe"}`])
	assert.Regexp(t, `^5\d(\.\d+)?$`,
		stored[`asyncflow_backlog_oldest_due_seconds{tenant="acme",type="pipe",waits_for="endpoint"}`])
	assert.Regexp(t, `^35[89]\d(\.\d+)?$`,
		stored[`asyncflow_job_overdue_seconds{background_job="promote"}`])
	assert.NotEmpty(t, again["go_goroutines"])
	for name := range again {
		assert.NotContains(t, name, "nope", "a type that isn't one makes no series")
	}
}

// Expired tasks are counted beside the failed ones that they also are.
func TestExpiredTasksAreCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	pipe := m.Type(store.TypeKey{Tenant: tenant, Type: "pipe"})
	expired := settlement(asyncflow.OutcomeExpired, asyncflow.Fail, 0)
	expired.Verdict.Expired = true
	late := settlement(asyncflow.OutcomeDone, asyncflow.Fail, time.Second)
	late.Verdict.Expired = true
	for _, s := range []*asyncflow.Settlement{expired, late,
		settlement(asyncflow.OutcomeRejected, asyncflow.Fail, time.Second)} {
		pipe.Settled(s, time.Now())
	}
	series := scrape(t, m.Handler())
	assert.Equal(t, "2", series[`asyncflow_expired_tasks_total{tenant="acme",type="pipe"}`])
	assert.Equal(t, "3",
		series[`asyncflow_finished_tasks_total{status="failed",tenant="acme",type="pipe"}`])
}

// A tenant with locked tables loses its own series, and nobody else's.
func TestTenantThatCannotBeRead(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "locked",
		store.WithoutRoles(pgtest.NoRoles()))
	require.NoError(t, err)
	m := metrics.New("v1")
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "a", Meter: m,
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	m.Watch(s)
	for _, name := range []string{tenant, "locked"} {
		_, _, err = s.PutTaskType(t.Context(), name, asyncflow.TaskType{Name: "pipe",
			Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
		require.NoError(t, err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE tenant_locked.wait`)
	require.NoError(t, err)
	series := scrape(t, m.Handler())
	assert.Equal(t, "1", series["asyncflow_database_up"])
	assert.Equal(t, "1", series["asyncflow_unread_tenants"])
	assert.Contains(t, series, `asyncflow_tasks{status="waiting",tenant="acme",type="pipe"}`)
	assert.NotContains(t, series, `asyncflow_tasks{status="waiting",tenant="locked",type="pipe"}`)
	assert.Contains(t, series, `asyncflow_nodes{state="alive"}`)
}

// Without the database the rest is still told.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	s, err := store.Open(t.Context(),
		store.Config{URL: pgtest.Database(t, prepare), Node: "a", Meter: m,
			NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	m.Watch(s)
	s.Close()
	series := scrape(t, m.Handler())
	assert.Equal(t, "0", series["asyncflow_database_up"])
	assert.NotEmpty(t, series["go_goroutines"])
}

// What a settlement costs on the hot path.
func BenchmarkSettled(b *testing.B) {
	m := metrics.New("v1").Type(store.TypeKey{Tenant: tenant, Type: "pipe"})
	s := settlement(asyncflow.OutcomeDone, asyncflow.Succeed, 20*time.Millisecond)
	for b.Loop() {
		m.Settled(s, s.Lease.CreatedAt)
	}
}
