package callbacks

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// encoders are ways in which a worker may repeat a text. The texts of other languages' encoders are
// written out below, in TestEscaped.
var encoders = map[string]func(string) string{
	"as it stands": func(s string) string { return s },
	"JSON":         func(s string) string { return marshal(s) },
	"JSON without HTML's escapes": func(s string) string {
		return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(marshal(s))
	},
	"HTML":            html.EscapeString,
	"a URL's query":   url.QueryEscape,
	"a path of a URL": url.PathEscape,
}

func marshal(s string) string {
	doc, _ := json.Marshal(s)
	return string(doc)
}

// A worker that repeats a secret, or the part of a header that is one, doesn't reveal it: neither
// in the answer to a test delivery nor in the error of an attempt.
func TestAnswersHideSecrets(t *testing.T) {
	t.Parallel()
	const secret = `sword"fish<1>&x y/ü'`
	ascii := strings.Replace(secret, "ü", "u", 1)
	both := base64.StdEncoding.EncodeToString([]byte("me:" + secret))
	header := func(name, value string) asyncflow.Outbound {
		return asyncflow.Outbound{Headers: map[string]string{name: value}}
	}
	auth := func(a asyncflow.EndpointAuth) asyncflow.Outbound { return asyncflow.Outbound{Auth: a} }
	for name, c := range map[string]struct {
		outbound asyncflow.Outbound
		shows    string
	}{
		"a header":          {header("X-Key", ascii), ascii},
		"a bearer in one":   {header("Authorization", "Bearer topsecrettoken"), "topsecrettoken"},
		"a token in one":    {header("Authorization", "tOKEN "+ascii), ascii},
		"a cookie":          {header("Cookie", `a=b; id="topsecretid"; c=d`), "topsecretid"},
		"a login in one":    {header("Authorization", "basic "+both), "me:" + secret},
		"a password in one": {header("Authorization", "Basic "+both), secret},
		"a base64 in one":   {header("Authorization", "Basic "+both), both},
		"a part of another": {header("Authorization", "Bearer "+ascii), "Bearer " + ascii},
		"a bearer token":    {auth(asyncflow.EndpointAuth{Kind: "bearer", Token: ascii}), ascii},
		"a password":        {basicLogin(secret), secret},
		"a login":           {basicLogin(secret), "me:" + secret},
		"a login's base64":  {basicLogin(secret), both},
		"a client's secret": {auth(asyncflow.EndpointAuth{ClientSecret: secret}), secret},
		"a certificate's key": {asyncflow.Outbound{TLS: asyncflow.EndpointTLS{Key: "swordfish\n/1"}},
			"swordfish\n/1"},
	} {
		for way, encode := range encoders {
			t.Run(name+" as "+way, func(t *testing.T) {
				t.Parallel()
				shown := encode(c.shows)
				set := newSettings(c.outbound)
				require.Equal(t, "<"+strings.Replace(shown, strings.Trim(shown, `"`),
					asyncflow.Mask, 1)+">",
					set.scrub("<"+shown+">", login{}))
				if c.outbound.Auth.ClientSecret != "" || c.outbound.TLS.Key != "" {
					return // only a real login or handshake would do
				}
				w := newWorker(t, func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("X-Echo", shown)
					rw.WriteHeader(500)
					fmt.Fprint(rw, "you sent ", shown)
				})
				r := setup(t)
				got := r.Test(t.Context(), testTo(t, w.url, c.outbound))
				want := strings.Replace(shown, strings.Trim(shown, `"`), asyncflow.Mask, 1)
				require.Equal(t, "you sent "+want, got.Answer.Body)
				require.Equal(t, want, got.Answer.Headers["X-Echo"])
				failed := "500 Internal Server Error: you sent " + want
				require.Equal(t, failed, got.Outcome.Error)
				require.Equal(t, failed,
					r.Send(t.Context(), deliveryWith(t, w.url, c.outbound)).Error)
			})
		}
	}
}

func basicLogin(password string) asyncflow.Outbound {
	return asyncflow.Outbound{Auth: asyncflow.EndpointAuth{Kind: "basic", Username: "me",
		Password: password}}
}

// A token of a login is masked like a secret.
func TestAnswersHideTokens(t *testing.T) {
	t.Parallel()
	s, ca := newTokenServer(t), newAuthority(t, "worker")
	s.answer = func(rw http.ResponseWriter, _ *http.Request, _ int) {
		reply(200, `{"access_token":"a+b/c==","token_type":"bearer"}`,
			"Content-Type: application/json")(rw, nil)
	}
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		reply(500, token+" "+url.QueryEscape(token))(rw, r)
	}, func(server *httptest.Server) { server.TLS = ca.server() })
	s.ca += ca.pem
	got := setup(t).Test(t.Context(), testTo(t, w.url, s.outbound()))
	require.Equal(t, "******** ********", got.Answer.Body)
}

// What an excerpt keeps of a secret at its end is masked, unless it is very short.
func TestExcerptsHideCutSecrets(t *testing.T) {
	t.Parallel()
	const secret = `"topsecrettoken"`
	escaped := strings.ReplaceAll(secret, `"`, `\"`)
	for kept, want := range map[int]string{
		5: escaped[:5] + "…", 6: "********…", 12: "********…", len(escaped): "********…",
	} {
		t.Run(fmt.Sprintf("%d bytes kept", kept), func(t *testing.T) {
			w := newWorker(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(500)
				fmt.Fprint(rw, strings.Repeat("x", excerptBytes-kept), escaped, "y")
			})
			d := deliveryWith(t, w.url,
				asyncflow.Outbound{Headers: map[string]string{"X-Key": secret}})
			o := setup(t).Send(t.Context(), d)
			_, end, _ := strings.Cut(o.Error, strings.Repeat("x", excerptBytes-kept))
			require.Equal(t, want, end)
		})
	}
}

// The same goes for what a reason quotes in its middle.
func TestReasonsHideCutSecrets(t *testing.T) {
	t.Parallel()
	secret := "topsecret" + strings.Repeat("t", 200)
	for name, answer := range map[string]http.HandlerFunc{
		"an outcome":     reply(200, `{"outcome":"`+secret+`"}`, "Content-Type: application/json"),
		"a content type": reply(200, "x", "Content-Type: "+secret),
		"a field": reply(200, `{"`+strings.Repeat(secret, 3)+`":1}`,
			"Content-Type: application/json"),
		"two of them": reply(200, `{"outcome":"…`+secret+`"}`, "Content-Type: application/json"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t, answer)
			o := setup(t).Send(t.Context(), deliveryWith(t, w.url,
				asyncflow.Outbound{Headers: map[string]string{"X-Key": secret}}))
			require.NotEmpty(t, o.Error)
			require.NotContains(t, o.Error, "topsecret")
			require.Contains(t, o.Error, asyncflow.Mask)
		})
	}
}

// An answer that is too large may end within a secret. What is shown of it doesn't.
func TestTooLargeAnswersHideCutSecrets(t *testing.T) {
	t.Parallel()
	secret := "topsecret" + strings.Repeat("t", 5000)
	w := newWorker(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(500)
		fmt.Fprint(rw, strings.Repeat(secret, 10))
	})
	got := setup(t).Test(t.Context(), testTo(t, w.url,
		asyncflow.Outbound{Headers: map[string]string{"X-Key": secret}}))
	require.Regexp(t, `^\*+$`, got.Answer.Body)
	require.True(t, got.Answer.Truncated)
}

// A worker that sends many ellipses can't make the search for cut secrets take long.
func TestMaskOfHostileTexts(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("a", 8000)
	set := newSettings(asyncflow.Outbound{Headers: map[string]string{"X-Key": secret}})
	start := time.Now()
	set.scrub(strings.Repeat(secret[1:]+"…", 40)+strings.Repeat("…", 100_000), login{})
	require.Less(t, time.Since(start), 10*time.Second)
}

// Short texts, schemes and names of cookies are no secrets.
func TestMaskLeavesOtherText(t *testing.T) {
	t.Parallel()
	set := newSettings(asyncflow.Outbound{Headers: map[string]string{"X-Short": "a & b",
		"Authorization": "Bearer topsecrettoken", "Cookie": "session=topsecretid; theme=dark"}})
	const text = "Bearer session theme=dark a & b a &amp; b topsecret"
	require.Equal(t, text, set.scrub(text, login{}))
}

// Texts are known by the escapes of encoders in other languages, too.
func TestEscaped(t *testing.T) {
	t.Parallel()
	for _, want := range []string{
		`a"'<&/ (ü😀`,
		`a\"'<&/ (\u00fc\ud83d\ude00`,                 // json.dumps of Python
		`a\"'<&\/ (\u00fc\ud83d\ude00`,                // json_encode of PHP
		`a%22'%3C%26%2F%20(%C3%BC%F0%9F%98%80`,        // encodeURIComponent of JavaScript
		`a&quot;&#x27;&lt;&amp;/ (ü😀`,                 // html.escape of Python
		`a&quot;&#039;&lt;&amp;/ (ü😀`,                 // htmlspecialchars of PHP
		`a&quot;&#39;&lt;&amp;/ (ü😀`,                  // escape of EJS, Lodash and others
		`a&quot;'&lt;&amp;/ (ü😀`, `a"'&lt;&amp;/ (ü😀`, // attributes and text of XML
	} {
		require.Contains(t, escaped(`a"'<&/ (ü😀`), want)
	}
}
