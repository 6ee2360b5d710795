package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// patience bounds the wait for an event. It is long because a slow machine is no fault, and costs
// nothing because the wait ends with the event.
const patience = 2 * time.Minute

// bundle is an API server on a port of its own, over a database of its own.
type bundle struct {
	t         testing.TB
	url       string
	dbURL     string
	store     *store.Store
	committer *dispatcher.Committer
	db        *pgx.Conn // to look and change from the side
	keys      *callbacks.Keys
	issuer    *auth.Issuer
	stop      func() // stops the server before the end of the test

	verifier *auth.Verifier
	server   *httpapi.Server

	token string // of tenant acme, with all scopes but admin
}

const maxContext = 1000

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, "acme", store.WithoutRoles(pgtest.NoRoles()))
	return err
}

// prepareTwo is prepare, with the tenant other beside acme.
func prepareTwo(ctx context.Context, url string) error {
	if err := prepare(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, "other", store.WithoutRoles(pgtest.NoRoles()))
	return err
}

func authConfig() auth.Config {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(strings.Repeat("s", 32))
	return cfg
}

// exec changes the tables of a tenant from the side.
func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := pgtest.Exec(b.t.Context(), b.db, b.dbURL, sql, args...)
	require.NoError(b.t, err)
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupWith(t, func(*httpapi.Config) {})
}

// setupWith is setup with another configuration of the server.
func setupWith(t *testing.T, configure func(*httpapi.Config)) *bundle {
	t.Helper()
	t.Parallel()
	return setupOn(t, func(*store.Config) {}, configure)
}

// setupTwo is setup for a test of two tenants.
func setupTwo(t *testing.T) *bundle {
	t.Helper()
	return setupTwoWith(t, func(*httpapi.Config) {})
}

// setupTwoWith is setupWith for a test of two tenants.
func setupTwoWith(t *testing.T, configure func(*httpapi.Config)) *bundle {
	t.Helper()
	t.Parallel()
	return setupOver(t, pgtest.Database(t, prepareTwo), func(*store.Config) {}, configure)
}

// setupOn is setupWith, with another configuration of the store too.
func setupOn(
	t testing.TB, configureStore func(*store.Config), configure func(*httpapi.Config),
) *bundle {
	t.Helper()
	return setupOver(t, pgtest.Database(t, prepare), configureStore, configure)
}

// setupOver is setupOn with the database at a URL.
func setupOver(
	t testing.TB, url string, configureStore func(*store.Config), configure func(*httpapi.Config),
) *bundle {
	t.Helper()
	storeConfig := store.Config{URL: url, Node: "node-1", NoRoles: pgtest.NoRoles(),
		Log: slog.New(slog.DiscardHandler)}
	configureStore(&storeConfig)
	storeConfig.URL, storeConfig.PooledURL = pgtest.Ways(t, storeConfig.URL)
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), storeConfig)
	})
	committer := dispatcher.NewCommitter(s, nil)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	keys, err := callbacks.NewKeys([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	verifier, err := auth.NewVerifier(authConfig())
	require.NoError(t, err)
	issuer, err := auth.NewIssuer(authConfig())
	require.NoError(t, err)
	cfg := httpapi.Config{Store: s, Committer: committer, Verifier: verifier, Keys: keys,
		Version: "test", MaxContext: maxContext, MaxBody: 1 << 20}
	configure(&cfg)
	server, err := httpapi.New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	stop := sync.OnceFunc(func() {
		require.NoError(t, server.Shutdown(30*time.Second))
		require.NoError(t, <-served)
	})
	t.Cleanup(func() {
		stop()
		committer.Close()
		s.Close()
		require.NoError(t, db.Close(context.Background()))
	})
	b := &bundle{t: t, dbURL: url, url: "http://" + l.Addr().String(), store: s, db: db, keys: keys,
		committer: committer, issuer: issuer, verifier: verifier, server: server, stop: stop}
	b.token = b.newToken("acme", auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate,
		auth.ScopeManage)
	return b
}

func (b *bundle) newToken(tenant string, scopes ...auth.Scope) string {
	token, err := b.issuer.Issue(tenant, "test", scopes, time.Hour, time.Now())
	require.NoError(b.t, err)
	return token
}

// adminToken returns an operator's token.
func (b *bundle) adminToken() string {
	token, err := b.issuer.IssueAdmin("test", time.Hour, time.Now())
	require.NoError(b.t, err)
	return token
}

// answer is the answer to a call.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Problem // when it is one
}

// call makes a call with the bundle's token.
func (b *bundle) call(method, path, body string) answer {
	return b.callAs(b.token, method, path, body)
}

// callUntilServed makes a call, again and again while a busy machine's database is too slow for it,
// as clients do. It returns the status.
func (b *bundle) callUntilServed(method, path, body string) int {
	b.t.Helper()
	for end := time.Now().Add(patience); ; {
		a := b.call(method, path, body)
		if a.status != http.StatusServiceUnavailable || time.Now().After(end) {
			return a.status
		}
	}
}

func (b *bundle) callAs(token, method, path, body string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path,
		strings.NewReader(body))
	require.NoError(b.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return b.do(req)
}

func (b *bundle) do(req *http.Request) answer {
	b.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	require.Equal(b.t, "nosniff", resp.Header.Get("X-Content-Type-Options"), req.URL.Path)
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	if resp.Header.Get("Content-Type") == "application/problem+json" &&
		req.Method != http.MethodHead {
		require.NoError(b.t, json.Unmarshal(a.body, &a.problem))
		require.Equal(b.t, a.status, a.problem.Status)
	}
	return a
}

// read decodes the body of an answer, which must be of a status.
func read[T any](b *bundle, status int, a answer) T {
	b.t.Helper()
	var v T
	require.Equal(b.t, status, a.status, "%s", a.body)
	require.NoError(b.t, json.Unmarshal(a.body, &v), "%s", a.body)
	return v
}

// pipe creates the task type of the tests: two stages, quick retries.
func (b *bundle) pipe() {
	b.t.Helper()
	a := b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"first","retry":{"max_attempts":2,"interval":-1}},{"name":"second"}]}`)
	require.Equal(b.t, http.StatusCreated, a.status, "%s", a.body)
}
