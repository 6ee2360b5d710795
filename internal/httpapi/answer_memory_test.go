package httpapi_test

import (
	"fmt"
	"net"
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
	b := setupWith(t, func(c *httpapi.Config) {
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

	get := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", ours, b.token)
	var unread []net.Conn
	var last answer
	require.Eventually(t, func() bool {
		c := b.dial()
		require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err := c.Write([]byte(strings.Repeat(get, pipelined))) // more than sockets hold of answers
		require.NoError(t, err)
		unread = append(unread, c)
		last = b.call("GET", ours, "")
		return last.status == 429
	}, patience, 10*time.Millisecond, "a share of the memory")
	assert.Contains(t, last.problem.Detail,
		"the limit of one tenant on this node is 8388608 bytes of answers")
	assert.LessOrEqual(t, b.server.AnswerMemory(), share+4*context,
		"that of another, which has just been read, may count")
	assert.Equal(t, 200, b.callAs(other, "GET", theirs, "").status, "another tenant has its own share")
	assert.Equal(t, 200, b.call("GET", "/v1/quota", "").status, "a short answer needs none of it")

	for _, c := range unread {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return b.server.AnswerMemory() == 0 }, patience,
		time.Millisecond,
		"what was lent is given back")
	assert.Equal(t, 200, b.call("GET", ours, "").status)
}
