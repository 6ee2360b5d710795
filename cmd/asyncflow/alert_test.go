package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// noticed is the content of a notice.
type noticed struct{ Alert, State, Tenant, Type, Node, Episode string }

// notices returns the notices that a receiver got, by task.
func (w *worker) notices(t *testing.T) map[string]noticed {
	t.Helper()
	all := map[string]noticed{}
	for _, d := range w.deliveries() {
		var n noticed
		require.NoError(t, json.Unmarshal(d.Context, &n))
		require.NoError(t, openapi.CheckJSON("AlertNotice", d.Context))
		all[d.ID] = n
	}
	return all
}

// receiver takes alerts. It refuses each one once, so each is sent twice.
func receiver(t *testing.T) *worker {
	return startWorker(t, func(w http.ResponseWriter, _ *http.Request, d delivery) {
		if d.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// A backlog and its end are each reported once by all nodes together, signed, even if a node is
// killed.
func TestAlertsAreSent(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	alertsAreSent(t, amongStrangers(t))
}

func alertsAreSent(t *testing.T, url string) {
	roles, often := "--roles=api,governance", "--job=alerts=@every 1s"
	a, b := startNode(t, url, roles, often), startNode(t, url, roles, often)
	ops := receiver(t)
	env := map[string]string{"ASYNCFLOW_URL": b.url, "ASYNCFLOW_TOKEN": testToken(t),
		"ASYNCFLOW_ENDPOINT_SECRET": testWebhook}
	assert.Equal(t, exitNotFound, runCLI(t, env, "alerts", "get").code)
	assert.Equal(t, ran{exitUsage, "", "asyncflow: alerts need a rule: give --backlog-age, " +
		"--failure-rate, --endpoint-failure-rate, --no-claimers, --dependency-late, " +
		"--failed-for-good, --failed-in-total, --blocked-key, --long-wait or --will-expire\n"},
		runCLI(t, env, "alerts", "set", ops.URL))
	reader := map[string]string{"ASYNCFLOW_URL": b.url,
		"ASYNCFLOW_TOKEN": tokenOf(t, testTenant, auth.ScopeRead)}
	none := ran{0, "ALERT  SUBJECT  STATE  SINCE  RESOLVED  VALUE  LIMIT  WAITS-FOR  KEYS  " +
		"TASK  NOTICES\n",
		"no alerts are set up: see asyncflow alerts set\n"}
	assert.Equal(t, none, runCLI(t, reader, "alerts", "firing"))
	assert.Equal(t, none, runCLI(t, env, "alerts", "list"))
	assert.JSONEq(t, `{"data":[]}`, runCLI(t, env, "alerts", "list", "-o", "json").stdout)
	elsewhere := serveAPI(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	assert.Equal(t, exitNotFound, runCLI(t, elsewhere, "alerts", "list").code)
	r := runCLI(t, env, "alerts", "set", ops.URL, "--no-claimers=120s", "--dependency-late=24h")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `(?m)^no claimers +120s\ndependency late +24h$`,
		runCLI(t, env, "alerts", "get").stdout)
	r = runCLI(t, env, "alerts", "set", ops.URL, "--failed-for-good=3", "--failed-in-total=9",
		"--failed-within=2h", "--blocked-key=15m", "--long-wait=30s", "--long-wait-within=10m")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `(?m)^failed for good +3\nfailed in total +9\nfailed within +2h\n`+
		`blocked key +15m\nlong wait +30s\nlong wait within +10m$`,
		runCLI(t, env, "alerts", "get").stdout)
	r = runCLI(t, env, "alerts", "set", ops.URL, "--backlog-age=1s")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `(?m)^secret +`+testWebhook+`$`, r.stdout)
	assert.Regexp(t, `(?m)^backlog age +1s$`, r.stdout)
	assert.NotContains(t, runCLI(t, env, "alerts", "get").stdout, testWebhook)

	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, b.client(), oneStage())
	ids := submitMany(t, b.client(), 3) // nobody leases them
	episodes := func() (all []client.AlertEpisode) {
		alerts, err := b.client().Alerts(t.Context())
		require.NoError(t, err)
		return alerts.Episodes
	}
	require.Eventually(t, func() bool {
		beginAlertTurn(t, url, testTenant)
		e := episodes()
		return len(e) == 1 && len(e[0].Tasks) == 1
	}, patience, 100*time.Millisecond)
	a.kill()
	startNode(t, url, often)
	awaitAll(t, b.client(), append(ids, episodes()[0].Tasks...))
	for _, list := range []string{runCLI(t, env, "alerts", "list").stdout,
		runCLI(t, reader, "alerts", "firing").stdout} {
		assert.Regexp(t,
			`(?m)^backlog_age +pipe +firing +\S+Z +- +\S+ +1 +capacity +- +pipe\.1\.\d+ `+
				`+asyncflow-alerts\.1\.\d+$`,
			list)
	}
	var firing client.FiringAlerts
	require.NoError(t, json.Unmarshal([]byte(runCLI(t, reader, "alerts", "firing", "-o",
		"json").stdout), &firing))
	assert.Equal(t, client.FiringAlerts{Enabled: true, Data: episodes()}, firing)
	require.Eventually(t, func() bool {
		beginAlertTurn(t, url, testTenant)
		execSQL(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
		return len(episodes()[0].Tasks) == 2
	}, patience, 100*time.Millisecond)
	awaitAll(t, b.client(), episodes()[0].Tasks)

	assert.JSONEq(t, `{"enabled":true,"data":[]}`,
		runCLI(t, reader, "alerts", "firing", "-o", "json").stdout, "the episode is over")

	e, told := episodes()[0], ops.notices(t)
	require.Len(t, told, 2)
	want := noticed{Alert: "backlog_age", State: "firing", Tenant: testTenant, Type: "pipe",
		Episode: e.ID}
	assert.Equal(t, want, told[e.Tasks[0]])
	want.State = "resolved"
	assert.Equal(t, want, told[e.Tasks[1]])
	assert.Len(t, ops.deliveries(), 4, "each twice: the first attempt failed")
	r = runCLI(t, env, "alerts", "delete")
	require.Zero(t, r.code, r.stderr)
	assert.Equal(t, none, runCLI(t, env, "alerts", "list"))
}

// A task that fails for good and blocks its flow key is announced by a signed notice, which names
// the key and the task. When the task was redriven and succeeds, that is announced, too.
func TestABlockedKeyIsAnnounced(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	node := startNode(t, url, "--job=alerts=@every 1s")
	ops := receiver(t)
	var fixed atomic.Bool
	w := startWorker(t, func(w http.ResponseWriter, _ *http.Request, d delivery) {
		if string(d.Context) == `"poison"` && !fixed.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	spec := oneStage()
	spec.Flow = &asyncflow.Flow{Ordered: true, OnFailure: asyncflow.FlowBlock}
	w.pipe(t, node.client(), spec)
	env := map[string]string{"ASYNCFLOW_URL": node.url, "ASYNCFLOW_TOKEN": testToken(t),
		"ASYNCFLOW_ENDPOINT_SECRET": testWebhook}
	r := runCLI(t, env, "alerts", "set", ops.URL, "--blocked-key=1s", "--failed-for-good=1")
	require.Zero(t, r.code, r.stderr)
	var ids []string
	for _, context := range []string{`"poison"`, `"next"`} {
		task, err := node.client().Submit(t.Context(), client.NewTask{Type: "pipe",
			Context: []byte(context), FlowKey: "customer-17", User: "anna"})
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	notice := func(alert, state string) (d struct {
		asyncflow.AlertDetail
		Episode string
	}) {
		t.Helper()
		require.Eventually(t, func() bool {
			beginAlertTurn(t, url, testTenant)
			execSQL(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'
				WHERE alert = 'blocked_key'`)
			for id, n := range ops.notices(t) {
				if n.Alert == alert && n.State == state {
					task, err := node.client().Get(t.Context(), id)
					require.NoError(t, err)
					require.NoError(t, json.Unmarshal(task.Context, &d))
					return true
				}
			}
			return false
		}, patience, 100*time.Millisecond)
		return d
	}
	assert.Equal(t, 3600.0, notice("failed_for_good", "firing").Within)
	n := notice("blocked_key", "firing")
	require.Len(t, n.Keys, 1)
	assert.Equal(t, []any{"customer-17", ids[0], asyncflow.StatusFailed, 1},
		[]any{n.Keys[0].Key, n.Keys[0].Task, n.Keys[0].Status, n.BlockedKeys})
	assert.Regexp(t, `(?m)^blocked_key +pipe +firing .* customer-17 \(`+ids[0]+`, user anna\) +- +asyncflow-`,
		runCLI(t, env, "alerts", "firing").stdout)
	assert.Equal(t, "anna", n.Keys[0].User)
	assert.Equal(t, []string{ids[0], "anna"},
		[]string{notice("failed_for_good", "firing").Task.ID,
			notice("failed_for_good", "firing").Task.User})
	assert.Regexp(t, `(?m)^failed_for_good +pipe +firing .* `+ids[0]+`, user anna +asyncflow-`,
		runCLI(t, env, "alerts", "firing").stdout)
	fixed.Store(true)
	require.Zero(t, runCLI(t, env, "tasks", "redrive", ids[0]).code)
	awaitAll(t, node.client(), ids)
	assert.Equal(t, n.Episode, notice("blocked_key", "resolved").Episode)
}

// beginAlertTurn lets some node evaluate a tenant's rules soon, but not beside one that just does.
func beginAlertTurn(t *testing.T, url, tenant string) {
	t.Helper()
	execSQL(t, url, `UPDATE tenant_`+tenant+`.alerts SET evaluated_at = evaluated_at - interval '1 min'
		WHERE evaluated_at < clock_timestamp() - interval '2 s'`)
}

// The operator gets an alert about a node that is gone, and none about one that is shut down.
func TestOperatorIsTold(t *testing.T) {
	t.Parallel()
	url := database(t)
	ops := receiver(t)
	flags := []string{"--job=alerts=@every 1s", "--alert-url=" + ops.URL,
		"--alert-secret=" + testWebhook}
	a, b := startNode(t, url, flags...), startNode(t, url, flags...)
	stopped := startNode(t, url)
	var victim string
	require.Eventually(t, func() bool {
		r := runCLI(t, map[string]string{"DATABASE_URL": url}, "governance", "status")
		victim = b.node(t)
		return strings.Contains(r.stdout, a.node(t)) && strings.Contains(r.stdout, victim) &&
			strings.Contains(r.stdout, stopped.node(t))
	}, patience, 100*time.Millisecond, "all have written their rows")
	stopped.signal(syscall.SIGTERM)
	require.Zero(t, stopped.wait())
	b.kill()
	execSQL(t, url, `UPDATE asyncflow.nodes SET seen_at = seen_at - interval '1 min' WHERE id = '`+
		victim+`'`)
	var told map[string]noticed
	require.Eventually(t, func() bool {
		beginAlertTurn(t, url, asyncflow.OperatorTenant)
		told = ops.notices(t)
		return len(told) > 0
	}, patience, 100*time.Millisecond)
	require.Len(t, told, 1)
	for _, n := range told {
		assert.Equal(t, noticed{Alert: "node_gone", State: "firing", Node: victim,
			Episode: n.Episode}, n)
	}
	c, err := client.New(a.url, tokenOf(t, asyncflow.OperatorTenant))
	require.NoError(t, err)
	tasks, err := c.List(t.Context(), client.ListParams{Type: asyncflow.AlertType})
	require.NoError(t, err)
	assert.Len(t, tasks.Data, 1, "seen like any task")
}

func TestBadAlertFlags(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none",
		"ASYNCFLOW_SECRET": testSecret, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	for want, set := range map[string][2]string{
		"asyncflow: --alert-url must be an absolute https URL": {"ops", testWebhook},
		"asyncflow: --alert-url must be https": {"http://ops.example.com",
			testWebhook},
		"asyncflow: ASYNCFLOW_ALERT_SECRET must start with whsec_ or whsk_": {"https://ops.example.com",
			""},
		"asyncflow: ASYNCFLOW_ALERT_SECRET must be whsec_ and base64": {"https://ops.example.com",
			"whsec_%"},
	} {
		t.Run(want, func(t *testing.T) {
			env["ASYNCFLOW_ALERT_URL"], env["ASYNCFLOW_ALERT_SECRET"] = set[0], set[1]
			r := runCLI(t, env, "serve")
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, want)
		})
	}
}
