package console_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/console"
)

const configurationPath = "/.well-known/openid-configuration"

// brief makes logins give up on an issuer soon.
func brief(cfg *console.Config) { cfg.OIDC.Timeout = 2 * time.Second }

// later is a clock that runs ahead of the real one.
type later struct{ ahead atomic.Int64 }

func (l *later) set(cfg *console.Config) {
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }
}

// pass lets a time pass.
func (l *later) pass(d time.Duration) { l.ahead.Add(int64(d)) }

// A node without its issuer works, and a login says what is wrong. One some seconds later tries
// again.
func TestIssuerThatIsDown(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, clock.set)
	for name, answer := range map[string]http.HandlerFunc{
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a failure": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"a page":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"a redirect": func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, "/x", http.StatusFound)
		},
	} {
		i.with(func() { i.instead[configurationPath] = answer })
		t.Log(name)
		refused(t, b.do("GET", "/console/oidc", nil), 502, "it can&#39;t be reached")
		clock.pass(5 * time.Second)
	}
	assert.Zero(t, i.count("/x"))
	assert.Equal(t, 200, b.do("GET", "/console", nil).status)
	b.login(b.token)
	i.with(func() { delete(i.instead, configurationPath) })
	b.begin("/console")
}

// However many logins there are, a node asks an issuer once in 5 seconds after a failure.
func TestIssuerThatFailedIsLeftAlone(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, clock.set)
	down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }
	i.with(func() { i.instead[configurationPath] = down })
	for range 10 {
		refused(t, b.do("GET", "/console/oidc", nil), 502, "it can&#39;t be reached")
	}
	assert.Equal(t, 1, i.count(configurationPath))
	clock.pass(5 * time.Second)
	var logins sync.WaitGroup
	for range 10 {
		logins.Go(func() { refused(t, b.do("GET", "/console/oidc", nil), 502, "failed") })
	}
	logins.Wait()
	assert.Equal(t, 2, i.count(configurationPath))
	i.with(func() { delete(i.instead, configurationPath) })
	refused(t, b.do("GET", "/console/oidc", nil), 502, "failed")
	clock.pass(5 * time.Second)
	b.begin("/console")
	assert.Equal(t, 3, i.count(configurationPath))
}

// stallToken makes the issuer keep requests for tokens until goOn is closed. arrived gets each.
func (i *testIssuer) stallToken() (arrived, goOn chan struct{}) {
	arrived, goOn = make(chan struct{}, 64), make(chan struct{})
	i.with(func() {
		i.instead["/token"] = func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-goOn
			writeJSON(w, 400, map[string]any{"error": "invalid_grant"})
		}
	})
	return arrived, goOn
}

// from returns the headers of a browser that comes back from the issuer, by its address.
func from(address, cookie string) headers {
	return fromElsewhere.with("Cookie", cookie).with("X-Forwarded-For", address)
}

// One cookie of a login serves once, wherever it comes from. It keeps nobody else out.
func TestOIDCReplayedLogin(t *testing.T) {
	b, i := setupOIDC(t)
	arrived, goOn := i.stallToken()
	cookie, target := b.begin("/console")
	back := b.atIssuer(target)
	first := make(chan answer, 1)
	go func() { first <- b.do("GET", back, from("203.0.113.1", cookie)) }()
	<-arrived
	var replays sync.WaitGroup
	for n := range 32 {
		replays.Go(func() {
			refused(t, b.do("GET", back, from(fmt.Sprintf("203.0.113.%d", n), cookie)), 400,
				"was used already")
		})
	}
	replays.Wait()
	assert.Equal(t, 1, i.count("/token"))
	i.with(func() { delete(i.instead, "/token") })
	honest, target := b.begin("/console")
	a := b.do("GET", b.atIssuer(target), from("203.0.113.1", honest))
	assert.Equal(t, 303, a.status, "%s", a.body)
	close(goOn)
	refused(t, <-first, 502, "refused the code")
	refused(t, b.do("GET", back, from("203.0.113.1", cookie)), 400, "was used already")
}

// An address ends 2 logins at once, however many it holds: a /64 of IPv6 is one. Those beyond keep
// their cookies, to be tried again. Other addresses don't notice.
func TestOIDCLoginsOfOneAddress(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"IPv4": "203.0.113.%[2]d", "IPv6": "2001:db8::%[1]d",
	} {
		t.Run(name, func(t *testing.T) {
			b, i := setupOIDC(t)
			arrived, goOn := i.stallToken()
			answers := make(chan answer, 2)
			login := func(n int) answer {
				cookie, target := b.begin("/console")
				return b.do("GET",
					"/console/oidc/callback?code=x&state="+target.Query().Get("state"),
					from(fmt.Sprintf(address, n, 1), cookie))
			}
			for n := range 2 {
				go func() { answers <- login(n) }()
				<-arrived
			}
			for n := range 3 {
				a := login(n)
				refused(t, a, 429, "the limit of your address is 2 logins")
				assert.Equal(t, "2", a.header.Get("Retry-After"))
				assert.Nil(t, a.cookies[loginCookie], "it keeps its cookie")
			}
			assert.Equal(t, 2, i.count("/token"))
			i.with(func() { delete(i.instead, "/token") })
			cookie, target := b.begin("/console")
			back := b.atIssuer(target)
			refused(t, b.do("GET", back, from(fmt.Sprintf(address, 9, 1), cookie)), 429,
				"your address")
			a := b.do("GET", back, from("198.51.100.1", cookie))
			assert.Equal(t, 303, a.status, "%s", a.body)
			close(goOn)
			for range 2 {
				refused(t, <-answers, 502, "refused the code")
			}
			cookie, target = b.begin("/console")
			a = b.do("GET", b.atIssuer(target), from(fmt.Sprintf(address, 9, 1), cookie))
			assert.Equal(t, 303, a.status, "%s", a.body)
		})
	}
}

// An issuer's configuration must lead to its endpoints by https.
func TestIssuerWithAWrongConfiguration(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, clock.set)
	for name, change := range map[string]func(map[string]any){
		"another issuer": func(doc map[string]any) { doc["issuer"] = "https://elsewhere.example" },
		"plain http": func(doc map[string]any) {
			doc["token_endpoint"] = "http://elsewhere.example"
		},
		"a script": func(doc map[string]any) {
			doc["authorization_endpoint"] = "javascript:alert(1)"
		},
		"no keys": func(doc map[string]any) { delete(doc, "jwks_uri") },
		"a long endpoint": func(doc map[string]any) {
			doc["authorization_endpoint"] = "https://x/" + strings.Repeat("x", 2048)
		},
	} {
		i.with(func() { i.configure = change })
		t.Log(name)
		asked := i.count(configurationPath) + 1
		refused(t, b.do("GET", "/console/oidc", nil), 502, "failed")
		assert.Equal(t, asked, i.count(configurationPath))
		clock.pass(5 * time.Second)
	}
}

// An issuer that stalls keeps a login for a limited time, wherever it stalls. Logins that wait for
// its configuration share one request.
func TestIssuerThatStalls(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, brief, clock.set)
	ended := make(chan struct{})
	defer close(ended)
	var waiting atomic.Int64
	stall := func(_ http.ResponseWriter, r *http.Request) {
		waiting.Add(1)
		// else the server doesn't notice the end of the connection
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}
	i.with(func() { i.instead[configurationPath] = stall })
	var logins sync.WaitGroup
	for range 5 {
		logins.Go(func() { refused(t, b.do("GET", "/console/oidc", nil), 502, "failed") })
	}
	logins.Wait()
	assert.Equal(t, int64(1), waiting.Load())
	clock.pass(5 * time.Second)
	i.with(func() { delete(i.instead, configurationPath) })
	for _, path := range []string{"/token", "/keys"} {
		cookie, target := b.begin("/console")
		back := b.atIssuer(target)
		i.with(func() { i.instead[path] = stall })
		t.Log(path)
		refused(t, b.do("GET", back, fromElsewhere.with("Cookie", cookie)), 502, "failed")
		i.with(func() { delete(i.instead, path) })
	}
}

// Of an answer without end, a node reads little.
func TestIssuerThatAnswersWithoutEnd(t *testing.T) {
	var clock later
	b, i := setupOIDC(t, clock.set)
	var sent atomic.Int64
	flood := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part := []byte(strings.Repeat(" ", 64<<10))
		for range 100 << 20 / len(part) {
			n, err := w.Write(part)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	check := func(path string, a answer) {
		t.Helper()
		t.Log(path)
		refused(t, a, 502, "failed")
		assert.Positive(t, sent.Load())
		assert.Less(t, sent.Swap(0), int64(32<<20), "the connection's buffers hold some of it")
		i.with(func() { delete(i.instead, path) })
	}
	i.with(func() { i.instead[configurationPath] = flood })
	check(configurationPath, b.do("GET", "/console/oidc", nil))
	clock.pass(5 * time.Second)
	for _, path := range []string{"/token", "/keys"} {
		cookie, target := b.begin("/console")
		back := b.atIssuer(target)
		i.with(func() { i.instead[path] = flood })
		check(path, b.do("GET", back, fromElsewhere.with("Cookie", cookie)))
	}
}

// Settings that can't work are refused before the node starts.
func TestOIDCSettings(t *testing.T) {
	t.Parallel()
	good := console.OIDC{Issuer: "https://login.example.com/realm", ClientID: "x"}
	require.NoError(t, good.Check())
	require.NoError(t, console.OIDC{}.Check())
	for field, cases := range map[string][]console.OIDC{
		"oidc-issuer": {{Issuer: "http://login.example.com", ClientID: "x"},
			{Issuer: "login.example.com", ClientID: "x"}, {Issuer: "https://a:b@x", ClientID: "x"},
			{Issuer: "https://x?y", ClientID: "x"}, {ClientID: "x"}, {ClientSecret: "x"}},
		"oidc-client-id": {{Issuer: "https://x"}},
		"oidc-token":     {{Issuer: "https://x", ClientID: "x", Token: "refresh"}},
	} {
		t.Run(field, func(t *testing.T) {
			for _, c := range cases {
				assert.ErrorContains(t, c.Check(), field, "%+v", c)
			}
		})
	}
	for _, i := range []console.Instance{{Color: "red"}, {Color: "#12345"}, {Color: "#1234567"},
		{Color: "#12345g"}, {Name: strings.Repeat("x", 41)}, {Name: "a\nb"}, {Name: "\xff"}} {
		t.Run(fmt.Sprintf("%+v", i), func(t *testing.T) {
			assert.Error(t, i.Check(), "%+v", i)
		})
	}
	for _, cfg := range []console.Config{{Instance: console.Instance{Color: "red"}},
		{OIDC: console.OIDC{Issuer: "x"}}} {
		_, err := console.New(cfg)
		assert.Error(t, err, "%+v", cfg)
	}
	assert.NoError(t, console.Instance{Name: strings.Repeat("é", 40), Color: "#A0b1C2"}.Check())
}
