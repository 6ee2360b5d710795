package callbacks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// tokenServer is a token endpoint over TLS, with an authority of its own.
type tokenServer struct {
	*httptest.Server
	ca     string
	mu     sync.Mutex
	issued int
	answer func(http.ResponseWriter, *http.Request, int) // instead of a token
	life   int                                           // seconds of a token; 0: it doesn't say
}

const clientSecret = "swordfish & ü"

func newTokenServer(t *testing.T) *tokenServer {
	t.Helper()
	ca := newAuthority(t, "login")
	s := &tokenServer{ca: ca.pem, life: 3600}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.token))
	s.TLS = ca.server()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *tokenServer) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // once it is read, the request's context ends when the client goes away
	s.mu.Lock()
	s.issued++
	n, answer, life := s.issued, s.answer, s.life
	s.mu.Unlock()
	if answer != nil {
		answer(w, r, n)
		return
	}
	id, secret, ok := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret) // RFC 6749, 2.3.1
	if !ok || id != "me" || secret != clientSecret ||
		r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, secret)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	doc := map[string]any{"access_token": fmt.Sprintf("token-number-%d", n), "token_type": "bearer"}
	if life > 0 {
		doc["expires_in"] = life
	}
	json.NewEncoder(w).Encode(doc)
}

func (s *tokenServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

func (s *tokenServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// outbound returns settings with the server's authority and login.
func (s *tokenServer) outbound(change ...func(*asyncflow.EndpointAuth)) asyncflow.Outbound {
	o := asyncflow.Outbound{TLS: asyncflow.EndpointTLS{CA: s.ca},
		Auth: asyncflow.EndpointAuth{Kind: "oauth2", TokenURL: s.URL + "/token", ClientID: "me",
			ClientSecret: clientSecret, Scopes: []string{"a", "b"}}}
	for _, f := range change {
		f(&o.Auth)
	}
	return o
}

// protected starts a worker that accepts only the tokens of the returned set.
func protected(t *testing.T, s *tokenServer) (*worker, *sync.Map) {
	t.Helper()
	var good sync.Map
	ca := newAuthority(t, "worker")
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, ok := good.Load(r.Header.Get("Authorization")); !ok {
			rw.WriteHeader(401)
			fmt.Fprint(rw, "not you: ", r.Header.Get("Authorization"))
			return
		}
		reply(200, "")(rw, r)
	}, func(server *httptest.Server) { server.TLS = ca.server() })
	s.ca += ca.pem
	return w, &good
}

// A token is requested once, used by all deliveries, and requested again after a refusal.
func TestOAuth2(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	w, good := protected(t, s)
	good.Store("Bearer token-number-1", true)
	r := setup(t)
	d := deliveryWith(t, w.url, s.outbound())
	var sending sync.WaitGroup
	for range 50 {
		sending.Go(func() {
			o := r.Send(context.Background(), d)
			if o.Kind != asyncflow.OutcomeDone {
				t.Errorf("%+v", o)
			}
		})
	}
	sending.Wait()
	require.Equal(t, 1, s.count(), "one request for all 50")

	good.Clear() // the token is revoked
	good.Store("Bearer token-number-2", true)
	o := r.Send(t.Context(), d)
	require.Equal(t, 401, o.Status)
	require.Contains(t, o.Error, "not you: Bearer ********")
	require.NotContains(t, o.Error, "token-number")
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	require.Equal(t, 2, s.count())

	other := deliveryWith(t, w.url, s.outbound(func(a *asyncflow.EndpointAuth) {
		a.ClientSecret = "wrong-secret"
	}))
	o = r.Send(t.Context(), other)
	require.Equal(t, "the endpoint's token_url gave no token: it answered 401, invalid_client",
		o.Error, "another secret has no part in the token")
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Zero(t, o.Status)
}

// A token is not used up to its very expiry.
func TestOAuth2Expiry(t *testing.T) {
	t.Parallel()
	at := time.Now()
	require.Equal(t, at.Add(tokenLife), useUntil(at, time.Time{}))
	require.Equal(t, at.Add(time.Hour-30*time.Second), useUntil(at, at.Add(time.Hour)))
	require.Equal(t, at.Add(9*time.Second), useUntil(at, at.Add(10*time.Second)))

	s := newTokenServer(t)
	w, good := protected(t, s)
	r := setup(t)
	d := deliveryWith(t, w.url, s.outbound())
	good.Store("Bearer token-number-1", true)
	good.Store("Bearer token-number-2", true)
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	known, ok := r.tokens.known.get(d.Tenant, d.Endpoint.ID)
	require.True(t, ok)
	known.until = time.Now()
	r.tokens.known.put(d.Tenant, d.Endpoint.ID, known, len(known.header)+known.hide.bytes)
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	require.Equal(t, 2, s.count())
}

// Whatever a token endpoint does wrong makes the attempt fail, with a reason and without a secret.
func TestOAuth2Failures(t *testing.T) {
	t.Parallel()
	const begin = "the endpoint's token_url gave no token: "
	say := func(status int, kind, body string) func(http.ResponseWriter, *http.Request, int) {
		return func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Content-Type", kind)
			if status/100 == 3 {
				w.Header().Set("Location", "/elsewhere")
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, int)
		want   string
	}{
		"error": {say(400, "application/json",
			`{"error":"invalid_scope","error_description":"swordfish"}`),
			begin + "it answered 400, invalid_scope"},
		"strange error": {say(400, "application/json", `{"error":"swordfish"}`),
			begin + "it answered 400"},
		"503":      {say(503, "text/plain", "swordfish"), begin + "it answered 503"},
		"redirect": {say(307, "text/plain", ""), begin + "it answered 307"},
		"not JSON": {say(200, "application/json", "swordfish"), begin + "its answer can't be read"},
		"no token": {say(200, "application/json", `{"swordfish":1}`),
			begin + "its answer can't be read"},
		"not bearer": {say(200, "application/json",
			`{"access_token":"swordfish","token_type":"mac"}`),
			"the endpoint's token_url gave a token that is no bearer token"},
		"a broken token": {say(200, "application/json", `{"access_token":"sword\nfish"}`),
			"invalid header"},
		"endless": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			for {
				if _, err := io.WriteString(w, "swordfish swordfish swordfish"); err != nil {
					return
				}
			}
		}, "the endpoint's token_url gave an answer of more than 65536 bytes"},
		"a long token": {say(200, "application/json",
			`{"access_token":"swordfish`+strings.Repeat("x", maxAccessToken)+`"}`),
			"the endpoint's token_url gave an access token of 8201 bytes; the limit is 8192"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTokenServer(t)
			w, _ := protected(t, s)
			s.set(func() { s.answer = c.answer })
			o := setup(t).Send(t.Context(), deliveryWith(t, w.url, s.outbound()))
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, c.want)
			require.NotContains(t, o.Error, "swordfish")
			require.Empty(t, w.all())
		})
	}
}

// A token endpoint that doesn't answer delays an attempt no longer than its timeout.
func TestOAuth2Slow(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	w, _ := protected(t, s)
	s.set(func() {
		s.answer = func(_ http.ResponseWriter, r *http.Request, _ int) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // else an empty answer could still get through
		}
	})
	d := deliveryWith(t, w.url, s.outbound())
	d.Timeout = short
	o := setup(t).Send(t.Context(), d)
	requireOutcome(t,
		asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no answer within 150ms",
			Failure: asyncflow.FailureTimeout}, o)
	require.Less(t, o.Duration, ample/2)
}

// A tenant chooses the token endpoint, like the endpoint: it is dialled through the same guard.
func TestOAuth2IsGuarded(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	names := newNameServer(t)
	names.set("login.example.com", "127.0.0.1", "127.0.0.1")
	guarded := setup(t, func(c *Config) {
		c.Egress, c.Resolver = asyncflow.Egress{}, names.resolver()
	})
	outbound := s.outbound()
	o := guarded.Send(t.Context(), deliveryWith(t, "https://worker.example.com/", outbound))
	require.Contains(t, o.Error, "the endpoint's token_url must name its host")
	require.Equal(t, asyncflow.FailureLogin, o.Failure)
	outbound.Auth.TokenURL = strings.Replace(outbound.Auth.TokenURL, "127.0.0.1",
		"login.example.com", 1)
	o = guarded.Send(t.Context(), deliveryWith(t, "https://worker.example.com/", outbound))
	require.Contains(t, o.Error,
		"token_url gave no token: the endpoint's address is in "+refusedNetwork)
	require.Equal(t, asyncflow.FailureLogin, o.Failure)
	denying := setup(t, func(c *Config) {
		c.Egress = policy(t, nil, []string{"login.example.com"})
	})
	o = denying.Send(t.Context(), deliveryWith(t, "https://worker.example.com/", outbound))
	require.Contains(t, o.Error, "the endpoint's token_url is where the operator lets no "+
		"delivery go")
	require.Equal(t, asyncflow.FailureLogin, o.Failure)
	require.Zero(t, s.count())
}

// There is no login for a delivery that the policy refuses.
func TestOAuth2ComesAfterTheGuard(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	r := setup(t, func(c *Config) {
		c.Egress = policy(t, []string{"127.0.0.0/8"}, []string{"worker.example.com"})
	})
	o := r.Send(t.Context(), deliveryWith(t, "https://worker.example.com/", s.outbound()))
	require.Contains(t, o.Error, "the endpoint's URL is where the operator lets no delivery go")
	require.Zero(t, s.count())
}
