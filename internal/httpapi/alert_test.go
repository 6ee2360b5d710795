package httpapi_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

const alertsBody = `{"url":"https://ops.example.com/x","rules":{"backlog_age":"5m",` +
	`"failure_rate":0.5}}`

func TestAlerts(t *testing.T) {
	b := setup(t)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/alerts", "").status)
	first := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	assert.True(t, strings.HasPrefix(first.Secret, "whsec_"))
	assert.Equal(t, `{"backlog_age":"5m0s","failure_rate":0.5}`, text(first.Rules))
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

	require.Equal(t, 204, b.call("DELETE", "/v1/alerts", "").status)
	assert.Empty(t, endpoints())
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status)
	again := read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	assert.NotEmpty(t, again.Secret)
	require.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+endpoints()[0].ID, "").status)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status, "without an endpoint there are none")
	read[api.Alerts](b, 200, b.call("PUT", "/v1/alerts", alertsBody))
	require.Equal(t, 204, b.call("DELETE", "/v1/task-types/asyncflow-alerts", "").status)
	assert.Equal(t, 404, b.call("GET", "/v1/alerts", "").status, "nor without the type")
}

// Two concurrent callers leave one complete set-up behind, not half of each.
func TestAlertsAtOnce(t *testing.T) {
	b := setup(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.Equal(t, 200, b.call("PUT", "/v1/alerts", alertsBody).status) })
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
	} {
		a := b.call("PUT", "/v1/alerts", body)
		require.Equal(t, 400, a.status, "%s", body)
		require.NotEmpty(t, a.problem.Errors, "%s", a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
	}
	assert.Equal(t, 404, b.call("GET", "/v1/task-types/asyncflow-alerts", "").status,
		"nothing was made")
	read[any](b, 201, b.call("PUT", "/v1/task-types/asyncflow-alerts", `{"stages":[{"name":"else"}]}`))
	assert.Equal(t, 409, b.call("PUT", "/v1/alerts", alertsBody).status)
}
