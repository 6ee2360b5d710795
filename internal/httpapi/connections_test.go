package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// dribble sends a text byte by byte until it is sent or the server closes.
func dribble(c net.Conn, text string) {
	for i := 0; ; i = min(i+1, len(text)-1) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A request that comes a byte at a time is cut off once its time is over, however many
// of them there are, and in the meantime others are served.
func TestSlowRequests(t *testing.T) {
	const limit = 3 * time.Second
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.ReadTimeout = limit })
	post := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer " + b.token + "\r\n"
	type cut struct {
		name  string
		after time.Duration
		last  []answer
	}
	const each = 20
	kinds := map[string][2]string{ // what is sent at once, and what byte by byte
		"nothing":        {"", ""},
		"half a line":    {"GET /hea", ""},
		"header":         {"GET /healthz HTTP/1.1\r\nX: ", "x"},
		"headers":        {"GET /healthz HTTP/1.1\r\n", "X: y\r\n"},
		"body":           {post + "Content-Length: 50000\r\n\r\n", "{"},
		"large body":     {post + "Content-Length: 500000\r\n\r\n", "{"},
		"chunks":         {post + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n{\r\n"},
		"chunk's extras": {post + "Transfer-Encoding: chunked\r\n\r\n1;", "x"},
		"after continue": {post + "Expect: 100-continue\r\nContent-Length: 50000\r\n\r\n", "{"},
	}
	cuts := make(chan cut, each*len(kinds))
	for name, kind := range kinds {
		for range each {
			start := time.Now()
			c := b.dial()
			go func() {
				io.WriteString(c, kind[0])
				if kind[1] != "" {
					go dribble(c, strings.Repeat(kind[1], 1000))
				}
				answers, _ := answersOn(t, c, 10*limit)
				cuts <- cut{name, time.Since(start), answers}
			}()
		}
	}
	for range 10 {
		require.Equal(t, 200, b.callAs("", "GET", "/healthz", "").status)
	}
	require.Less(t, len(cuts), cap(cuts), "others are served while those are waited for")
	for range cap(cuts) {
		c := <-cuts
		assert.GreaterOrEqual(t, c.after, limit, c.name)
		assert.Less(t, c.after, 5*limit, c.name)
		for _, a := range c.last {
			assert.Contains(t, []int{100, 408, 400}, a.status, "%s: %s", c.name, a.body)
		}
	}
	require.Equal(t, 200, b.callAs("", "GET", "/healthz", "").status)
}

// A connection without requests is closed.
func TestIdleConnections(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.IdleTimeout = 200 * time.Millisecond })
	c := b.dial()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	answers, closed := answersOn(t, c, patience)
	require.Len(t, answers, 1)
	require.True(t, closed)
}

// requireServed makes a request on a connection that stays open.
func requireServed(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	answers, closed := answersOn(t, c, 50*time.Millisecond)
	require.False(t, closed)
	require.Empty(t, answers)
	require.Zero(t, r.Buffered())
}

// requireTurnedAway checks that a connection is told of the limit and closed.
func requireTurnedAway(t *testing.T, c net.Conn, says string) {
	t.Helper()
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	answers, closed := answersOn(t, c, patience)
	require.True(t, closed)
	require.Len(t, answers, 1)
	require.Equal(t, 503, answers[0].status)
	require.Equal(t, "1", answers[0].header.Get("Retry-After"))
	require.Equal(t, string(asyncflow.CodeUnavailable), answers[0].problem.Code)
	require.Contains(t, answers[0].problem.Detail, says)
}

// eventually dials until a connection is let in: the server hears of the end of another
// one a moment later.
func eventually(t *testing.T, dial func() net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		c := dial()
		defer c.Close()
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		answers, _ := answersOn(t, c, patience)
		return len(answers) == 1 && answers[0].status == 200
	}, patience, 10*time.Millisecond)
}

// More connections than the limit are told so; those that are open go on.
func TestMaxConnections(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.Max = 4 })
	var open []net.Conn
	for range 4 {
		open = append(open, b.dial())
		requireServed(t, open[len(open)-1])
	}
	for range 10 {
		requireTurnedAway(t, b.dial(), "this node has 4 connections; that is its limit")
	}
	requireServed(t, open[0])
	open[1].Close()
	eventually(t, b.dial)
}

// The limit for one address leaves the others alone.
func TestMaxConnectionsPerAddress(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.MaxPerAddress = 2 })
	from := func(ip string) func() net.Conn {
		return func() net.Conn {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
			c, err := d.DialContext(context.Background(), "tcp", b.url[len("http://"):])
			if err != nil {
				t.Skip("this machine has no "+ip+":", err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	one, other := from("127.0.0.1"), from("127.0.0.2")
	first, second := one(), one()
	requireServed(t, first)
	requireServed(t, second)
	requireTurnedAway(t, one(), "this node has 2 connections from your address; that is its limit")
	requireServed(t, other())
	first.Close()
	eventually(t, one)
}

// A stranger's large body isn't waited for: its header alone would cost the memory of
// all of it.
func TestBodiesOfStrangers(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.submitOne()
	lease, completion := b.lease()
	forged := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: asyncflow.NewTaskID("pipe", 1, 99), Seq: 1, Expiry: time.Now().Add(time.Hour)})
	complete := "/v1/callbacks/" + lease.ID.String() + "/complete"
	for name, c := range map[string]struct {
		path, token string
		length      int
		waits       bool // for the body
	}{
		"no token":                   {"/v1/tasks", "", 70_000, false},
		"a bad token":                {"/v1/tasks", "abc", 70_000, false},
		"a token of another kind":    {"/v1/tasks", completion, 70_000, false},
		"no path":                    {"/v1/nothing", b.token, 70_000, false},
		"an open path":               {"/healthz", b.token, 70_000, false},
		"a small body":               {"/v1/tasks", "", 65_536, true},
		"a good token":               {"/v1/tasks", b.token, 70_000, true},
		"far over the limit":         {"/v1/tasks", b.token, 100 << 20, false},
		"a worker":                   {complete, completion, 70_000, true},
		"a worker of another task":   {complete, forged, 70_000, false},
		"a caller in its place":      {complete, b.token, 70_000, false},
		"a worker without a task id": {"/v1/callbacks/x/complete", completion, 70_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := b.dial()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", c.path, c.token, c.length)
			within := patience
			if c.waits {
				within = 300 * time.Millisecond
			}
			answers, closed := answersOn(t, conn, within)
			require.Equal(t, !c.waits, closed)
			if !c.waits {
				require.Len(t, answers, 1)
				require.Equal(t, 413, answers[0].status)
				require.Equal(t, "too_large", answers[0].problem.Code)
				require.Equal(t, "body", answers[0].problem.Errors[0].Field)
			}
		})
	}
	a := b.callAs(completion, "POST", complete, `{"output":"`+strings.Repeat("x", 100_000)+`"}`)
	require.Equal(t, 413, a.status)
	require.Equal(t, "output", a.problem.Errors[0].Field, "a worker's large body is read, and judged by its field")
	a = b.callAs("", "POST", "/v1/tasks", `{"type":"pipe","context":"`+strings.Repeat("x", 100_000)+`"}`)
	require.Equal(t, 413, a.status)
}

// Nesting has a limit for whole bodies, whatever they are for.
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
				require.Less(t, time.Since(start), 5*time.Second)
			}
		}
	}
}

// Bodies that are no text are refused, and name the field where there is one.
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

// brokenLog panics when something is logged.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenLog) Handle(context.Context, slog.Record) error { panic("the log is full") }

// A panic is a 500 for its caller and nothing for the others, also one outside of the
// handlers: here in the log of the first one.
func TestPanics(t *testing.T) {
	for name, log := range map[string]*slog.Logger{"in a handler": slog.New(slog.DiscardHandler), "in the answer to it": slog.New(brokenLog{slog.DiscardHandler})} {
		t.Run(name, func(t *testing.T) {
			b := setupWith(t, func(c *httpapi.Config) {
				c.Log = log
				c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret reason") })
			})
			for range 3 {
				a := b.callAs("", "GET", "/metrics", "")
				require.Equal(t, 500, a.status)
				require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
				require.Equal(t, "internal", a.problem.Code)
				require.NotContains(t, string(a.body), "secret reason")
				require.Equal(t, 200, b.callAs(b.newToken("acme", auth.ScopeRead), "GET", "/v1/task-types", "").status)
			}
		})
	}
}
