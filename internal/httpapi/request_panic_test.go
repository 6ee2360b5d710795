package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// brokenLog panics when something is logged.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool { return true }

func (brokenLog) Handle(context.Context, slog.Record) error { panic("the log is full") }

// A panic is a 500 for its caller and doesn't affect others, even outside of the handlers: here, in
// the log of the first panic.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]*slog.Logger{"in a handler": slog.New(slog.DiscardHandler),
		"in the answer to it": slog.New(brokenLog{slog.DiscardHandler})} {
		t.Run(name, func(t *testing.T) {
			b := setupWith(t, func(c *httpapi.Config) {
				c.Log = log
				c.Metrics = http.HandlerFunc(func(http.ResponseWriter,
					*http.Request) {
					panic("secret reason")
				})
			})
			for range 3 {
				a := b.callAs("", "GET", "/metrics", "")
				require.Equal(t, 500, a.status)
				require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
				require.Equal(t, "internal", a.problem.Code)
				require.NotContains(t, string(a.body), "secret reason")
				require.Equal(t, 200,
					b.callAs(b.newToken("acme", auth.ScopeRead), "GET", "/v1/task-types",
						"").status)
			}
		})
	}
}
