package console_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

const sessionCookie = "__Host-asyncflow_session"

// patience bounds the wait for an event.
const patience = 2 * time.Minute

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, "acme", store.WithoutRoles(pgtest.NoRoles()))
	return err
}

// bundle is an API with a console on a port of its own, over a database of its own.
type bundle struct {
	t      *testing.T
	url    string
	host   string // of url, with its port
	issuer *auth.Issuer
	store  *store.Store
	token  string // of the tenant acme, with all scopes but admin
	log    *slog.Logger
}

func secret(letter string) []byte { return []byte(strings.Repeat(letter, 32)) }

func authConfig() auth.Config {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = secret("s")
	return cfg
}

// setup starts a server with a console of another configuration.
func setup(t *testing.T, configure ...func(*console.Config)) *bundle {
	t.Helper()
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	url := pgtest.Database(t, prepare)
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: url, Node: "node-1",
			NoRoles: pgtest.NoRoles(), Log: log})
	})
	t.Cleanup(s.Close)
	b := &bundle{t: t, store: s, log: log}
	var err error
	b.issuer, err = auth.NewIssuer(authConfig())
	require.NoError(t, err)
	b.token = b.newToken(time.Hour)
	b.serve(configure...)
	return b
}

// serve starts a server over the bundle's database. The bundle's calls go to it.
func (b *bundle) serve(configure ...func(*console.Config)) {
	b.t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	l := &listener{Listener: tcp}
	b.host = l.Addr().String()
	b.url = "http://" + b.host
	verifier, err := auth.NewVerifier(authConfig())
	require.NoError(b.t, err)
	cfg := console.Config{Secret: secret("k"), Verifier: verifier, Version: "test"}
	for _, change := range configure {
		change(&cfg)
	}
	pages, err := console.New(cfg)
	require.NoError(b.t, err)
	keys, err := callbacks.NewKeys(secret("k"))
	require.NoError(b.t, err)
	committer := dispatcher.NewCommitter(b.store, nil)
	server, err := httpapi.New(httpapi.Config{Store: b.store, Committer: committer, Keys: keys,
		Verifier: cfg.Verifier, Version: "test", Console: pages, Log: b.log,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	require.NoError(b.t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	b.t.Cleanup(func() {
		l.closeUnused()
		require.NoError(b.t, server.Shutdown(30*time.Second))
		require.NoError(b.t, <-served)
		committer.Close()
	})
}

// listener knows the connections over which nothing came yet. A browser opens more than it uses,
// and a server that shuts down waits for all of them.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns []*conn
	ended bool
}

type conn struct {
	net.Conn
	used atomic.Bool
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	if l.ended {
		_ = c.Close()
	}
	return c, nil
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.used.Store(true)
	}
	return n, err
}

func (l *listener) closeUnused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, c := range l.conns {
		if !c.used.Load() {
			_ = c.Close()
		}
	}
}

func (b *bundle) newToken(life time.Duration) string {
	b.t.Helper()
	scopes := []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate, auth.ScopeManage}
	token, err := b.issuer.Issue("acme", "ann", scopes, life, time.Now())
	require.NoError(b.t, err)
	return token
}

// headers are the headers of a request, by name. Host is one of them.
type headers map[string]string

// own are the headers of a request by one of the console's pages.
var own = headers{"Sec-Fetch-Site": "same-origin"}

// with returns the headers and more.
func (h headers) with(name, value string) headers {
	all := headers{name: value}
	for name, value := range h {
		if _, ok := all[name]; !ok {
			all[name] = value
		}
	}
	return all
}

// answer is the answer to a request.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	cookies map[string]*http.Cookie
	problem api.Problem // when it is one
}

// plain follows no redirect, and asks for no compression.
var plain = &http.Client{
	Transport: &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// do makes a request without a body.
func (b *bundle) do(method, path string, h headers) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, nil)
	require.NoError(b.t, err)
	for name, value := range h {
		req.Header.Set(name, value)
	}
	if h["Host"] != "" {
		req.Host = h["Host"]
	}
	resp, err := plain.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, cookies: map[string]*http.Cookie{}}
	a.body, err = io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	for _, c := range resp.Cookies() {
		a.cookies[c.Name] = c
	}
	if resp.Header.Get("Content-Type") == "application/problem+json" && len(a.body) > 0 {
		require.NoError(b.t, json.Unmarshal(a.body, &a.problem))
	}
	return a
}

// login logs in with a token and returns the cookies that a browser then sends.
func (b *bundle) login(token string) string {
	b.t.Helper()
	a := b.do("POST", "/console/login", own.with("Authorization", "Bearer "+token))
	require.Equal(b.t, 200, a.status, "%s", a.body)
	require.NotNil(b.t, a.cookies[sessionCookie])
	return sessionCookie + "=" + a.cookies[sessionCookie].Value
}

// session is the answer of /console/session.
type session struct {
	LoggedIn  bool      `json:"logged_in"`
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Tenant    string    `json:"tenant"`
	Subject   string    `json:"subject"`
	Scopes    []string  `json:"scopes"`
	ExpiresAt time.Time `json:"expires_at"`
	Instance  struct{ Name, Color string }
	Version   string
	Dev       bool
	Login     struct{ Token, OIDC bool }
}

// session asks for the session of a request.
func (b *bundle) session(h headers) session {
	b.t.Helper()
	a := b.do("GET", "/console/session", h)
	require.Equal(b.t, 200, a.status, "%s", a.body)
	var s session
	require.NoError(b.t, json.Unmarshal(a.body, &s))
	return s
}
