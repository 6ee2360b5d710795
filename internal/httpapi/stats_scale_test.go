package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestScale(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/one",
		`{"stages":[{"name":"only"}],"max_in_flight":2}`).status)
	for range 300 {
		require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"one","context":1}`).status)
	}
	want := api.Scale{Type: "one", Stage: "only", Slots: 2, Backlog: 300,
		Target: asyncflow.NewDuration(time.Minute)}
	assert.Equal(t, want, read[api.Scale](b, 200, b.call("GET", "/v1/stats/one/scale", "")),
		"no more than max_in_flight")
	require.Equal(t, 200, b.call("PUT", "/v1/task-types/one", `{"stages":[{"name":"only"}]}`).status)
	got := read[api.Scale](b, 200,
		b.call("GET", "/v1/stats/one/scale?stage=only&target=10s", ""))
	assert.Equal(t, 30, got.Slots, "300 attempts of a second in 10 s")

	for path, field := range map[string]string{
		"/v1/stats/pipe/scale":                       "stage",
		"/v1/stats/pipe/scale?stage=third":           "stage",
		"/v1/stats/pipe/scale?stage=first&target=0s": "target",
		"/v1/stats/pipe/scale?stage=first&target=2d": "target",
		"/v1/stats/pipe/scale?stage=first&target=x":  "target",
	} {
		a := b.call("GET", path, "")
		require.Equal(t, 400, a.status, path)
		assert.Equal(t, field, a.problem.Errors[0].Field, path)
	}
	assert.Equal(t, 404, b.call("GET", "/v1/stats/nope/scale", "").status)
	assert.Equal(t, 404, b.callAs(b.newToken("other", auth.ScopeRead), "GET",
		"/v1/stats/one/scale", "").status, "another tenant's type")
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeWork), "GET",
		"/v1/stats/one/scale", "").status)
}
