package governance_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// refusing admits nothing to an endpoint: it is for a lease that files what is due.
type refusing asyncflow.WaitReason

func (r refusing) Capacity(string) int { return 0 }
func (r refusing) Admit(string) (string, asyncflow.WaitReason) {
	return "",
		asyncflow.WaitReason(r)
}
func (r refusing) AdmitKey(string) bool                         { return true }
func (r refusing) admission(store.InFlight) (a store.Admission) { return r }

// held submits n tasks that were due 400 s ago, and makes them held.
func (b *bundle) held(t *testing.T, url string, pipe *store.Type, n int, why asyncflow.WaitReason) {
	t.Helper()
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: pipe.Name, Context: []byte(`1`)}
	}
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	exec(t, url, `UPDATE tenant_acme.ready_1 SET order_time = now() - interval '400 s'`)
	g, err := b.LeaseLimited(t.Context(), pipe, n, refusing(why).admission)
	require.NoError(t, err)
	require.True(t, g.Filed)
	require.Empty(t, g.Leases)
}

func (b *bundle) endpoint(t *testing.T, stage string) asyncflow.Endpoint {
	t.Helper()
	e, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: uuid.NewString(), Type: "pipe", Stage: stage,
			URL: "https://worker.example.com/", Weight: 1})
	require.NoError(t, err)
	return e
}

// byAlert returns the notices of a state by their alert.
func (b *bundle) byAlert(t *testing.T, state string) map[string]sentNotice {
	t.Helper()
	all := map[string]sentNotice{}
	for _, n := range b.notices(t, tenant) {
		if n.State == state {
			all[n.Alert] = n
		}
	}
	return all
}

// Alerts report a dead worker although hardly any attempts are made, and while its circuit breaker
// is open although none are. Tasks that wait for it count as due.
func TestAlertsOfADeadWorker(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	e := b.endpoint(t, "only")
	b.putAlerts(t, tenant,
		asyncflow.AlertRules{BacklogAge: asyncflow.NewDuration(5 * time.Minute), FailureRate: 0.5,
			EndpointFailureRate: 0.5})
	b.held(t, url, pipe, 600, asyncflow.WaitUnhealthy)
	var health asyncflow.Health
	change := func(to asyncflow.Health) {
		t.Helper()
		set, err := b.SetHealth(t.Context(), tenant, e.ID, health, to)
		require.NoError(t, err)
		require.True(t, set)
		known, err := b.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		health = known.AllEndpoints()[0].Health
	}
	now := b.Clock.Now()
	change(asyncflow.Health{State: asyncflow.HealthOpen, Since: now,
		Until: now.Add(asyncflow.FirstOpen),
		Pause: asyncflow.FirstOpen, Reason: "connection refused"})
	exec(t, url,
		`INSERT INTO tenant_acme.endpoint_minutes SELECT id, now(), 10, 4 FROM tenant_acme.endpoints
		WHERE type = 'pipe'`)
	exec(t, url,
		`INSERT INTO tenant_acme.tallies (type, at, attempts, failures) VALUES ('pipe', now(), 10, 10)`)
	require.Equal(t, 3, b.turn(t, url, tenant))
	firing := b.byAlert(t, "firing")
	assert.InDelta(t, 400, firing["backlog_age"].Value, 60)
	assert.Equal(t, "endpoint_unhealthy", firing["backlog_age"].WaitsFor)
	assert.Equal(t, []any{1.0, 0.4}, // the share that failed, although it gets nothing
		[]any{firing["failure_rate"].Value, firing["endpoint_failing"].Value})
	assert.Equal(t, e.ID, firing["endpoint_failing"].Endpoint)

	calm := func() int {
		t.Helper()
		b.turn(t, url, tenant)
		exec(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
		return b.turn(t, url, tenant)
	}
	exec(t, url, `DELETE FROM tenant_acme.endpoint_minutes`)
	exec(t, url, `DELETE FROM tenant_acme.tallies WHERE attempts > 0`)
	require.Zero(t, calm(), "no attempts are made: nothing is better")
	at := b.Clock.Now()
	change(asyncflow.Health{State: asyncflow.HealthOpen, Since: at, Until: at.Add(time.Hour),
		Pause: health.Pause})
	require.Zero(t, calm(), "it asks for time")
	change(asyncflow.Health{State: asyncflow.HealthClosed, Since: at})
	require.Equal(t, 2, calm(), "it is well")
	require.NotContains(t, b.byAlert(t, "resolved"), "backlog_age", "what waited still does")

	at = b.Clock.Now()
	change(asyncflow.Health{State: asyncflow.HealthOpen, Since: at, Until: at.Add(time.Hour)})
	require.Zero(t, calm(), "an endpoint that asks for time doesn't fail")
	change(asyncflow.Health{State: asyncflow.HealthDisabled, Since: at, Reason: "HTTP 410"})
	require.Equal(t, 1, b.turn(t, url, tenant))
	require.Equal(t, "endpoint_failing", b.notices(t, tenant)[5].Alert)
}

// A stage with due tasks and no endpoint that gets deliveries fires an alert.
func TestEndpointMissingAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailureRate: 0.5})
	require.Zero(t, b.turn(t, url, tenant), "nothing is due")
	b.held(t, url, pipe, 3, asyncflow.WaitEndpoint)
	require.Equal(t, 1, b.turn(t, url, tenant))
	got := b.byAlert(t, "firing")["endpoint_missing"]
	assert.InDelta(t, 400, got.Value, 60)
	got.Value = 0
	assert.Equal(t,
		sentNotice{Alert: "endpoint_missing", State: "firing", Type: "pipe", Stage: "only",
			Tenant:   tenant,
			WaitsFor: "endpoint",
			Limit:    60, Episode: got.Episode}, got)
	episodes, err := b.Episodes(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.WaitEndpoint, episodes[0].WaitsFor)

	b.endpoint(t, "only")
	require.Zero(t, b.turn(t, url, tenant))
	exec(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
	require.Equal(t, 1, b.turn(t, url, tenant), "it has one now")
}

// An alert fires when tasks of a claimed stage are due and nobody asks for any, and ends when
// somebody asks.
func TestNoClaimersAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.putAlerts(t, tenant, asyncflow.AlertRules{NoClaimers: asyncflow.NewDuration(5 * time.Minute)})
	judge := asyncflow.TaskType{Name: "judge", Stages: []asyncflow.Stage{
		{Name: "look", Mode: asyncflow.ModeClaim}}}.WithDefaults()
	_, _, err := b.PutTaskType(t.Context(), tenant, judge)
	require.NoError(t, err)
	for range 2 {
		r := b.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{{Type: "judge", Context: []byte(`1`)}})
		require.NoError(t, r[0].Err)
	}
	exec(t, url, `UPDATE tenant_acme.wait SET order_time = now() - interval '400 s'`)
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	stored, err := b.Catalog.Type(tenant, "judge")
	require.NoError(t, err)
	_, err = b.LeaseForClaims(t.Context(), stored, "look", []*store.ClaimAsk{ask}, 1, 1<<20)
	require.NoError(t, err)
	require.Zero(t, b.turn(t, url, tenant), "somebody has just asked")
	exec(t, url, `UPDATE tenant_acme.claim_stages SET asked_at = now() - interval '301 s'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	got := b.byAlert(t, "firing")["no_claimers"]
	assert.Equal(t, []any{"judge", "look", 300.0}, []any{got.Type, got.Stage, got.Limit})
	assert.InDelta(t, 302, got.Value, 60)
}

// One alert fires when a task waits long for others, by its rule, and one when a schedule can't
// submit its task, without any.
func TestAlertsOfDependenciesAndSchedules(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.putAlerts(t, tenant,
		asyncflow.AlertRules{DependencyLate: asyncflow.NewDuration(5 * time.Minute)})
	_, _, err := b.PutSchedule(t.Context(), tenant, asyncflow.Schedule{Name: "nightly",
		Type: pipe.Name, Context: []byte(`1`), Cron: "@daily"}.WithDefaults())
	require.NoError(t, err)
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
		DependsOn: []asyncflow.Dependency{{Type: "pipe", Key: "never"}}}})
	require.NoError(t, r[0].Err)
	require.Zero(t, b.turn(t, url, tenant))
	exec(t, url, `UPDATE tenant_acme.wait SET order_time = now() - interval '400 s', since = NULL`)
	exec(t, url, `UPDATE tenant_acme.schedules SET last_error = 'no', failed_at = now() - interval '61 s'`)
	require.Equal(t, 2, b.turn(t, url, tenant))
	firing := b.byAlert(t, "firing")
	assert.Equal(t, "pipe", firing["dependency_late"].Type)
	assert.InDelta(t, 400, firing["dependency_late"].Value, 60)
	assert.Equal(t, "nightly", firing["schedule_failing"].Schedule)
	assert.InDelta(t, 61, firing["schedule_failing"].Value, 60)
}
