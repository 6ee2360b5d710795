package httpapi_test

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// A node isn't ready before it knows the keys of every issuer. It names the issuers with keys that
// are missing, and serves the callers of the others.
func TestReadyWaitsForKeys(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	foreign := auth.DefaultConfig()
	foreign.Issuer, foreign.JWKSURL, foreign.AllowHTTP, foreign.Algorithm = "https://login.example",
		"http://"+l.Addr().String()+"/jwks", true, "EdDSA"
	private, public, err := auth.GenerateKey("EdDSA", "k")
	require.NoError(t, err)
	b := setupWith(t, func(c *httpapi.Config) {
		c.Verifier, err = auth.NewVerifier(authConfig(), foreign)
		require.NoError(t, err)
		go func() { _ = c.Verifier.Run(t.Context(), slog.New(slog.DiscardHandler)) }()
	})
	a := b.callAs("", http.MethodGet, "/readyz", "")
	assert.Equal(t, 503, a.status)
	assert.Equal(t, `the keys of "https://login.example" have not been loaded yet`,
		a.problem.Detail)
	assert.Equal(t, 200, b.callAs("", http.MethodGet, "/healthz", "").status)
	assert.Equal(t, 200, b.call(http.MethodGet, "/v1/task-types", "").status)

	signing := foreign
	signing.JWKSURL, signing.PrivateKey = "", private
	issuer, err := auth.NewIssuer(signing)
	require.NoError(t, err)
	token, err := issuer.Issue("acme", "x", []auth.Scope{auth.ScopeRead}, time.Hour, time.Now())
	require.NoError(t, err)
	a = b.callAs(token, http.MethodGet, "/v1/task-types", "")
	assert.Equal(t, 503, a.status, "it may be good: the caller should come again")
	assert.NotEmpty(t, a.header.Get("Retry-After"))
	require.NoError(t, l.Close())

	keys, err := auth.ReadKeys(public)
	require.NoError(t, err)
	set, err := keys.JWKS()
	require.NoError(t, err)
	again, err := net.Listen("tcp", l.Addr().String())
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(set)
	})}
	go func() { _ = server.Serve(again) }()
	t.Cleanup(func() { _ = server.Close() })
	require.Eventually(t, func() bool {
		return b.callAs(token, http.MethodGet, "/v1/task-types", "").status == 200
	}, patience, 100*time.Millisecond)
	assert.Equal(t, 200, b.callAs("", http.MethodGet, "/readyz", "").status)
}

// However many ask whether a node is ready, one connection to the database is busy with it: tenants
// need the others.
func TestReadyTakesOneConnection(t *testing.T) {
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE asyncflow.schema_versions`)
	require.NoError(t, err)
	var asking sync.WaitGroup
	for range 100 {
		asking.Go(func() {
			assert.Equal(t, 503, b.callAs("", http.MethodGet, "/readyz", "").status)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		asking.Wait()
	}()
	most := 0
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-look.C:
		}
		var n int
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
			WHERE relation = 'asyncflow.schema_versions'::regclass AND NOT granted`).Scan(&n))
		most = max(most, n)
	}
	assert.Positive(t, most)
	assert.LessOrEqual(t, most, 2, "one that is being cancelled, and the next")
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Eventually(t, func() bool {
		return b.callAs("", http.MethodGet, "/readyz", "").status == 200
	}, patience, 10*time.Millisecond)
}
