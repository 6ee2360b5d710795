package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// slow is how long the worker of failing takes for an answer.
const slow = 300 * time.Millisecond

// failing makes a task type with a worker that answers slowly with 500, and returns its endpoint.
func (p *page) failing(name string) client.Endpoint {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "only", Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	require.NoError(p.t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var challenge struct{ Type, Challenge string }
		if json.NewDecoder(r.Body).Decode(&challenge) == nil && challenge.Type != name {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]string{"challenge": challenge.Challenge})
			return
		}
		time.Sleep(slow)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	p.t.Cleanup(server.Close)
	e, err := p.api.CreateEndpoint(p.t.Context(), client.NewEndpoint{Type: name, Stage: "only",
		URL: server.URL, MaxInFlight: 20})
	require.NoError(p.t, err)
	return e
}

// answering makes a task type with one stage; its endpoint answers each delivery with a status. Its
// tasks are retried at once, and often.
func (p *page) answering(name string, status func() int) client.Endpoint {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "only", Retry: client.RetryPolicy{MaxAttempts: 100,
			Interval: asyncflow.Seconds(1)}}}})
	require.NoError(p.t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Challenge string }
		w.Header().Set("Content-Type", "application/json")
		if json.NewDecoder(r.Body).Decode(&body) == nil && body.Challenge != "" {
			_ = json.NewEncoder(w).Encode(map[string]string{"challenge": body.Challenge})
			return
		}
		w.WriteHeader(status())
		_, _ = w.Write([]byte("{}"))
	}))
	p.t.Cleanup(server.Close)
	e, err := p.api.CreateEndpoint(p.t.Context(), client.NewEndpoint{Type: name, Stage: "only",
		URL: server.URL})
	require.NoError(p.t, err)
	return e
}

// The pages show how an endpoint that fails slowly does: failures by code, latency, tasks in flight
// and the states of its circuit breaker.
func TestEndpointThatFails(t *testing.T) {
	p := openPage(t, all...)
	e := p.failing("broken")
	p.open("/console/endpoints/" + e.ID)
	p.See("There were no attempts.")
	p.See("In flight now: 0 of at most 20")
	for range asyncflow.FailuresToOpen {
		p.submit("broken", `1`, client.StatusFailed)
	}
	h, err := p.api.EndpointHistory(t.Context(), e.ID)
	require.NoError(t, err)
	require.Zero(t, *h.InFlight, "all have ended")
	chart := `document.querySelector("svg[role=img]")`
	p.Run(`return ` + chart + `?.getAttribute("aria-label").endsWith("` + fmt.Sprintf(
		"%d in all, of which %[1]d failed", asyncflow.FailuresToOpen) + `")`)
	row := func(begin string) string {
		return `words([...document.querySelectorAll("tbody tr")].find(r => words(r).startsWith("` +
			begin + `")))`
	}
	p.Run(`return ` + row("503 ") + ` === "503 10"`)
	p.Run(`return ` + row("stopped") + `.includes("503 Service")`)
	tookLong := `.match(/(2[7-9]|[3-9]\d)\d( ms)? \/ \d|\d(\.\d)? s \/ \d|` +
		`\d(\.\d)? \/ [\d.]+ s/)`
	p.Run(`return !!words(document.querySelector("main"))` + tookLong)
	p.Click("As a table")
	p.Run(`return !!words(document.querySelector("[aria-label='Attempts per minute']"))` + tookLong)
	p.open("/console/endpoints?type=broken")
	p.Run(`return !!` + row(e.URL) + tookLong)
	p.open("/console/types/broken")
	p.Run(`return !!words(document.querySelector("main"))` + tookLong)
	p.open("/console")
	p.Run(`return !!` + row("broken") + tookLong)
	p.open("/console/endpoints/" + e.ID)
	p.See("503 Service")
	require.Empty(t, p.axe())
	p.quiet()
}
