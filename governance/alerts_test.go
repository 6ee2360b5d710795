package governance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const alertEndpoint = "0190a6f0-0000-7000-8000-000000000001"

func (b *bundle) putAlerts(t *testing.T, tenant string, rules asyncflow.AlertRules) {
	t.Helper()
	_, err := b.PutAlerts(t.Context(), tenant, store.Alerts{Rules: rules,
		Endpoint: asyncflow.Endpoint{ID: alertEndpoint, URL: "https://ops.example.com/x"}})
	require.NoError(t, err)
}

// turn makes a node evaluate the rules, as if its turn had come.
func (b *bundle) turn(t *testing.T, url, tenant string) int {
	t.Helper()
	exec(t, url, `UPDATE tenant_`+tenant+`.alerts SET evaluated_at = '-infinity'`)
	n, err := b.jobs["alerts"].Run(t.Context())
	require.NoError(t, err)
	return n
}

type sentNotice struct {
	Alert, State, Type, Stage, Endpoint, Node, Job, Tenant, Episode, Schedule string
	WaitsFor                                                                  string `json:"waits_for"`
	Value, Limit                                                              float64
}

// notices returns the contexts of a tenant's alert tasks, oldest first.
func (b *bundle) notices(t *testing.T, tenant string) []sentNotice {
	t.Helper()
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: asyncflow.AlertType, Limit: 100})
	require.NoError(t, err)
	all := make([]sentNotice, len(list))
	for i, task := range list {
		one, err := b.Task(t.Context(), tenant, task.ID)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(one.Context, &all[len(list)-1-i]))
	}
	return all
}

// There is one notice of an episode when it begins and one when it is over, whichever nodes
// evaluate the rules and however often. It is over when the value is below its limit for a minute.
func TestBacklogAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	a.pipe(t, "pipe")
	a.pipe(t, "other")
	n, err := a.jobs["alerts"].Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "none are set up")
	a.putAlerts(t, tenant, asyncflow.AlertRules{BacklogAge: asyncflow.NewDuration(5 * time.Minute)})
	b := setup(t, url, "b", governance.Config{})
	require.Zero(t, a.turn(t, url, tenant), "all is well")
	due := func(seconds int) { // since when the task of pipe is
		ago := fmt.Sprintf(` = now() - interval '%d s' WHERE `, seconds)
		exec(t, url, `UPDATE tenant_acme.ready_1 SET order_time`+ago+ofType("pipe"))
		exec(t, url, `UPDATE tenant_acme.task_1 SET created_at`+ago+ofType("pipe"))
	}
	for _, name := range []string{"pipe", "other"} {
		for _, r := range a.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{{Type: name, Context: []byte(`1`)}}) {
			require.NoError(t, r.Err)
		}
	}
	due(400)

	exec(t, url, `UPDATE tenant_acme.alerts SET evaluated_at = '-infinity'`)
	rows, err := a.jobs["alerts"].DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []store.Due{{Tenant: tenant, Type: asyncflow.AlertType, Rows: 1}}, rows)
	var wg sync.WaitGroup
	for _, node := range []*bundle{a, b, a, b} {
		wg.Go(func() {
			_, err := node.jobs["alerts"].Run(t.Context())
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.Zero(t, b.turn(t, url, tenant), "it goes on")
	notices := a.notices(t, tenant)
	require.Len(t, notices, 1)
	first := notices[0]
	assert.InDelta(t, 400, first.Value, 30)
	first.Value = 0
	assert.Equal(t,
		sentNotice{Alert: "backlog_age", State: "firing", Type: "pipe", Tenant: tenant, Limit: 300,
			WaitsFor: "endpoint", Episode: first.Episode}, first)

	exec(t, url,
		// a node died right after the submit
		`UPDATE tenant_acme.alert_episodes SET firing_task = NULL`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	require.Len(t, a.notices(t, tenant), 1, "the task is there already")

	due(0)
	require.Zero(t, a.turn(t, url, tenant))
	require.Zero(t, b.turn(t, url, tenant), "not for long enough")
	exec(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	require.Zero(t, a.turn(t, url, tenant))
	notices = a.notices(t, tenant)
	require.Len(t, notices, 2)
	assert.Equal(t, []string{"resolved", first.Episode},
		[]string{notices[1].State, notices[1].Episode})
	assert.Less(t, notices[1].Value, 300.0)
	episodes, err := a.Episodes(t.Context(), tenant)
	require.NoError(t, err)
	require.Len(t, episodes, 1)
	assert.NotEmpty(t, episodes[0].FiringTask)
	assert.NotEmpty(t, episodes[0].ResolvedTask)

	due(400)
	_, err = a.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	require.Zero(t, a.turn(t, url, tenant), "a paused type has no backlog")
	_, err = a.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	require.Equal(t, 1, a.turn(t, url, tenant), "another episode")
	exec(t, url, `UPDATE tenant_acme.alert_episodes SET resolved_at = resolved_at - interval '31 d'`)
	forgotten, err := a.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, forgotten)
}

// One node at a time takes its turn. If it doesn't finish, another node takes over.
func TestAlertTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	a.putAlerts(t, tenant, asyncflow.AlertRules{FailureRate: 0.5})
	_, ours, err := a.TakeAlertTurn(t.Context(), tenant)
	require.NoError(t, err)
	require.True(t, ours)
	_, ours, err = a.TakeAlertTurn(t.Context(), tenant)
	require.NoError(t, err)
	require.False(t, ours)
	exec(t, url, `UPDATE tenant_acme.alerts SET evaluated_at = evaluated_at - interval '10 s'`)
	rules, ours, err := a.TakeAlertTurn(t.Context(), tenant)
	require.NoError(t, err)
	require.True(t, ours)
	assert.Equal(t, 0.5, rules.FailureRate)
	old := []asyncflow.AlertReading{{Alert: asyncflow.AlertFailureRate, Subject: "pipe", Value: 1,
		Limit: 0.5}}
	_, err = a.ObserveAlerts(t.Context(), tenant, old, a.Clock.Now().Add(-time.Minute))
	require.NoError(t, err)
	episodes, err := a.Episodes(t.Context(), tenant)
	require.NoError(t, err)
	assert.Empty(t, episodes, "a node that was held up has nothing to say")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	barrier, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = barrier.Exec(t.Context(), `LOCK TABLE tenant_acme.alert_episodes IN SHARE MODE`)
	require.NoError(t, err)
	outside, err := pgx.Connect(t.Context(), url) // in a transaction, this view stays as first seen
	require.NoError(t, err)
	defer outside.Close(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := a.ObserveAlerts(t.Context(), tenant, old, a.Clock.Now())
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t,
			outside.QueryRow(t.Context(),
				`SELECT count(*) FROM `+pgtest.Activity()+`
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 4
	}, patience, 20*time.Millisecond, "all of them are at it")
	require.NoError(t, barrier.Rollback(t.Context()))
	wg.Wait()
	episodes, err = a.Episodes(t.Context(), tenant)
	require.NoError(t, err)
	assert.Len(t, episodes, 1, "they wait for each other")
}

func TestFailureAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailureRate: 0.5, FailureAttempts: 10})
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, attempts, failures) VALUES
		('pipe', now() - interval '6 min', 1000, 1000), ('pipe', now() - interval '4 min', 5, 4),
		('pipe', now(), 4, 4),
		('asyncflow-alerts', now(), 100, 100)`)
	require.Zero(t, b.turn(t, url, tenant), "too few attempts")
	exec(t, url,
		`INSERT INTO tenant_acme.tallies (type, at, attempts, failures) VALUES ('pipe', now(), 7, 0)`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	got := b.notices(t, tenant)[0]
	assert.Equal(t,
		sentNotice{Alert: "failure_rate", State: "firing", Type: "pipe", Tenant: tenant, Value: 0.5,
			Limit:   0.5,
			Episode: got.Episode}, got)
	exec(t, url,
		`INSERT INTO tenant_acme.tallies (type, at, attempts, failures) VALUES ('pipe', now(), 1, 0)`)
	require.Zero(t, b.turn(t, url, tenant))
	exec(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	assert.InDelta(t, 8.0/17, b.notices(t, tenant)[1].Value, 1e-9)
}

// The minutes of an endpoint show whether it fails, whichever nodes wrote them.
func TestEndpointAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{EndpointFailureRate: 0.5, FailureAttempts: 10})
	bad, good := uuid.NewString(), uuid.NewString()
	for _, id := range []string{bad, good} {
		_, err := b.CreateEndpoint(t.Context(), tenant,
			asyncflow.Endpoint{ID: id, Type: "pipe", Stage: "only",
				URL: "https://worker.example.com/" + id, Weight: 1})
		require.NoError(t, err)
	}
	exec(t, url,
		`INSERT INTO tenant_acme.endpoint_minutes
		SELECT id, now() + m * interval '1 min', 5, CASE WHEN id = '`+bad+`' THEN 3 ELSE 0 END
		FROM tenant_acme.endpoints, generate_series(-4, 0, 4) m WHERE type = 'pipe'`)
	exec(t, url,
		`INSERT INTO tenant_acme.endpoint_minutes SELECT id, now() - interval '70 min', 100, 100
		FROM tenant_acme.endpoints WHERE type = 'pipe'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	got := b.notices(t, tenant)[0]
	assert.Equal(t,
		sentNotice{Alert: "endpoint_failing", State: "firing", Type: "pipe", Stage: "only",
			Endpoint: bad,
			Tenant:   tenant, Value: 0.6, Limit: 0.5, Episode: got.Episode}, got)
	n, err := b.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n, "minutes are kept for an hour")
}

// Alerts on nodes, jobs and rolls go to the operator.
func TestOperatorAlerts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, asyncflow.OperatorTenant, noRoles())
	require.NoError(t, err)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.ownPipe(t, "own")
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailureRate: 0.5})
	b.putAlerts(t, asyncflow.OperatorTenant, asyncflow.AlertRules{})
	exec(t, url,
		`INSERT INTO asyncflow.nodes VALUES ('a', 'governance', 'v1', now() - interval '9 min', now())`)
	require.Zero(t, b.turn(t, url, asyncflow.OperatorTenant), "all is well")
	exec(t, url,
		`INSERT INTO asyncflow.nodes VALUES
		('b', 'dispatcher', 'v1', now() - interval '1 h', now() - interval '61 s'),
		('c', 'api', 'v1', now(), now() - interval '30 s')`)
	require.NoError(t,
		b.ScheduleJobs(t.Context(), map[string]string{"vacuum": governance.Off,
			"fold": "@every 1h"}))
	exec(t, url, `INSERT INTO asyncflow.jobs AS j (name, spec, succeeded_at) VALUES
		('rescue', '@every 3s', now() - interval '11 min'),
		('promote', '@every 10s', now() - interval '9 min'), ('vacuum', 'off', now() - interval '1 d'),
		('fold', '@every 1h', now() - interval '65 min')
		ON CONFLICT (name) DO UPDATE SET succeeded_at = excluded.succeeded_at`)
	for _, set := range b.Catalog.SetsOf(tenant) {
		_, err = b.OpenRoll(t.Context(), set)
		require.NoError(t, err)
	}
	exec(t, url, `UPDATE tenant_acme.rolls SET opened_at = now() - interval '11 min'`)
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	require.Equal(t, 4, b.turn(t, url, asyncflow.OperatorTenant))
	got := map[string]sentNotice{}
	var rolls []string
	for _, n := range b.notices(t, asyncflow.OperatorTenant) {
		got[n.Alert] = n
		if n.Alert == "roll_overdue" {
			rolls = append(rolls, n.Tenant+"/"+n.Type)
		}
	}
	require.Len(t, got, 3)
	assert.Equal(t, "b", got["node_gone"].Node)
	assert.Equal(t, "rescue", got["job_overdue"].Job)
	assert.InDelta(t, 657, got["job_overdue"].Value, 30)
	assert.ElementsMatch(t, []string{"acme/", "acme/own"}, rolls,
		"the shared tables, and those of a type")
	exec(t, url, `UPDATE asyncflow.nodes SET started_at = now() - interval '20 min' WHERE id = 'a'`)
	exec(t, url, `UPDATE asyncflow.jobs SET succeeded_at = NULL WHERE name = 'promote'`)
	require.Greater(t, b.turn(t, url, asyncflow.OperatorTenant), 0,
		"a job that has never ended well")
	jobs := map[string]bool{}
	for _, n := range b.notices(t, asyncflow.OperatorTenant) {
		jobs[n.Job] = true
	}
	assert.True(t, jobs["promote"])
	assert.False(t, jobs["fold"])
	exec(t, url, `DELETE FROM asyncflow.nodes WHERE id = 'b'`)
	b.turn(t, url, asyncflow.OperatorTenant)
	exec(t, url, `UPDATE tenant_asyncflow.alert_episodes SET below = below - interval '1 min'`)
	require.Equal(t, 1, b.turn(t, url, asyncflow.OperatorTenant), "a node that was forgotten")
	assert.Empty(t, b.notices(t, tenant), "no other tenant hears of it")
}
