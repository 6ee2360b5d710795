package httpapi_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

const alertsBody = `{"url":"https://ops.example.com/x","rules":{"backlog_age":"5m",` +
	`"failure_rate":0.5}}`

// firingAlerts returns what somebody who may only read sees of the alerts.
func (b *bundle) firingAlerts() string {
	b.t.Helper()
	a := b.callAs(b.newToken("acme", auth.ScopeRead), "GET", "/v1/alerts/firing", "")
	require.Equal(b.t, 200, a.status, "%s", a.body)
	return string(a.body)
}

// firing begins two episodes and ends one of them. The other is listed.
func (b *bundle) firing(endpoint string) {
	b.t.Helper()
	assert.JSONEq(b.t, `{"enabled":true,"data":[]}`, b.firingAlerts())
	_, err := b.db.Exec(b.t.Context(), `INSERT INTO tenant_acme.alert_episodes
		(id, endpoint, alert, subject, since, value, bound, resolved_at) VALUES
		('01890a5d-ac96-774b-bcce-b302099a8057', $1::uuid, 'backlog_age', 'pipe',
		  '2026-11-21T10:43:30Z', 400, 300, NULL),
		('01890a5d-ac96-774b-bcce-b302099a8058', $1::uuid, 'failure_rate', 'pipe',
		  '2026-11-21T10:43:30Z', 1, 0.5, '2026-11-21T10:53:30Z')`, endpoint)
	require.NoError(b.t, err)
	assert.JSONEq(b.t, `{"enabled":true,"data":[{"id":"01890a5d-ac96-774b-bcce-b302099a8057",
		"alert":"backlog_age","subject":"pipe","state":"firing","since":"2026-11-21T10:43:30Z",
		"value":400,"limit":300}]}`, b.firingAlerts())
	_, err = b.db.Exec(b.t.Context(), `UPDATE tenant_acme.alert_episodes
		SET alert = 'blocked_key', detail = '{"keys":[{"key":"k\u0001","task":"pipe.1.7",
		"status":"waiting","waits_for":"retry","since":"2026-11-21T10:43:30Z",
		"task_key":"order","user":"u"}],"blocked_keys":9,"task":{"id":"pipe.1.8","key":"k",
		"tags":["eu"],"metadata":{"a":"b"}}}'
		WHERE resolved_at IS NULL`)
	require.NoError(b.t, err)
	assert.JSONEq(b.t, `{"enabled":true,"data":[{"id":"01890a5d-ac96-774b-bcce-b302099a8057",
		"alert":"blocked_key","subject":"pipe","state":"firing","since":"2026-11-21T10:43:30Z",
		"value":400,"limit":300,"keys":[{"key":"k\u0001","task":"pipe.1.7","status":"waiting",
		"waits_for":"retry","since":"2026-11-21T10:43:30Z","task_key":"order","user":"u"}],
		"blocked_keys":9,"task":{"id":"pipe.1.8","key":"k","tags":["eu"],"metadata":{"a":"b"}}}]}`,
		b.firingAlerts())
	manager := b.newToken("acme", auth.ScopeManage)
	assert.Equal(b.t, 403, b.callAs(manager, "GET", "/v1/alerts/firing", "").status)
}

func TestAlerts(t *testing.T) {
	b := setup(t)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/alerts", "").status)
	first := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	assert.True(t, strings.HasPrefix(first.Secret, "whsec_"))
	assert.Equal(t, `{"backlog_age":"5m","failure_rate":0.5}`, text(first.Rules))
	assert.NotNil(t, first.Episodes)
	kind := read[api.TaskType](b, 200, b.call("GET", "/v1/task-types/asyncflow-alerts", ""))
	assert.Equal(t, 1, kind.Version)
	endpoints := func() []api.Endpoint {
		return read[api.EndpointList](b, 200,
			b.call("GET", "/v1/endpoints?type=asyncflow-alerts", "")).Data
	}
	require.Len(t, endpoints(), 1, "seen like any")
	id := endpoints()[0].ID
	sealed := func() string {
		a, err := b.store.Alerts(t.Context(), "acme")
		require.NoError(t, err)
		secret, err := b.keys.Open(a.Endpoint.Secrets[0].Sealed, a.Endpoint.ID)
		require.NoError(t, err)
		return secret
	}
	require.Equal(t, first.Secret, sealed())

	second := read[api.Alerts](b, 200,
		b.call("PUT", "/v1/alerts", `{"url":"https://ops.example.com/y","rules":{"failure_rate":1}}`))
	assert.Empty(t, second.Secret, "the one there is stays, and is not shown")
	assert.Equal(t, []string{id, "https://ops.example.com/y"},
		[]string{endpoints()[0].ID, endpoints()[0].URL})
	assert.Equal(t, first.Secret, sealed())
	own := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	third := read[api.Alerts](b, 200,
		b.call("PUT", "/v1/alerts", `{"url":"https://ops.example.com/y","secret":"`+own+
			`","rules":{"failure_rate":1}}`))
	assert.Equal(t, own, third.Secret)
	assert.Equal(t, own, sealed())
	got := read[api.Alerts](b, 200, b.call("GET", "/v1/alerts", ""))
	assert.Empty(t, got.Secret)
	assert.Equal(t, asyncflow.AlertRules{FailureRate: 1}, got.Rules)

	b.firing(id)

	require.Equal(t, 204, b.call("DELETE", "/v1/alerts", "").status)
	assert.Empty(t, endpoints())
	assert.JSONEq(t, `{"enabled":false,"data":[]}`, b.firingAlerts())
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status)
	again := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	assert.NotEmpty(t, again.Secret)
	require.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+endpoints()[0].ID, "").status)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status,
		"without an endpoint there are none")
	read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	require.Equal(t, 204, b.call("DELETE", "/v1/task-types/asyncflow-alerts", "").status)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status, "nor without the type")
}

// Two concurrent callers leave one complete set-up behind, not half of each.
func TestAlertsAtOnce(t *testing.T) {
	b := setup(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.Equal(t, 200, b.callUntilServed("PUT", "/v1/alerts", alertsBody)) })
	}
	wg.Wait()
	assert.Len(t, read[api.EndpointList](b, 200, b.call("GET", "/v1/endpoints", "")).Data, 1)
}

func TestBadAlerts(t *testing.T) {
	b := setup(t)
	const to = `{"url":"https://ops.example.com/x",`
	for body, field := range map[string]string{
		to + `"rules":{}}`:                                                     "rules",
		to + `"rules":{"failure_attempts":5}}`:                                 "rules",
		to + `"rules":{"backlog_age":"1ms"}}`:                                  "rules.backlog_age",
		to + `"rules":{"backlog_age":"999h","failure_rate":0.5}}`:              "rules.backlog_age",
		`{"url":"http://ops.example.com/x","rules":{"backlog_age":"1m"}}`:      "url",
		`{"url":"https://u:p@ops.example.com/x","rules":{"backlog_age":"1m"}}`: "url",
		to + `"secret":"whsec_x","rules":{"backlog_age":"1m"}}`:                "secret",
		to + `"rules":{"backlog_age":"1m","endpoint_failing":true}}`:           "rules.endpoint_failing",
		to + `"rules":{"failure_rate":0.5,"failure_rate":0.6}}`:                "rules.failure_rate",
		to + `"rules":{"failed_for_good":0}}`:                                  "rules.failed_for_good",
		to + `"rules":{"failed_for_good":1.5}}`:                                "rules.failed_for_good",
		to + `"rules":{"failed_in_total":1000001}}`:                            "rules.failed_in_total",
		to + `"rules":{"failed_for_good":1,"failed_within":"25h"}}`:            "rules.failed_within",
		to + `"rules":{"failed_within":"1h","blocked_key":"1m"}}`:              "rules.failed_within",
		to + `"rules":{"blocked_key":"1ms"}}`:                                  "rules.blocked_key",
		to + `"rules":{"blocked_key":60}}`:                                     "rules.blocked_key",
		to + `"rules":{"long_wait":"1ms"}}`:                                    "rules.long_wait",
		to + `"rules":{"long_wait":"1s","long_wait_within":"2h"}}`:             "rules.long_wait_within",
	} {
		a := b.call("PUT", "/v1/alerts", body)
		require.Equal(t, 400, a.status, "%s", body)
		require.NotEmpty(t, a.problem.Errors, "%s", a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
	}
	assert.Equal(t, "must have at least 1 field",
		b.call("PUT", "/v1/alerts", to+`"rules":{}}`).problem.Errors[0].Message)
	assert.Equal(t, 404, b.call("GET", "/v1/task-types/asyncflow-alerts", "").status,
		"nothing was made")
	read[any](b, 201, b.call("PUT", "/v1/task-types/asyncflow-alerts",
		`{"stages":[{"name":"else"}]}`))
	assert.Equal(t, 409, b.call("PUT", "/v1/alerts", alertsBody).status)
}
