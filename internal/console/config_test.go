package console_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/console"
)

func TestCheckTraceURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "https://tempo.example.com/trace/{trace_id}",
		"http://127.0.0.1:16686/trace/{trace_id}", "https://x/?id={trace_id}&again={trace_id}",
		"https://grafana/explore#%7B%22query%22:%22{trace_id}%22%7D"} {
		require.NoError(t, console.CheckTraceURL(good), good)
	}
	for bad, why := range map[string]string{
		"https://tempo.example.com/trace":                              "has no {trace_id}",
		"https://tempo.example.com/{TRACE_ID}":                         "has no {trace_id}",
		"javascript:alert('{trace_id}')":                               "absolute URL",
		"data:text/html,{trace_id}":                                    "absolute URL",
		"/trace/{trace_id}":                                            "absolute URL",
		"https:///{trace_id}":                                          "absolute URL",
		"https://x/ {trace_id}":                                        "absolute URL",
		"https://x/\n{trace_id}":                                       "absolute URL",
		"https://ann:secret@x/{trace_id}":                              "no user",
		"https://{trace_id}.example.com/":                              "behind the host",
		"https://x/{trace_id}" + strings.Repeat("x", 2000):             "the limit is 2000",
		"https://tempo.example.com:port/" + console.TraceID + "?a=%zz": "absolute URL",
	} {
		err := console.CheckTraceURL(bad)
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), bad)
		require.Contains(t, err.Error(), "trace-url", bad)
		require.Contains(t, err.Error(), why, bad)
		require.NotContains(t, err.Error(), "secret", bad)
	}
}

// Only callers learn where traces are.
func TestTraceURLOfASession(t *testing.T) {
	const template = "https://tempo.example.com/trace/{trace_id}"
	b := setup(t, func(cfg *console.Config) { cfg.TraceURL = template })
	require.NotContains(t, string(b.do("GET", "/console/session", own).body), "tempo")
	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+b.token))
	require.Equal(t, 200, a.status)
	require.Contains(t, string(a.body), `"trace_url":"`+template+`"`)
}
