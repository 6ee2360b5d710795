package callbacks

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// audit adds up the values of a cache, and compares the sums with its counts and bounds. It returns
// the number of values.
func (c *cache[V]) audit(t *testing.T) (values int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, tenant := range c.tenants.Keys() {
		s, _ := c.tenants.Peek(tenant)
		sum := 0
		for _, name := range s.values.Keys() {
			one, _ := s.values.Peek(name)
			sum += one.bytes
			values++
		}
		require.Positive(t, s.values.Len(), "a tenant without values")
		require.Equal(t, sum, s.bytes)
		require.LessOrEqual(t, sum, c.most/4, "the share of a tenant")
		all += sum
	}
	require.Equal(t, all, c.bytes)
	require.LessOrEqual(t, all, c.most)
	return values
}

// Whatever is put into a cache, neither the cache nor a tenant exceeds its bound.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache[int](100 << 10)
	for n := range 5000 {
		tenant, name := fmt.Sprint("t", rand.IntN(12)), fmt.Sprint(rand.IntN(40))
		switch rand.IntN(10) {
		case 0:
			c.drop(tenant, name, func(int) bool { return n%2 == 0 })
		case 1:
			c.put("greedy", fmt.Sprint(n), n, rand.IntN(10<<10))
		case 2:
			c.put(tenant, name, n, 40<<10) // more than a share: it isn't kept
			_, ok := c.get(tenant, name)
			require.False(t, ok)
		default:
			c.put(tenant, name, n, rand.IntN(5<<10))
			if got, ok := c.get(tenant, name); ok {
				require.Equal(t, n, got)
			}
		}
		c.audit(t)
	}
}

// A value replaces the one of its name. A tenant loses its own least recently used values, and none
// to a tenant with too many.
func TestCacheOrder(t *testing.T) {
	t.Parallel()
	const size = 10<<10 - entryBytes - 1 // ten fill it, two a share
	c := newCache[string](100 << 10)
	has := func(tenant, name string) bool { _, ok := c.get(tenant, name); return ok }
	require.Empty(t, c.put("a", "1", "a1", size))
	require.Equal(t, []string{"a1"}, c.put("a", "1", "a1, changed", size))
	require.Empty(t, c.put("a", "2", "a2", size))
	require.True(t, has("a", "1"))
	require.Equal(t, []string{"a2"}, c.put("a", "3", "a3", size))
	require.True(t, has("a", "1") && has("a", "3"))
	for _, tenant := range []string{"b", "c", "d", "e"} {
		c.put(tenant, "1", tenant+"1", size)
		c.put(tenant, "2", tenant+"2", size)
	}
	require.True(t, has("a", "1") && has("b", "2"), "all is full")
	require.Equal(t, []string{"c1"}, c.put("f", "1", "f1", size), "of the tenant that was idle")
	for n := range 100 {
		c.put("f", fmt.Sprint(n%10), "f", size)
	}
	require.True(t, has("a", "1") && has("b", "1") && has("d", "1") && has("e", "2"))
	c.drop("a", "1", func(v string) bool { return v == "a1" })
	require.True(t, has("a", "1"), "another value is there")
	c.drop("a", "1", func(v string) bool { return v == "a1, changed" })
	require.False(t, has("a", "1"))
	c.audit(t)
}

// Of an endpoint that changes again and again, only the last version is kept. A tenant with many
// endpoints keeps no more than its share.
func TestOpenedEndpointsAreBounded(t *testing.T) {
	t.Parallel()
	r, secret := setup(t), sealed(testSecret)
	pem := strings.Repeat("x", asyncflow.MaxPEM)
	large := asyncflow.Outbound{TLS: asyncflow.EndpointTLS{CA: pem, Certificate: pem}}
	open := func(id string, change int) {
		large.Headers = map[string]string{"X-Change": fmt.Sprint(change)}
		e := &asyncflow.Endpoint{ID: id, URL: fmt.Sprint("https://worker.example.com/", change),
			Secrets: []asyncflow.SigningSecret{secret}}
		var err error
		e.Outbound, err = r.keys.SealOutbound(large, id)
		require.NoError(t, err)
		to, err := r.open("acme", e)
		require.NoError(t, err)
		require.Equal(t, e.URL, to.target.String())
		require.Equal(t, fmt.Sprint(change), to.settings.headers[0].Value,
			"the change counts at once")
		again, err := r.open("acme", e)
		require.NoError(t, err)
		require.Same(t, to, again)
	}
	for n := range 100 {
		open("e1", n)
		require.Equal(t, 1, r.Sender.opened.audit(t))
	}
	for n := range 50 {
		open(fmt.Sprint("e", n), n)
		r.Sender.opened.audit(t)
	}
	require.Greater(t, r.Sender.opened.bytes, maxOpenedBytes/8)
}

// Every change of an endpoint counts for the next delivery.
func TestChangedEndpointIsOpenedAnew(t *testing.T) {
	t.Parallel()
	next := signing.NewSecret()
	first, second := newWorker(t, reply(200, "")), newWorkerOf(t, next, reply(200, ""))
	r := setup(t)
	d := deliveryTo(first.url)
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	changed := *d.Endpoint
	changed.URL, changed.Secrets = second.url, []asyncflow.SigningSecret{sealed(next)}
	d.Endpoint = &changed
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	require.Len(t, first.all(), 1)
	require.Len(t, second.all(), 1) // which verifies them
	require.Equal(t, 1, r.Sender.opened.audit(t))
}

// One token of an endpoint is kept, however often its login changes, and no more than its tenant's
// share, however long the tokens are.
func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	var good sync.Map
	s.set(func() {
		s.answer = func(w http.ResponseWriter, _ *http.Request, n int) {
			token := fmt.Sprint(n, strings.Repeat("x", maxAccessToken-10))
			good.Store("Bearer "+token, true)
			reply(200, fmt.Sprintf(`{"access_token":%q,"token_type":"bearer"}`, token))(w, nil)
		}
	})
	ca := newAuthority(t, "worker")
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, ok := good.Load(r.Header.Get("Authorization")); !ok {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}, func(server *httptest.Server) { server.TLS = ca.server() })
	s.ca += ca.pem
	r := setup(t)
	for n := range 20 {
		changed := s.outbound(func(a *asyncflow.EndpointAuth) { a.ClientID = fmt.Sprint("me", n) })
		o := r.Send(t.Context(), deliveryWith(t, w.url, changed))
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
		require.Equal(t, 1, r.tokens.known.audit(t))
	}
	require.Equal(t, 20, s.count())
	for n := range maxTokensBytes/4/maxAccessToken + 50 { // the rest without a worker
		auth := s.outbound().Auth
		g := newGrant(auth, s.ca)
		_, err := r.tokens.login(t.Context(), newLimit(ample), "acme", fmt.Sprint("e", n), g)
		require.NoError(t, err)
	}
	require.Greater(t, r.tokens.known.audit(t), 200) // each is kept twice: to send and to mask
}
