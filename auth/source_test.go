package auth

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// keyServer serves the key set of an issuer; tests can change its answer.
type keyServer struct {
	*httptest.Server
	answer  atomic.Pointer[http.HandlerFunc]
	fetches atomic.Int32
}

func newKeyServer(t testing.TB, start func(http.Handler) *httptest.Server) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		(*s.answer.Load())(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	s.publish(http.StatusServiceUnavailable, nil)
	return s
}

func (s *keyServer) publish(status int, body []byte) {
	s.do(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
}

func (s *keyServer) do(f http.HandlerFunc) { s.answer.Store(&f) }

// config returns a config that trusts the issuer by its key set, and fetches it only when told to.
func (s *keyServer) config() Config {
	cfg := DefaultConfig()
	cfg.JWKSURL, cfg.Algorithm, cfg.Interval = s.URL+"/jwks", "EdDSA", maxInterval
	if cert := s.Certificate(); cert != nil {
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AddCert(cert)
	}
	return cfg
}

// tokenOf creates a token with a key of an id.
func tokenOf(t testing.TB, key pair, kid any, claims fields) string {
	t.Helper()
	return sign(t, jwt.SigningMethodEdDSA, key.signer,
		headerWith(fields{"alg": "EdDSA", "kid": kid}), claimsWith(claims))
}

func named(t testing.TB, key pair, kid string) []byte {
	t.Helper()
	return jwkOf(t, key, fields{"kid": kid, "use": "sig", "alg": "EdDSA"})
}

func verify(v *Verifier, token string) error {
	_, err := v.Verify(context.Background(), token, testNow)
	return err
}

// When keys come and go at the issuer, their tokens are accepted and refused accordingly, even
// tokens that were verified before.
func TestRotationAtTheIssuer(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	a, b := newEd25519(t, nil), newEd25519(t, nil)
	ofA, ofB := tokenOf(t, a, "a", nil), tokenOf(t, b, "b", nil)
	v := newVerifier(t, s.config())
	source := v.trust.Load().issuers[0].source
	source.rest = 0

	s.publish(200, setOf(named(t, a, "a")))
	require.NoError(t, verify(v, ofA), "the first token has the keys fetched")
	requireRefused(t, verify(v, ofB), "not known here")
	s.publish(200, setOf(named(t, a, "a"), named(t, b, "b")))
	require.NoError(t, verify(v, ofB), "a new key is looked for at once")
	require.NoError(t, verify(v, ofA))
	require.Equal(t, 2, v.trust.Load().cache.size())

	s.publish(200, setOf(named(t, b, "b")))
	require.NoError(t, source.load(t.Context()))
	requireRefused(t, verify(v, ofA), "not known here")
	require.NoError(t, verify(v, ofB))

	other := newEd25519(t, nil) // the same id, another key
	s.publish(200, setOf(named(t, other, "b")))
	require.NoError(t, source.load(t.Context()))
	requireRefused(t, verify(v, ofB), "signature doesn't verify")
	require.NoError(t, verify(v, tokenOf(t, other, "b", nil)))

	requireRefused(t, verify(v, tokenOf(t, other, absent, nil)), "the header kid is required")
	requireRefused(t, verify(v, tokenOf(t, other, "", nil)), "not known here")
}

// Whatever the issuer's server answers, the last good keys stay in use.
func TestOutageOfTheIssuer(t *testing.T) {
	t.Parallel()
	key := newEd25519(t, nil)
	good := setOf(named(t, key, "a"))
	oct := []byte(`{"kty":"oct","kid":"o","k":"` + base64url(testSecret) + `"}`)
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			"was answered with 500"},
		"not found": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			_,
				_ = w.Write(good)
		}, "was answered with 404"},
		"garbage": {func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = w.Write([]byte("<html>hello"))
		}, "is not a JWK Set"},
		"PEM": {func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = w.Write(newEd25519(t, nil).public)
		}, "is not a JWK Set"},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, "is not a JWK Set"},
		"no keys": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(setOf()) },
			"no key for signatures"},
		"a secret": {func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = w.Write(setOf(named(t, key, "a"), oct))
		}, "is a symmetric key"},
		"an id twice": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(setOf(named(t, key, "a"), named(t, newEd25519(t, nil), "a")))
		}, "two keys have the id"},
		"cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9999")
			_, _ = w.Write(good)
		}, "unexpected EOF"},
		"a broken line": {func(w http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		},
			"EOF"},
		"a redirect": {func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
			"was answered with 302"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeaderBytes))
		}, "exceeded"},
		"a slow body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(good[:10])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // else the end of the body could still get through
		}, "deadline exceeded"},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // else an empty answer could still get through
		}, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newKeyServer(t, httptest.NewTLSServer)
			s.publish(200, good)
			v := newVerifier(t, s.config())
			source := v.trust.Load().issuers[0].source
			require.NoError(t, source.load(t.Context()))
			require.NoError(t, v.Ready())
			limit := source.limit
			if tc.want == "deadline exceeded" {
				source.limit = 300 * time.Millisecond
			}
			s.do(tc.answer)
			require.ErrorContains(t, source.load(t.Context()), tc.want)
			require.NoError(t, verify(v, tokenOf(t, key, "a", nil)))
			requireRefused(t, verify(v, sign(t, jwt.SigningMethodHS256, testSecret,
				headerWith(fields{"kid": "o"}), claimsWith(nil))), "algorithm is not EdDSA")
			require.NoError(t, v.Ready())
			source.limit = limit
			s.publish(200, good)
			require.NoError(t, source.load(t.Context()), "it comes back")
		})
	}
}

// An endless body is not read forever.
func TestHugeKeySet(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewServer)
	sent := make(chan int, 1)
	s.do(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for chunk := make([]byte, 64<<10); n < 1<<30; {
			wrote, err := w.Write(chunk)
			n += wrote
			if err != nil {
				break
			}
		}
		sent <- n
	})
	cfg := s.config()
	cfg.AllowHTTP = true
	v := newVerifier(t, cfg)
	require.ErrorContains(t, v.trust.Load().issuers[0].source.load(t.Context()),
		"has more than 262144 bytes")
	require.Less(t, <-sent, 64<<20)
}

func TestPackedKeySet(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	s.do(func(w http.ResponseWriter, r *http.Request) {
		require.NotContains(t, r.Header.Get("Accept-Encoding"), "gzip")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte("\x1f\x8b"))
	})
	require.ErrorContains(t, newVerifier(t,
		s.config()).trust.Load().issuers[0].source.load(t.Context()), "is not a JWK Set")
}

// The server must prove its identity.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	s.publish(200, setOf(named(t, newEd25519(t, nil), "a")))
	cfg := s.config()
	cfg.RootCAs = x509.NewCertPool()
	require.ErrorContains(t, newVerifier(t, cfg).trust.Load().issuers[0].source.load(t.Context()),
		"certificate")
	require.Zero(t, s.fetches.Load())
}

func TestJWKSConfigRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"plain http": {func(c *Config) { c.JWKSURL = "http://login.example/jwks" },
			"JWKSURL must be an https URL"},
		"no host": {func(c *Config) { c.JWKSURL = "https:///jwks" },
			"JWKSURL must be an absolute https URL"},
		"a file": {func(c *Config) { c.JWKSURL = "file:///etc/passwd" },
			"JWKSURL must be an absolute https URL"},
		"no URL": {func(c *Config) { c.JWKSURL = "jwks.json" },
			"JWKSURL must be an absolute https URL"},
		"a password": {func(c *Config) { c.JWKSURL = "https://a:b@login.example/jwks" },
			"without user"},
		"no algorithm": {func(c *Config) { c.Algorithm = "" }, "Algorithm must be set"},
		"none":         {func(c *Config) { c.Algorithm = "none" }, "Algorithm is \"none\""},
		"HS256":        {func(c *Config) { c.Algorithm = "HS256" }, "a public key is no secret"},
		"RS512":        {func(c *Config) { c.Algorithm = "RS512" }, "Algorithm is \"RS512\""},
		"two places": {func(c *Config) { c.PublicKeys = newRSA(t).public },
			"PublicKeys must be set alone"},
		"two places 2": {func(c *Config) { c.PublicKeysFile = "keys.pem" },
			"PublicKeys must be set alone"},
		"a secret too": {func(c *Config) { c.HMACSecret = testSecret }, "keys are of one family"},
		"no interval": {func(c *Config) { c.Interval = time.Millisecond },
			"Interval must be between 1s and 24h"},
		"no issuer":   {func(c *Config) { c.Issuer = "" }, "Issuer must not be empty"},
		"no audience": {func(c *Config) { c.Audience = "" }, "Audience must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := DefaultConfig()
			cfg.JWKSURL, cfg.Algorithm = "https://login.example/jwks", "RS256"
			newVerifier(t, cfg)
			tc.change(&cfg)
			_, err := NewVerifier(cfg)
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
		})
	}
}

// An issuer that can't be reached delays only its own callers.
func TestReadyNamesTheIssuer(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	key := newEd25519(t, nil)
	foreign, mine := s.config(), secretConfig()
	foreign.Issuer, foreign.Interval = "https://login.example", time.Second
	v, err := NewVerifier(mine, foreign)
	require.NoError(t, err)
	requireCode(t, v.Ready(), asyncflow.CodeUnavailable,
		`the keys of "https://login.example" have not been loaded yet`)
	require.NoError(t, verify(v, hs256(t, nil, nil)))
	token := tokenOf(t, key, "a", fields{"iss": "https://login.example"})
	requireCode(t, verify(v, token), asyncflow.CodeUnavailable, "have not been loaded yet")

	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- v.Run(ctx, slog.New(slog.DiscardHandler)) }()
	s.publish(200, setOf(named(t, key, "a")))
	require.Eventually(t, func() bool { return v.Ready() == nil }, patience, 10*time.Millisecond)
	require.NoError(t, verify(v, token))
	s.publish(200, setOf(named(t, newEd25519(t, nil), "b")))
	require.Eventually(t, func() bool { return verify(v, token) != nil }, patience,
		10*time.Millisecond, "Run fetches again")
	stop()
	require.NoError(t, <-ran)
}

// Invented key ids cause no requests to the issuer.
func TestUnknownKeysAreAskedForSeldom(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	key := newEd25519(t, nil)
	s.publish(200, setOf(named(t, key, "a")))
	v := newVerifier(t, s.config())
	for i := range 200 {
		requireRefused(t, verify(v, tokenOf(t, key, "made-up-"+strconv.Itoa(i), nil)),
			"not known here")
	}
	require.EqualValues(t, 1, s.fetches.Load())
	require.NoError(t, verify(v, tokenOf(t, key, "a", nil)))
}

// All callers who wait for a new key share one fetch; a caller without time doesn't wait.
func TestWaitingForAKey(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	a, b := newEd25519(t, nil), newEd25519(t, nil)
	s.publish(200, setOf(named(t, a, "a")))
	v := newVerifier(t, s.config())
	v.trust.Load().issuers[0].source.rest = 0
	require.NoError(t, v.trust.Load().issuers[0].source.load(t.Context()))
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	s.do(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		_, _ = w.Write(setOf(named(t, a, "a"), named(t, b, "b")))
	})
	token := tokenOf(t, b, "b", nil)
	var waiting sync.WaitGroup
	errs := make(chan error, 20)
	for range 20 {
		waiting.Go(func() { errs <- verify(v, token) })
	}
	<-arrived
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := v.Verify(hurried, tokenOf(t, b, "c", nil), testNow)
	requireRefused(t, err, "not known here")
	require.NoError(t, verify(v, tokenOf(t, a, "a", nil)), "known keys don't wait")
	close(release)
	waiting.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.LessOrEqual(t, s.fetches.Load(), int32(3))
}

// A file of keys is read again; a bad one is ignored.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.pem")
	write := func(text []byte) { require.NoError(t, os.WriteFile(file, text, 0o600)) }
	a, b := newEd25519(t, map[string]string{"kid": "a"}),
		newEd25519(t, map[string]string{"kid": "b"})
	ofA, ofB := tokenOf(t, a, "a", nil), tokenOf(t, b, "b", nil)
	cfg := DefaultConfig()
	cfg.PublicKeysFile = file
	for _, text := range []string{"", "hello", string(a.private)} {
		write([]byte(text))
		_, err := NewVerifier(cfg)
		requireCode(t, err, asyncflow.CodeInvalid, "PublicKeysFile can't be used")
	}
	require.NoError(t, os.Remove(file))
	_, err := NewVerifier(cfg)
	requireCode(t, err, asyncflow.CodeInvalid, "no such file")

	write(a.public)
	v := newVerifier(t, cfg)
	source := v.trust.Load().issuers[0].source
	source.rest = 0
	require.NoError(t, v.Ready())
	require.NoError(t, verify(v, ofA))
	requireRefused(t, verify(v, ofB), "not known here")
	write(append(a.public, b.public...))
	require.NoError(t, verify(v, ofB), "a new key is looked for at once")
	require.NoError(t, verify(v, ofA))
	for name, text := range map[string][]byte{"empty": nil, "another family": newRSA(t).public,
		"huge": make([]byte, maxKeysBytes+1), "private": b.private, "half": b.public[:60]} {
		write(text)
		require.Error(t, source.load(t.Context()), name)
		require.NoError(t, verify(v, ofA), name)
		require.NoError(t, verify(v, ofB), name)
	}
	require.NoError(t, os.Remove(file))
	require.ErrorContains(t, source.load(t.Context()), "no such file")
	require.NoError(t, verify(v, ofA))
	write(setOf(named(t, b, "b")))
	require.NoError(t, source.load(t.Context()), "a JWK Set does too")
	require.NoError(t, verify(v, ofB))
	requireRefused(t, verify(v, ofA), "not known here")
}

// A file that may never end is not read: the start must not hang.
func TestKeyPipe(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.PublicKeysFile = filepath.Join(t.TempDir(), "keys.pem")
	require.NoError(t, syscall.Mkfifo(cfg.PublicKeysFile, 0o600))
	_, err := NewVerifier(cfg)
	requireCode(t, err, asyncflow.CodeInvalid, "not a regular file")
}

// A failure is logged once, not at each try; keys are logged when they change.
func TestFollowSaysWhatMatters(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	cfg := s.config()
	cfg.Interval = time.Second
	v := newVerifier(t, cfg)
	v.trust.Load().issuers[0].source.every = 5 * time.Millisecond
	out, in := io.Pipe()
	defer in.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		_ = v.Run(ctx, slog.New(slog.NewTextHandler(in, nil)))
		close(done)
	}()
	line := func() string {
		text := make([]byte, 4096)
		n, err := out.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
	require.Contains(t, line(), `was answered with 503`)
	require.Eventually(t, func() bool {
		return s.fetches.Load() > 3
	}, patience, 20*time.Millisecond)
	s.publish(200, setOf(named(t, newEd25519(t, nil), "a")))
	require.Contains(t, line(), `loaded" issuer=asyncflow from=`)
	s.publish(200, setOf(named(t, newEd25519(t, nil), "b")))
	require.Contains(t, line(), `keys=[b]`)
	stop()
	<-done
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := &source{every: time.Minute}
	for failures, most := range []time.Duration{time.Minute, time.Second, 2 * time.Second,
		4 * time.Second, 8 * time.Second, 16 * time.Second, lastRetry, lastRetry} {
		t.Run(fmt.Sprintf("failure %d", failures), func(t *testing.T) {
			for range 20 {
				p := s.pause(failures)
				require.LessOrEqual(t, p, most)
				require.GreaterOrEqual(t, p, most*8/10-1)
			}
		})
	}
	require.LessOrEqual(t, (&source{every: time.Second}).pause(50), time.Second)
}
