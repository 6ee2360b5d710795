package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// The last hour of an endpoint that fails is shown by its minutes and the states of its breaker.
func TestCLIEndpointHistory(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, _ delivery) {
		rw.WriteHeader(http.StatusBadGateway)
	})
	c := node.client()
	w.pipe(t, c, oneStage())
	endpoints, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	id, most := endpoints[0].ID, 3
	_, err = c.UpdateEndpoint(t.Context(), id, client.EndpointPatch{MaxInFlight: &most})
	require.NoError(t, err)
	submitMany(t, c, 20)
	run := clientOf(t, node)
	var h client.EndpointHistory
	require.Eventually(t, func() bool { // minutes are written every 5 s
		h = client.EndpointHistory{}
		require.NoError(t,
			json.Unmarshal([]byte(run(0, "endpoints", "history", id, "-o", "json")), &h))
		return len(h.Minutes) > 0 && len(h.States) > 0
	}, patience, 100*time.Millisecond)
	assert.Equal(t, h.Minutes[0].Failures, h.Minutes[0].Attempts)
	out := run(0, "endpoints", "history", id)
	assert.Regexp(t, `(?m)^MINUTE +ATTEMPTS +FAILURES +P50 +P99 +CODES\n`+
		h.Minutes[0].At.UTC().Format(`2006-01-02T15:04:05\.000Z`)+
		` +(\d+) +\d+ +\S+s +\S+s +\d+ × 502$`, out)
	assert.Regexp(t, `(?m)^stopped +\S+Z +\S+Z +.*502`, out)
	assert.Regexp(t, `\n\nin flight +\d+\n$`, out)
	run(exitNotFound, "endpoints", "history", "nothing")
}

func TestHistoryTables(t *testing.T) {
	t.Parallel()
	history := client.EndpointHistory{
		Minutes: []client.EndpointMinute{
			{At: time.Unix(60, 0), Attempts: 120, Failures: 15,
				Codes:   client.FailureCodes{"timeout": 3, "503": 12},
				Latency: client.Latency{P50Ms: 38.1, P99Ms: 2345.6}},
			{At: time.Unix(120, 0), Attempts: 1}},
		States: []client.EndpointState{
			{State: asyncflow.HealthClosed, Since: time.Unix(70, 0)},
			{State: asyncflow.HealthOpen, Since: time.Unix(60, 0), Until: time.Unix(65, 0),
				Reason: "502\x1b[2J"}},
	}
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v1/endpoints/e/history", r.RequestURI)
		answer(w, 200, history)
	})
	want := `MINUTE                    ATTEMPTS  FAILURES  P50     P99      CODES
1970-01-01T00:01:00.000Z  120       15        38.1ms  2.3456s  12 × 503, 3 × timeout
1970-01-01T00:02:00.000Z  1         0         -       -        -

STATE       SINCE                     UNTIL                     REASON
delivering  1970-01-01T00:01:10.000Z  -                         -
stopped     1970-01-01T00:01:00.000Z  1970-01-01T00:01:05.000Z  502�[2J
`
	require.Equal(t, ran{0, want, ""}, runCLI(t, env, "endpoints", "history", "e"))
	history.InFlight = new(int)
	require.Equal(t, want+"\nin flight  0\n", runCLI(t, env, "endpoints", "history", "e").stdout)
}
