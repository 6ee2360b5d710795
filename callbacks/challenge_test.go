package callbacks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// challenged starts a worker that passes the challenge to its handler.
func challenged(
	t *testing.T, handle func(w http.ResponseWriter, r *http.Request, challenge string),
	change ...func(*httptest.Server),
) *worker {
	var w *worker
	w = newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		all := w.all()
		var c struct{ Type, Challenge string }
		if err := json.Unmarshal(all[len(all)-1].body, &c); err != nil ||
			c.Type != "asyncflow.challenge" {
			t.Errorf("no challenge: %s", all[len(all)-1].body)
		}
		handle(rw, r, c.Challenge)
	}, change...)
	return w
}

func (r *rig) challengeOnce(t *testing.T, d asyncflow.Delivery) error {
	return r.Challenge(t.Context(), d.Tenant, *d.Endpoint, d.At)
}

// A challenge is signed like a delivery (newWorker verifies that), with the endpoint's headers and
// a text of its own.
func TestChallenge(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	w := challenged(t, func(rw http.ResponseWriter, r *http.Request, c string) {
		seen[c] = true
		require.Equal(t, "k", r.Header.Get("X-Key"))
		json.NewEncoder(rw).Encode(map[string]string{"challenge": c, "more": "is fine"})
	})
	r := setup(t)
	d := deliveryWith(t, w.url, asyncflow.Outbound{Headers: map[string]string{"X-Key": "k"}})
	for range 3 {
		require.NoError(t, r.challengeOnce(t, d))
	}
	require.Len(t, seen, 3)
	for c := range seen {
		require.GreaterOrEqual(t, len(c), 26)
	}
	got := w.all()[0]
	require.Equal(t, http.MethodPost, got.Method)
	require.Regexp(t, `^asyncflow\.challenge\.[A-Z2-7]{26}$`, got.Header.Get("Webhook-Id"))
	require.JSONEq(t, `{"type":"asyncflow.challenge","challenge":"`+oneOf(seen,
		string(got.body))+`"}`,
		string(got.body))
}

func oneOf(texts map[string]bool, in string) string {
	for text := range texts {
		if strings.Contains(in, text) {
			return text
		}
	}
	return ""
}

// Any other answer is no echo. Its text is not passed on.
func TestChallengeRefused(t *testing.T) {
	t.Parallel()
	const not200 = "; it must be 200 and the challenge"
	const otherSecret = ". Workers answer so to a signature by another secret than theirs: " +
		"give the worker this endpoint's secret, or see whether its clock is right"
	status := func(code int, headers ...string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, r *http.Request, c string) {
			reply(code, `{"challenge":"`+c+`"}`, headers...)(w, r)
		}
	}
	body := func(text string) func(http.ResponseWriter, *http.Request, string) {
		return func(w http.ResponseWriter, r *http.Request, c string) {
			io.WriteString(w, strings.ReplaceAll(text, "$", c))
		}
	}
	const notText = "the answer to the challenge has not the text that was sent"
	const notJSON = `the answer to the challenge is not JSON such as {"challenge": "…"}`
	for name, c := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request, string)
		want   string
	}{
		"202": {status(202), "the challenge was answered with 202" + not200},
		"401": {status(401), "the challenge was answered with 401" + not200 + otherSecret},
		"403": {status(403), "the challenge was answered with 403" + not200 + otherSecret},
		"404": {status(404), "the challenge was answered with 404" + not200},
		"redirect": {status(307, "Location: /again"), "the challenge was answered with 307" +
			not200},
		"another": {body(`{"challenge":"secret word"}`), notText},
		"part of it": {func(w http.ResponseWriter, _ *http.Request, c string) {
			io.WriteString(w, `{"challenge":"`+c[1:]+`"}`)
		}, notText},
		"with a tail": {body(`{"challenge":"$x"}`), notText},
		"empty":       {body(`{"challenge":""}`), notText},
		"none":        {body(`{}`), notText},
		"null":        {body(`null`), notText},
		"the request": {body(`{"type":"asyncflow.challenge"}`), notText},
		"raw":         {body("$"), notJSON},
		"a number":    {body(`{"challenge":1}`), notJSON},
		"nothing":     {body(""), notJSON},
		"two":         {body(`{"challenge":"$"}{}`), notJSON},
		"huge": {body(`{"challenge":"$","x":"` + strings.Repeat("x", 4096) + `"}`),
			"the answer to the challenge has more than 4096 bytes"},
		"endless": {func(w http.ResponseWriter, _ *http.Request, c string) {
			for {
				if _, err := io.WriteString(w, c); err != nil {
					return
				}
			}
		}, "the answer to the challenge has more than 4096 bytes"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request, c string) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"challenge":"`+c+`"}`)
		}, "the answer to the challenge broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := challenged(t, c.handle)
			err := setup(t).challengeOnce(t, deliveryTo(w.url))
			require.EqualError(t, err, c.want)
			require.Len(t, w.all(), 1)
		})
	}
}

func TestChallengeUnreached(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, setup(t).challengeOnce(t, deliveryTo("http://"+closedAddress(t))),
		"connection refused")
	w := challenged(t, func(http.ResponseWriter, *http.Request, string) {})
	names := newNameServer(t)
	names.set("worker.example.com", "127.0.0.1", "127.0.0.1")
	guarded := setup(t, func(c *Config) {
		c.Egress, c.Resolver = asyncflow.Egress{AllowHTTP: true}, names.resolver()
	})
	require.ErrorContains(t, guarded.challengeOnce(t, deliveryTo(w.url)),
		"the endpoint's URL must name its host")
	require.ErrorContains(t,
		guarded.challengeOnce(t,
			deliveryTo(strings.Replace(w.url, "127.0.0.1", "worker.example.com", 1))),
		refusedNetwork)
	denying := setup(t, func(c *Config) {
		c.Egress = policy(t, nil, []string{"worker.example.com"})
	})
	require.ErrorContains(t, denying.challengeOnce(t, deliveryTo("https://worker.example.com")),
		"is where the operator lets no delivery go")
	require.Zero(t, w.connections.Load())
}

// An endpoint that says nothing, or a byte at a time, gets 10 s altogether.
func TestChallengeSlow(t *testing.T) {
	t.Parallel()
	var challenges sync.WaitGroup
	for name, handle := range map[string]func(http.ResponseWriter, *http.Request, string){
		"silent": func(_ http.ResponseWriter, r *http.Request, _ string) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // else an empty answer could still get through
		},
		"a byte at a time": func(w http.ResponseWriter, r *http.Request, _ string) {
			for r.Context().Err() == nil {
				io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
	} {
		w, rig := challenged(t, handle), setup(t)
		challenges.Go(func() { // parallel subtests would begin after all other tests
			start := time.Now()
			assert.EqualError(t, rig.challengeOnce(t, deliveryTo(w.url)), "no answer within 10s",
				name)
			assert.Less(t, time.Since(start), 30*time.Second, name)
		})
	}
	challenges.Wait()
}
