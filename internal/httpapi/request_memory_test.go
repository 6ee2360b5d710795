package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// heap returns the bytes of the heap that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// begin sends the header of a request that announces a body of a length, and the beginning of the
// body.
func (b *bundle) begin(call apiCall, length, sent int) net.Conn {
	b.t.Helper()
	c := b.dial()
	require.NoError(b.t, c.SetDeadline(time.Now().Add(patience)))
	_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Type: "+
		"application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		call.method, call.path, call.token, length, strings.Repeat(" ", sent))
	require.NoError(b.t, err)
	return c
}

// A body uses memory only for the bytes that arrived, not for what its header announces. It uses
// none if the call, the scope or the token doesn't allow such a body.
func TestMemoryOfAnnouncedBodies(t *testing.T) {
	const announced, sent, each = 16 << 20, 100 << 10, 60
	b := setupOn(t, func(*store.Config) {}, func(c *httpapi.Config) { c.MaxBody = announced })
	b.pipe()
	b.submitOne()
	lease, completion := b.lease()
	expired := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: lease.ID, Seq: 1,
		Expiry: time.Now().Add(-24 * time.Hour)})
	callback := "/v1/callbacks/" + lease.ID.String()
	before := heap()
	for _, call := range []apiCall{
		{"POST", "/v1/tasks/batch", b.newToken("acme", auth.ScopeRead)},
		{"POST", "/v1/tasks/batch", ""},
		{"POST", "/v1/tasks", b.token},
		{"GET", "/v1/tasks?type=pipe", b.token},
		{"POST", callback + "/complete", completion},
		{"POST", callback + "/complete", expired},
		{"POST", callback + "/heartbeat", completion},
		{"POST", "/v1/tasks/batch", b.token}, // such a body is allowed
	} {
		for range each {
			c := b.begin(call, announced, 8<<10)
			go io.Copy(c, io.LimitReader(spaces{}, sent)) // the server may close before
		}
	}
	const grown = 128 << 10 // for what was sent
	require.Eventually(t, func() bool { return b.server.BodyMemory() == each*grown }, patience,
		20*time.Millisecond)
	const most = 8*each*64<<10 + each*4*sent // what each connection costs, and what was sent
	require.Less(t, heap()-before, most, "in bytes; %d were announced", 8*each*announced)
}

// spaces is an endless body.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) { return copy(p, strings.Repeat(" ", len(p))), nil }

// Each tenant gets a share of the memory for bodies, and all tenants together get the node's.
// Requests over a share are refused; small requests and other tenants' are not.
func TestSharesOfBodyMemory(t *testing.T) {
	const share, body = 4 << 20, 1 << 20
	b := setupTwoWith(t, func(c *httpapi.Config) {
		c.Bodies = httpapi.BodyConfig{Max: 2*share - body, MaxPerTenant: share}
	})
	b.pipe()
	other := b.newToken("other", auth.ScopeSubmit, auth.ScopeManage)
	require.Equal(t, 201, b.callAs(other, "PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only"}]}`).status)
	hold := func(token string, n int) (held []net.Conn) { // bodies, each less its last byte
		for range n {
			held = append(held, b.begin(apiCall{"POST", "/v1/tasks/batch", token}, body, body-1))
		}
		return held
	}
	large := `{"tasks":[` + strings.Repeat(" ", body-100) + `{"type":"pipe","context":1}]}`
	refused := func(token string, inUse int) answer {
		require.Eventually(t, func() bool { return b.server.BodyMemory() == inUse }, patience,
			20*time.Millisecond)
		return b.callAs(token, "POST", "/v1/tasks/batch", large)
	}
	require.Equal(t, 201, b.call("POST", "/v1/tasks/batch", large).status)
	held := hold(b.token, share/body)
	a := refused(b.token, share)
	assert.Equal(t, []any{429, "rate_limited", "1"},
		[]any{a.status, a.problem.Code, a.header.Get("Retry-After")}, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "the limit of one tenant on this node is 4194304 bytes")
	require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status,
		"a small body needs none of it")
	require.Equal(t, 201, b.callAs(other, "POST", "/v1/tasks/batch", large).status,
		"another tenant has its own share")
	hold(other, share/body-1)
	a = refused(other, 2*share-body)
	assert.Equal(t, []any{503, "unavailable", "1"},
		[]any{a.status, a.problem.Code, a.header.Get("Retry-After")}, "%s", a.body)
	assert.Contains(t, a.problem.Detail, "the limit of this node is 7340032 bytes")
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		return b.call("POST", "/v1/tasks/batch", large).status == 201
	}, patience, 10*time.Millisecond,
		"the memory is given back")
}

// A limit of the memory below the size of one body is refused, because no such body could ever be
// read.
func TestBodyMemoryRefused(t *testing.T) {
	b := setup(t)
	_, err := httpapi.New(httpapi.Config{Store: b.store, Committer: b.committer,
		Verifier: b.verifier, Keys: b.keys,
		MaxBody: 1000, Bodies: httpapi.BodyConfig{Max: 1500}})
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "1000")
}

// The streams and waiting calls of one tenant are bounded together, so that other tenants can still
// use both.
func TestSharesOfStreams(t *testing.T) {
	b := setupTwoWith(t, func(c *httpapi.Config) { c.Streams.Max, c.Streams.MaxPerTenant = 5, 3 })
	b.pipe()
	id, _ := b.submitOne()
	other := b.newToken("other", auth.ScopeSubmit, auth.ScopeManage, auth.ScopeRead)
	require.Equal(t, 201, b.callAs(other, "PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"only"}]}`).status)
	theirs := read[api.Task](b, 201,
		b.callAs(other, "POST", "/v1/tasks", `{"type":"pipe","context":1}`)).ID

	for range 2 {
		e, _ := b.follow(t.Context(), b.token, id, "")
		e.task()
	}
	waiting := b.dial()
	require.NoError(t, waiting.SetDeadline(time.Now().Add(patience)))
	_, err := fmt.Fprintf(waiting,
		"GET /v1/tasks/%s?wait=60s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", id,
		b.token)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.server.Streams() == 3 }, patience,
		20*time.Millisecond)
	for _, path := range []string{"/events", "?wait=20s"} {
		a := b.call("GET", "/v1/tasks/"+id+path, "")
		assert.Equal(t, []any{429, "rate_limited", "5"},
			[]any{a.status, a.problem.Code, a.header.Get("Retry-After")}, "%s", path)
		assert.Contains(t, a.problem.Detail,
			"the limit of one tenant on this node is 3 event streams and waiting calls")
	}
	assert.Equal(t, 200, b.call("GET", "/v1/tasks/"+id, "").status,
		"a call that doesn't wait needs no share")

	e, _ := b.follow(t.Context(), other, theirs, "")
	e.task()
	assert.Equal(t, 200, b.callAs(other, "GET", "/v1/tasks/"+theirs+"?wait=1ms", "").status,
		"another tenant has both")
	second, _ := b.follow(t.Context(), other, theirs, "")
	second.task()
	for _, path := range []string{"/events", "?wait=20s"} {
		a := b.callAs(other, "GET", "/v1/tasks/"+theirs+path, "")
		assert.Equal(t, []any{503, "unavailable", "5"},
			[]any{a.status, a.problem.Code, a.header.Get("Retry-After")}, "%s", path)
		assert.Contains(t, a.problem.Detail, "the limit of this node is 5")
	}
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
	require.Eventually(t, func() bool {
		return b.call("GET", "/v1/tasks/"+id+"?wait=1ms", "").status == 200
	}, patience, 20*time.Millisecond,
		"the shares are given back")
}
