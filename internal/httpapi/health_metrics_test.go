package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/internal/httpapi"
)

func TestMetrics(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write([]byte("up 1\n"))
		})
	})
	a := b.callAs("", "GET", "/metrics", "")
	assert.Equal(t, []any{200, "text/plain; version=0.0.4", "up 1\n"},
		[]any{a.status, a.header.Get("Content-Type"), string(a.body)})
	assert.Equal(t, 400, b.callAs("", "GET", "/metrics?x=1", "").status)
}

// On the API's port, metrics name tenants and types: they are for operators, unless these open
// them.
func TestMetricsForOperators(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.OperatorMetrics = true
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})
	})
	assert.Equal(t, []int{401, 401, 403, 200}, []int{b.callAs("", "GET", "/metrics", "").status,
		b.callAs("x", "GET", "/metrics", "").status, b.call("GET", "/metrics", "").status,
		b.callAs(b.adminToken(), "GET", "/metrics", "").status})
}

func TestMetricsAreOff(t *testing.T) {
	b := setup(t)
	a := b.callAs("", "GET", "/metrics", "")
	assert.Equal(t, 404, a.status)
	assert.Contains(t, a.problem.Detail, "off, or at an address of their own")
}
