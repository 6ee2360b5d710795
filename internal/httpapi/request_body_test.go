package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
)

// The server waits for a large body only if its caller may make the call, and such a body is
// allowed in it. Otherwise it keeps only the header and the beginning of the body in memory.
func TestBodiesOfStrangers(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.submitOne()
	lease, completion := b.lease()
	vouch := func(number int64, expiry time.Duration) string {
		return b.keys.CompletionToken(callbacks.Completion{Tenant: "acme",
			Task: asyncflow.NewTaskID("pipe", 1, number), Seq: 1,
			Expiry: time.Now().Add(expiry)})
	}
	forged, expired := vouch(99, time.Hour), vouch(lease.ID.Number, -24*time.Hour)
	callback := "/v1/callbacks/" + lease.ID.String()
	reader := b.newToken("acme", auth.ScopeRead)
	for name, c := range map[string]struct {
		method, path, token string
		length              int
		status              int // 0: the rest of the body is waited for
	}{
		"no token":                 {"POST", "/v1/tasks", "", 70_000, 401},
		"a bad token":              {"POST", "/v1/tasks", "abc", 70_000, 401},
		"a token of another kind":  {"POST", "/v1/tasks", completion, 70_000, 401},
		"a token of another scope": {"POST", "/v1/tasks", reader, 70_000, 403},
		"a token of no such tenant": {"POST", "/v1/tasks", b.newToken("nobody", auth.ScopeSubmit),
			70_000, 403},
		"no path":                    {"POST", "/v1/nothing", b.token, 70_000, 404},
		"an open path":               {"GET", "/healthz", b.token, 70_000, 400},
		"a call that takes no body":  {"GET", "/v1/tasks?type=pipe", reader, 70_000, 400},
		"a deletion":                 {"DELETE", "/v1/task-types/pipe", b.token, 70_000, 400},
		"a small body":               {"POST", "/v1/tasks", "", 65_536, 0},
		"a good token":               {"POST", "/v1/tasks", b.token, 70_000, 0},
		"far over the limit":         {"POST", "/v1/tasks", b.token, 100 << 20, 413},
		"a worker":                   {"POST", callback + "/complete", completion, 70_000, 0},
		"a worker's failure":         {"POST", callback + "/fail", completion, 50_000, 0},
		"a worker's large failure":   {"POST", callback + "/fail", completion, 20 << 20, 413},
		"a worker's heartbeat":       {"POST", callback + "/heartbeat", completion, 20 << 20, 413},
		"a worker that is late":      {"POST", callback + "/complete", expired, 70_000, 401},
		"a small report, late":       {"POST", callback + "/complete", expired, 60_000, 0},
		"a worker of another task":   {"POST", callback + "/complete", forged, 70_000, 401},
		"a caller in its place":      {"POST", callback + "/complete", b.token, 70_000, 401},
		"a worker without a task id": {"POST", "/v1/callbacks/x/complete", completion, 70_000, 400},
	} {
		t.Run(name, func(t *testing.T) {
			conn := b.dial()
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Type: "+
				"application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
				c.method, c.path, c.token, c.length, strings.Repeat(" ", 8<<10))
			within := patience
			if c.status == 0 {
				within = 300 * time.Millisecond
			}
			answers, closed := answersOn(t, conn, within)
			require.Equal(t, c.status != 0, closed)
			if c.status != 0 {
				require.Len(t, answers, 1)
				require.Equal(t, c.status, answers[0].status, "%s", answers[0].body)
			}
			if c.status == 413 {
				require.Equal(t, "too_large", answers[0].problem.Code)
				require.Equal(t, "body", answers[0].problem.Errors[0].Field)
			}
		})
	}
	a := b.callAs(completion, "POST", callback+"/complete",
		`{"output":"`+strings.Repeat("x", 100_000)+`"}`)
	require.Equal(t, 413, a.status)
	require.Equal(t, "output", a.problem.Errors[0].Field,
		"a worker's large body is read, and judged by its field")
	a = b.callAs("", "POST", "/v1/tasks",
		`{"type":"pipe","context":"`+strings.Repeat("x", 100_000)+`"}`)
	require.Equal(t, 401, a.status)
	a = b.call("POST", "/v1/tasks", `{"type":"pipe","context":"`+strings.Repeat("x", 2<<20)+`"}`)
	require.Equal(t, 413, a.status,
		"a body that isn't far over the limit is dropped, and its sender told")
	require.Contains(t, a.problem.Errors[0].Message, "1048576")
}

// The nesting of a whole body is limited, whatever the call.
func TestDeepBodies(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.submitOne()
	lease, completion := b.lease()
	for _, c := range []struct{ method, path, token, format string }{
		{"POST", "/v1/tasks", b.token, `{"type":"pipe","context":%s}`},
		{"POST", "/v1/tasks/batch", b.token, `{"tasks":[{"type":"pipe","context":%s}]}`},
		{"PUT", "/v1/task-types/deep", b.token, `{"stages":%s}`},
		{"POST", "/v1/endpoints", b.token, `{"type":%s}`},
		{"POST", "/v1/callbacks/" + lease.ID.String() + "/complete", completion, `{"output":%s}`},
		{"POST", "/v1/callbacks/" + lease.ID.String() + "/fail", completion, `%s`},
	} {
		for _, pair := range []string{"[]", "{}"} {
			for _, depth := range []int{1001, 50_000, 400_000} {
				if strings.HasSuffix(c.path, "/fail") && depth > 1001 { // refused for its size
					continue
				}
				deep := strings.Repeat(pair[:1], depth) + strings.Repeat(pair[1:], depth)
				if pair == "{}" {
					deep = strings.Repeat(`{"":`, depth) + "0" + strings.Repeat("}", depth)
				}
				if len(deep) > 1_000_000 {
					deep = deep[:1_000_000]
				}
				start := time.Now()
				a := b.callAs(c.token, c.method, c.path, fmt.Sprintf(c.format, deep))
				require.Equal(t, 400, a.status, "%s %d: %.300s", c.path, depth, a.body)
				require.NotEmpty(t, a.problem.Errors)
				require.Equal(t, "body", a.problem.Errors[0].Field, "%s", a.body)
				require.Contains(t, a.problem.Errors[0].Message, "the limit is 1000")
				require.Less(t, time.Since(start), 30*time.Second)
			}
		}
	}
}

// Bodies that are not UTF-8 text are refused, and the error names the field if there is one.
func TestBodiesOfOddBytes(t *testing.T) {
	b := setup(t)
	b.pipe()
	for name, body := range map[string]string{
		"NUL":             "\x00",
		"NUL after":       `{"type":"pipe","context":1}` + "\x00",
		"NUL inside":      "{\"type\":\"pi\x00pe\",\"context\":1}",
		"NUL as escape":   `{"type":"pi\u0000pe","context":1}`,
		"NUL in context":  "{\"type\":\"pipe\",\"context\":\"\x00\"}",
		"NUL in a name":   "{\"ty\x00pe\":\"pipe\",\"context\":1}",
		"not UTF-8":       "\xff\xfe",
		"not in context":  "{\"type\":\"pipe\",\"context\":\"\xc3\x28\"}",
		"not in a name":   "{\"type\xff\":\"pipe\",\"context\":1}",
		"overlong":        "{\"type\":\"pipe\",\"context\":\"\xc0\xaf\"}",
		"a surrogate":     "{\"type\":\"pipe\",\"context\":\"\xed\xa0\x80\"}",
		"UTF-16":          "\xff\xfe{\x00}\x00",
		"UTF-8 with mark": "\xef\xbb\xbf{\"type\":\"pipe\",\"context\":1}",
		"a bomb of names": `{` + strings.Repeat(`"type":"pipe",`, 50_000) + `"context":1}`,
	} {
		a := b.call("POST", "/v1/tasks", body)
		require.Equal(t, 400, a.status, "%s: %s", name, a.body)
		require.NotEmpty(t, a.problem.Errors, name)
		require.NotContains(t, string(a.body), "\x00")
	}
	require.JSONEq(t, `{"data":[]}`, string(b.call("GET", "/v1/tasks?type=pipe", "").body))
}
