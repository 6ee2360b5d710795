package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
)

// revoke makes the node refuse a token, as if it had read that in the database.
func (b *bundle) revoke(tokens ...string) {
	b.t.Helper()
	var names []auth.TokenName
	for _, token := range tokens {
		d, err := auth.Describe(token)
		require.NoError(b.t, err)
		names = append(names, d.TokenName)
	}
	b.verifier.Revoke(names)
}

// A revoked token opens nothing more, also one that was verified before. Others of the same subject
// do.
func TestRevokedToken(t *testing.T) {
	b := setup(t)
	b.pipe()
	leaked := b.newToken("acme", auth.ScopeRead)
	admin := b.adminToken()
	require.Equal(t, 200, b.callAs(leaked, "GET", "/v1/task-types", "").status)
	require.Equal(t, 200, b.callAs(admin, "GET", "/v1/tenants", "").status)
	b.revoke(leaked, admin)
	for token, path := range map[string]string{leaked: "/v1/task-types", admin: "/v1/tenants"} {
		a := b.callAs(token, "GET", path, "")
		assert.Equal(t, []any{401, "unauthenticated", "the token was revoked"},
			[]any{a.status, a.problem.Code, a.problem.Detail})
	}
	assert.Equal(t, 200, b.call("GET", "/v1/task-types", "").status)
	b.revoke()
	assert.Equal(t, 200, b.callAs(leaked, "GET", "/v1/task-types", "").status,
		"what isn't revoked any more expired, or another database was restored")
}

// What is open by a token ends when it is revoked: streams, calls that wait for a task's end, and
// calls that wait for tasks.
func TestRevokedStreams(t *testing.T) {
	b := setup(t)
	b.claimed()
	b.pipe()
	id, _ := b.submitOne()
	leaked := b.newToken("acme", auth.ScopeRead)
	worker := b.newToken("acme", auth.ScopeWork)
	kept, _ := b.follow(t.Context(), b.token, id, "")
	stream, _ := b.follow(t.Context(), leaked, id, "")
	_, err := stream.next()
	require.NoError(t, err)
	waiting := make(chan int, 1)
	go func() { waiting <- b.callAs(leaked, "GET", "/v1/tasks/"+id+"?wait=1m", "").status }()
	claim, err := b.rawClaim(worker,
		`{"type":"judge","stage":"look","claimer":"anna","wait":"1m"}`)
	require.NoError(t, err)
	b.waitingClaims(1)
	b.revoke(leaked, worker)

	require.NoError(t, claim.SetReadDeadline(time.Now().Add(30*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(claim), nil)
	require.NoError(t, err)
	assert.Equal(t, 401, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	select {
	case status := <-waiting:
		assert.Equal(t, 401, status)
	case <-time.After(30 * time.Second):
		t.Fatal("the call goes on waiting")
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.next(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		assert.ErrorIs(t, err, io.EOF)
	case <-time.After(30 * time.Second):
		t.Fatal("the stream goes on")
	}
	b.waitingClaims(0)
	_, err = kept.next()
	require.NoError(t, err, "streams of others go on")
}
