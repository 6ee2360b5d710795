package httpapi_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// lines is a log that a test can read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that contain a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (b *bundle) get(path string, header ...string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "GET", b.url+path, nil)
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+b.token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return b.do(req)
}

// Each answer carries an id: the request's own if it is well formed, else a new one.
func TestRequestID(t *testing.T) {
	b := setup(t)
	const header = "X-Request-Id"
	first, second := b.get("/healthz").header.Get(header), b.get("/healthz").header.Get(header)
	assert.Regexp(t, "^[0-9a-f]{32}$", first)
	assert.NotEqual(t, first, second)
	for _, good := range []string{"a", "7b9-4.x_/:+=Z", strings.Repeat("i", 64)} {
		assert.Equal(t, good, b.get("/healthz", header, good).header.Get(header))
	}
	for _, bad := range []string{"", strings.Repeat("i", 65), "a b", "a\tb", "ä", `"`, "<x>",
		"a,b"} {
		assert.Regexp(t, "^[0-9a-f]{32}$", b.get("/healthz", header, bad).header.Get(header), bad)
	}
	a := b.get("/v1/task-types/nope", header, "my-id")
	assert.Equal(t, "my-id", a.problem.RequestID)
	a = b.get("/nope")
	assert.Equal(t, a.header.Get(header), a.problem.RequestID)
	assert.NotEmpty(t, a.problem.RequestID)
}

// A 5xx is logged once, with the id in the answer.
func TestFailuresAreLoggedOnce(t *testing.T) {
	var log lines
	b := setupWith(t, func(c *httpapi.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Keys = nil // what seals secrets panics
	})
	b.pipe()
	a, entries := b.ask("panic-1", b.token, "POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com"}`)
	assert.Equal(t, 500, a.status)
	assert.Equal(t, "panic-1", a.problem.RequestID)
	assert.NotContains(t, string(a.body), "nil pointer")
	found := log.with("nil pointer")
	require.Len(t, found, 1, "once")
	assert.Contains(t, found[0], "request_id=panic-1")
	assert.Contains(t, found[0], "callbacks/keys.go", "with its stack")
	require.Len(t, entries, 1)
	assert.Equal(t, []any{"endpoint.create", asyncflow.AuditFailed, 500, "internal"},
		[]any{entries[0].Action, entries[0].Outcome, entries[0].Status, entries[0].Code})
	assert.Equal(t, 200, b.get("/healthz").status)

	pgtest.NotOnCitus(t, "a superuser passes the policy by which the test breaks a table")
	_, err := b.db.Exec(context.Background(), `
		ALTER TABLE tenant_acme.task_types ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
		CREATE POLICY broken ON tenant_acme.task_types USING (1 / (version - version) = 1)`)
	require.NoError(t, err)
	assert.Equal(t, 500, b.get("/v1/task-types", "X-Request-Id", "fault-1").status)
	assert.Len(t, log.with("request_id=fault-1"), 1)
	assert.NotContains(t, log.with("request_id=fault-1")[0], "stack=")
}

// X-Forwarded-For counts as far back as trusted proxies wrote it.
func TestAddressOfTheCaller(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("10.0.0.0/8")}
	})
	const header = "X-Forwarded-For"
	for i, c := range []struct {
		headers        []string
		address, proxy string
	}{
		{nil, "127.0.0.1", ""},
		{[]string{"203.0.113.7"}, "203.0.113.7", "127.0.0.1"},
		{[]string{"8.8.8.8, 203.0.113.7, 10.1.2.3"}, "203.0.113.7", "127.0.0.1"},
		{[]string{"8.8.8.8", "203.0.113.7", "10.1.2.3"}, "203.0.113.7", "127.0.0.1"},
		{[]string{"203.0.113.7, nonsense, 10.1.2.3"}, "10.1.2.3", "127.0.0.1"},
		{[]string{"nonsense"}, "127.0.0.1", ""},
		{[]string{"::ffff:203.0.113.7"}, "203.0.113.7", "127.0.0.1"},
		{[]string{"2001:db8::1"}, "2001:db8::1", "127.0.0.1"},
		{[]string{"203.0.113.7" + strings.Repeat(", 10.0.0.1", 100)}, "10.0.0.1", "127.0.0.1"},
	} {
		pairs := []string{}
		for _, h := range c.headers {
			pairs = append(pairs, header, h)
		}
		require.Equal(t, 200, b.get("/v1/audit", pairs...).status)
		e := b.entries("acme")[i]
		assert.Equal(t, []string{c.address, c.proxy}, []string{e.Address, e.Proxy}, "%q", c.headers)
	}
}

// Without trusted proxies, X-Forwarded-For doesn't count.
func TestForwardedByStrangers(t *testing.T) {
	b := setup(t)
	require.Equal(t, 200, b.get("/v1/audit", "X-Forwarded-For", "203.0.113.7").status)
	e := b.entries("acme")[0]
	assert.Equal(t, []string{"127.0.0.1", ""}, []string{e.Address, e.Proxy})
}
