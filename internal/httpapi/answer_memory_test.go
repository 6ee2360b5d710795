package httpapi_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// Answers that a tenant requests and doesn't read use at most its share of a node's memory, and
// other tenants are not affected. The memory is given back when the connections close.
func TestSharesOfAnswerMemory(t *testing.T) {
	const share, context, pipelined = 8 << 20, 1 << 20, 20
	b := setupTwoWith(t, func(c *httpapi.Config) {
		c.MaxContext, c.MaxBody = 2*context, 4*context
		c.Bodies = httpapi.BodyConfig{Max: 2 * share, MaxPerTenant: share}
	})
	other := b.newToken("other", auth.ScopeSubmit, auth.ScopeManage, auth.ScopeRead)
	submit := func(token string) (path string) {
		require.Equal(t, 201, b.callAs(token, "PUT", "/v1/task-types/pipe",
			`{"stages":[{"name":"only"}]}`).status)
		doc := `{"type":"pipe","context":"` + strings.Repeat("x", context) + `"}`
		return "/v1/tasks/" + read[api.SubmittedTask](b, 201,
			b.callAs(token, "POST", "/v1/tasks", doc)).ID
	}
	ours, theirs := submit(b.token), submit(other)

	get := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", ours,
		b.token)
	var unread []net.Conn
	var last answer
	require.Eventually(t, func() bool {
		c := b.dial()
		require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		// more than sockets hold of answers
		_, err := c.Write([]byte(strings.Repeat(get, pipelined)))
		require.NoError(t, err)
		unread = append(unread, c)
		last = b.call("GET", ours, "")
		return last.status == 429
	}, patience, 10*time.Millisecond, "a share of the memory")
	assert.Contains(t, last.problem.Detail,
		"the limit of one tenant on this node is 8388608 bytes of answers")
	assert.LessOrEqual(t, b.server.AnswerMemory(), share+4*context,
		"that of another, which has just been read, may count")
	assert.Equal(t, 200, b.callAs(other, "GET", theirs, "").status,
		"another tenant has its own share")
	assert.Equal(t, 200, b.call("GET", "/v1/quota", "").status, "a short answer needs none of it")

	for _, c := range unread {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return b.server.AnswerMemory() == 0 }, patience,
		20*time.Millisecond,
		"what was lent is given back")
	assert.Equal(t, 200, b.call("GET", ours, "").status)
}

// fill sends a request again and again over connections that read nothing, until a call like it is
// answered with 429, and returns that answer.
func (b *bundle) fill(request string, call func() answer) (last answer) {
	b.t.Helper()
	const pipelined = 20 // more than sockets hold of answers
	require.Eventually(b.t, func() bool {
		c := b.dial()
		require.NoError(b.t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err := c.Write([]byte(strings.Repeat(request, pipelined)))
		require.NoError(b.t, err)
		last = call()
		return last.status == 429
	}, patience, 10*time.Millisecond, "a share of the memory")
	return last
}

// The answer to a change counts, too. Without memory for it the change isn't made.
func TestChangesWithoutAnswerMemory(t *testing.T) {
	const share = 4 << 20
	b := setupWith(t, func(c *httpapi.Config) {
		c.MaxContext = 1 << 20
		c.Bodies = httpapi.BodyConfig{Max: 2 * share, MaxPerTenant: share}
	})
	b.pipe()
	bad := `{"tasks":[` + strings.Repeat(`{},`, 999) + `{}]}`
	post := fmt.Sprintf("POST /v1/tasks/batch HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", b.token, len(bad), bad)
	mixed := strings.Replace(bad, `{}`, `{"type":"pipe","context":1}`, 1)
	var before, after int
	last := b.fill(post, func() answer {
		before = b.tasks()
		defer func() { after = b.tasks() }()
		return b.call("POST", "/v1/tasks/batch", mixed)
	})
	assert.Contains(t, last.problem.Detail, "bytes of answers")
	assert.LessOrEqual(t, b.server.AnswerMemory(), share)
	assert.Equal(t, before, after, "none was submitted")
	long := `{"type":"pipe","cron":"@daily","context":"` + strings.Repeat("x", 700_000) + `"}`
	b.fill(post, func() answer {
		a := b.call("PUT", "/v1/schedules/daily", long)
		if a.status != 429 {
			require.Equal(t, 204, b.call("DELETE", "/v1/schedules/daily", "").status)
		}
		return a
	})
	assert.Equal(t, 404, b.call("GET", "/v1/schedules/daily", "").status)
	assert.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status)
}

// The answer to a change takes no more than was set aside for it, whatever it changes.
func TestAnswersToChangesKeepWithinTheShare(t *testing.T) {
	const share, context = 4 << 20, 700_000
	b := setupWith(t, func(c *httpapi.Config) {
		c.MaxContext = context + 2
		c.Bodies = httpapi.BodyConfig{Max: 2 * share, MaxPerTenant: share}
	})
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"only"}]}`))
	long := `"` + strings.Repeat("x", context) + `"`
	task := "/v1/tasks/" + read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","delay":"1h","context":`+long+`}`)).ID
	short := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","delay":"1h","context":[1]}`)).ID
	read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/daily",
		`{"type":"pipe","cron":"@daily","context":`+long+`}`))

	changed := read[api.Task](b, 200, b.call("PATCH", task, `{"priority":7}`))
	assert.Empty(t, changed.Context)
	changed = read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+short, `{"priority":7}`))
	assert.Equal(t, "[1]", string(changed.Context))
	pause := fmt.Sprintf("POST /v1/schedules/daily/pause HTTP/1.1\r\nHost: h\r\n"+
		"Authorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", b.token)
	most := 0
	b.fill(pause, func() answer {
		a := b.call("GET", "/v1/schedules/daily", "")
		most = max(most, b.server.AnswerMemory())
		return a
	})
	assert.LessOrEqual(t, most, share)
}

// tasks returns the number of the tenant's tasks of all types.
func (b *bundle) tasks() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(),
		`SELECT count(*) FROM tenant_acme.task_1`).Scan(&n))
	return n
}

// Answers to calls without a token count in a share of their own.
func TestAnswersToStrangersAreBounded(t *testing.T) {
	const share = 4 << 20
	page := []byte(strings.Repeat("x", 1<<20))
	b := setupWith(t, func(c *httpapi.Config) {
		c.Bodies = httpapi.BodyConfig{Max: 2 * share, MaxPerTenant: share}
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(page)
		})
	})
	b.pipe()
	get := "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
	b.fill(get, func() answer { return b.callAs("", "GET", "/metrics", "") })
	assert.LessOrEqual(t, b.server.AnswerMemory(), share)
	assert.Equal(t, 200, b.callAs("", "GET", "/openapi.json", "").status, "all callers share it")
	assert.Equal(t, 200, b.call("GET", "/v1/task-types", "").status)
	assert.Equal(t, 200, b.call("POST", "/v1/task-types/pipe/pause", "").status)
}
