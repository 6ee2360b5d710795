package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
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

// Requests that arrive a byte at a time are cut off when their time is over, however many there
// are, and others are served meanwhile.
func TestSlowRequests(t *testing.T) {
	const limit = 3 * time.Second
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.ReadTimeout = limit })
	post := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer " + b.token + "\r\n"
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
	b := setupWith(t,
		func(c *httpapi.Config) { c.Connections.IdleTimeout = 200 * time.Millisecond })
	c := b.dial()
	_, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	answers, closed := answersOn(t, c, patience)
	require.Len(t, answers, 1)
	require.True(t, closed)
}

const healthRequest = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"

// statusOn makes a request, and returns the status of the answer.
func statusOn(c net.Conn, request string) (int, error) {
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.ReadAll(resp.Body)
	return resp.StatusCode, err
}

// requireServed makes a request on a connection that stays open.
func requireServed(t *testing.T, c net.Conn) {
	t.Helper()
	requireStatus(t, c, healthRequest, 200)
}

// requireStatus makes a request, which is answered with a status, on a connection that stays open.
func requireStatus(t *testing.T, c net.Conn, request string, status int) {
	t.Helper()
	got, err := statusOn(c, request)
	require.NoError(t, err)
	require.Equal(t, status, got)
	answers, closed := answersOn(t, c, 50*time.Millisecond)
	require.False(t, closed)
	require.Empty(t, answers)
}

// requireTurnedAway checks that a connection is answered with the limit, and closed.
func requireTurnedAway(t *testing.T, c net.Conn, says string) {
	t.Helper()
	io.WriteString(c, healthRequest)
	answers, closed := answersOn(t, c, patience)
	require.True(t, closed)
	require.Len(t, answers, 1)
	require.Equal(t, 503, answers[0].status)
	require.Equal(t, "1", answers[0].header.Get("Retry-After"))
	require.Equal(t, string(asyncflow.CodeUnavailable), answers[0].problem.Code)
	require.Contains(t, answers[0].problem.Detail, says)
}

// eventually dials until a connection is accepted: the server notices the end of another one a
// moment later.
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

// requestAs returns a call with a token.
func requestAs(token, method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n" +
		"Authorization: Bearer " + token + "\r\n\r\n"
}

// Connections over the limit are answered with the limit; the open ones continue.
func TestMaxConnections(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.Max = 4 })
	list := requestAs(b.token, "GET", "/v1/task-types")
	var open []net.Conn
	for range 4 {
		open = append(open, b.dial())
		requireStatus(t, open[len(open)-1], list, 200)
	}
	for range 10 {
		requireTurnedAway(t, b.dial(), "this node has 4 connections; that is its limit")
	}
	requireServed(t, open[0])
	open[1].Close()
	eventually(t, b.dial)
}

// stranger is what somebody without a good token does with a connection.
type stranger struct {
	request  string
	answered bool // the answer is read
}

// flood opens connections of strangers, at least n, until the server closes the first one, although
// more bytes come on it.
func (b *bundle) flood(t *testing.T, n int, s stranger) {
	t.Helper()
	first := b.stranger(t, s)
	for range n - 1 {
		b.stranger(t, s)
	}
	require.Eventually(t, func() bool {
		_, err := first.Write([]byte("G"))
		if err != nil {
			return true
		}
		b.stranger(t, s)
		return false
	}, patience, 10*time.Millisecond)
}

// stranger opens a connection of a stranger. The server may refuse it.
func (b *bundle) stranger(t *testing.T, s stranger) net.Conn {
	t.Helper()
	c := b.dial()
	require.NoError(t, c.SetDeadline(time.Now().Add(2*patience)))
	io.WriteString(c, s.request)
	if s.answered {
		http.ReadResponse(bufio.NewReader(c), nil)
	}
	return c
}

// Strangers fill only their share of the connections, whatever they do on them: callers are served
// beside them, and keep their connections.
func TestStrangersLeaveConnections(t *testing.T) {
	const most, strangers = 6, 12
	b := setupWith(t, func(c *httpapi.Config) { c.Connections.Max = most })
	b.pipe()
	require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status)
	lease, completion := b.lease()
	callers := []string{
		requestAs(b.token, "GET", "/v1/task-types"),
		requestAs(b.adminToken(), "GET", "/v1/tenants"),
		requestAs(completion, "POST", "/v1/callbacks/"+lease.ID.String()+"/heartbeat"),
		requestAs(b.token, "GET", "/v1/task-types/pipe"),
	}
	for name, kind := range map[string]stranger{
		"nothing":          {},
		"half a request":   {request: "GET /hea"},
		"an open call":     {healthRequest, true},
		"a bad token":      {requestAs("bad", "GET", "/v1/task-types"), true},
		"an expired token": {requestAs(b.expired(), "GET", "/v1/task-types"), true},
		"unread answers": {request: strings.Repeat(
			"GET /openapi.json HTTP/1.1\r\nHost: h\r\n\r\n", 100)},
	} {
		passed := t.Run(name, func(t *testing.T) {
			b.flood(t, strangers, kind)
			var open []net.Conn
			for _, request := range callers {
				open = append(open, b.connectAs(t, request))
			}
			b.flood(t, strangers, kind)
			for i, c := range open {
				requireStatus(t, c, callers[i], 200)
				c.Close()
			}
		})
		require.True(t, passed, "the other kinds share the server")
	}
}

// connectAs returns a connection on which a call was answered with 200. It tries again while a
// connection is refused: the requests of all strangers may be under way for a moment.
func (b *bundle) connectAs(t *testing.T, request string) (open net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		c := b.dial()
		status, err := statusOn(c, request)
		if err != nil || status != 200 {
			c.Close()
			return false
		}
		open = c
		return true
	}, patience, 10*time.Millisecond)
	return open
}

// expired returns an expired token.
func (b *bundle) expired() string {
	token, err := b.issuer.Issue("acme", "test", []auth.Scope{auth.ScopeRead}, time.Hour,
		time.Now().Add(-2*time.Hour))
	require.NoError(b.t, err)
	return token
}

// The limit for one address doesn't affect other addresses.
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
