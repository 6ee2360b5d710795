package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// denied waits for entries of denied calls and returns them, oldest first.
func (b *bundle) denied(tenant string, n int) []asyncflow.AuditEntry {
	b.t.Helper()
	var all []asyncflow.AuditEntry
	require.Eventually(b.t, func() bool {
		all = nil
		for _, e := range b.entries(tenant) {
			if e.Outcome == asyncflow.AuditDenied {
				all = append(all, e)
			}
		}
		return len(all) >= n
	}, patience, 20*time.Millisecond)
	require.Len(b.t, all, n)
	return all
}

// forged returns a token without a valid signature.
func forged(subject string) string {
	return "eyJhbGciOiJIUzI1NiIsInR5cCI6ImF0K2p3dCJ9." +
		base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"evil","sub":"`+subject+`","tenant":"acme",`+
			`"jti":"j1","password":"hunter2"}`)) + ".c2lnbmF0dXJlLW9mLW5vYm9keQ"
}

// The operator's audit lists the denied calls of unproven callers, with their claims. A tenant's
// audit lists the denied calls of its proven callers.
func TestDeniedCalls(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 401, b.callAs(forged("root"), "DELETE", "/v1/task-types/pipe", "").status)
	e := b.denied("", 1)[0]
	assert.Equal(t, []any{"task_type.delete", "", "", "", 401, "unauthenticated", "127.0.0.1",
		int64(1)},
		[]any{e.Action, e.Tenant, e.Subject, e.TokenID, e.Status, e.Code, e.Address, e.Calls})
	assert.Equal(t, asyncflow.AuditClaim{Issuer: "evil", Subject: "root", Tenant: "acme",
		TokenID: "j1"}, e.Claimed)
	assert.Equal(t, "the token's signature doesn't verify", e.Detail["reason"])
	assert.NotContains(t, text(e), "hunter2")
	assert.NotContains(t, text(e), "c2lnbmF0dXJl", "no part of the token")
	assert.NotEmpty(t, e.RequestID)

	reader := b.newToken("acme", auth.ScopeRead)
	require.Equal(t, 403, b.callAs(reader, "DELETE", "/v1/task-types/pipe", "").status)
	require.Equal(t, 403, b.callAs(reader, "POST", "/v1/tasks", `{}`).status)
	own := b.denied("acme", 2)
	assert.ElementsMatch(t, []string{"task_type.delete", "task.submit"},
		[]string{own[0].Action, own[1].Action})
	assert.Equal(t, []any{"acme", "test", "read", 403, asyncflow.AuditClaim{}},
		[]any{own[0].Tenant, own[0].Subject, own[0].Scopes, own[0].Status, own[0].Claimed})

	require.Equal(t, 403, b.callAs(b.newToken("nobody", auth.ScopeRead), "GET", "/v1/stats",
		"").status)
	require.Equal(t, 403, b.callAs(reader, "GET", "/v1/governance", "").status)
	all := b.denied("", 3)
	assert.Equal(t, []any{"stats.get", "nobody", "test"},
		[]any{all[1].Action, all[1].Tenant, all[1].Subject}, "proven, but there is no such tenant")
	assert.Equal(t, []any{"governance.get", "acme"}, []any{all[2].Action, all[2].Tenant})
}

// A call with a worker's token that doesn't verify, or is expired, is a denied call too.
func TestDeniedWorkers(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	l, _ := b.lease()
	require.Equal(t, 401, b.callAs("afc2.nothing.good", "POST", path+"/complete", "").status)
	e := b.denied("", 1)[0]
	assert.Equal(t, []any{"task.complete", "the completion token doesn't verify"},
		[]any{e.Action, e.Detail["reason"]})
	expired := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID,
		Seq: l.Seq + 5, Expiry: time.Now().Add(-time.Hour)})
	require.Equal(t, 401, b.callAs(expired, "POST", path+"/heartbeat", "").status, id)
	e = b.denied("acme", 1)[0]
	assert.Equal(t, []any{"call.heartbeat", "acme", ""}, []any{e.Action, e.Tenant, e.Subject})
	assert.Contains(t, e.Detail["reason"], "expired")
}

// Bad tokens from any number of addresses don't hide the denied calls of real ones.
func TestFloodHidesNoTenant(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	for i := range 400 { // each is a kind of its own
		req, err := http.NewRequest("GET", b.url+"/v1/stats", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+forged("root"))
		req.Header.Set("X-Forwarded-For", fmt.Sprintf("2001:db8::%x", i))
		require.Equal(t, 401, b.do(req).status)
	}
	reader := b.newToken("acme", auth.ScopeRead)
	require.Equal(t, 403, b.callAs(reader, "DELETE", "/v1/task-types/pipe", "").status)
	e := b.denied("acme", 1)[0]
	assert.Equal(t, []any{"task_type.delete", "test"}, []any{e.Action, e.Subject})
}

// Ten thousand bad tokens make only a few entries, which together count them all.
func TestFloodOfBadTokens(t *testing.T) {
	b := setup(t)
	const calls, callers = 2000, 20
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for i := range calls / callers {
				req, err := http.NewRequest("GET", fmt.Sprintf("%s/v1/tasks/pipe.1.%d", b.url, i),
					nil)
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set("Authorization",
					"Bearer "+forged(fmt.Sprintf("user-%d-%d", caller, i)))
				resp, err := c.Do(req)
				if !assert.NoError(t, err) {
					return
				}
				resp.Body.Close()
				assert.Equal(t, 401, resp.StatusCode)
			}
		})
	}
	wg.Wait()
	b.stop() // writes the rest
	all := b.entries("")
	var sum int64
	for _, e := range all {
		sum += e.Calls
	}
	assert.EqualValues(t, calls, sum)
	assert.LessOrEqual(t, len(all), 4, "two a minute")
	assert.False(t, all[len(all)-1].LastAt.IsZero())
}
