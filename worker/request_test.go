package worker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/signing"
)

// A request must be whole, JSON, and signed by one of the keys a short while ago. Otherwise no
// handler is called.
func TestHostileRequests(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxBody = 2000 })
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		panic("a handler was called")
	})
	good := func() map[string]any { return b.envelope(`{"image": "harbour.jpg"}`) }
	with := func(field string, value any) map[string]any {
		e := good()
		e[field] = value
		return e
	}
	huge := with("context", strings.Repeat("x", 2000))
	for name, c := range map[string]struct {
		message message
		change  func(*message)
		want    int
		why     string
	}{
		"tampered body": {signed(t, good()), func(m *message) {
			m.body = bytes.Replace(m.body, []byte("harbour"), []byte("sunset0"), 1)
		}, 401, "no signature of it verifies"},
		"tampered id": {signed(t, good()), func(m *message) {
			m.header.Set("webhook-id", "images.1.42.0")
		}, 401, "no signature of it verifies"},
		"bad signature": {signed(t, good()), func(m *message) {
			m.header.Set("webhook-signature", "v1,AAAA v1a,AAAA")
		}, 401, "no signature of it verifies"},
		"no signature": {signed(t, good()), func(m *message) {
			m.header.Del("webhook-signature")
		}, 401, "is not signed"},
		"another's signature": {signedAt(t, time.Now(), good(), signing.NewSecret()),
			func(*message) {}, 401, "no signature of it verifies"},
		"old": {signedAt(t, time.Now().Add(-6*time.Minute), good(), secret),
			func(*message) {}, 401, "more than 5m0s from now"},
		"of the future": {signedAt(t, time.Now().Add(6*time.Minute), good(), secret),
			func(*message) {}, 401, "more than 5m0s from now"},
		"huge": {signed(t, huge), func(*message) {}, 413, "the limit is 2000 bytes"},
		"huge, unsigned": {signed(t, huge), func(m *message) {
			m.header.Del("webhook-signature")
		}, 413, "the limit is 2000 bytes"},
		"form": {signed(t, good()), func(m *message) {
			m.header.Set("Content-Type", "application/x-www-form-urlencoded")
		}, 415, "must be application/json"},
		"no type": {signed(t, good()), func(m *message) {
			m.header.Del("Content-Type")
		}, 415, "must be application/json"},
		"GET": {signed(t, good()), func(m *message) {
			m.method = http.MethodGet
		}, 405, "POSTed"},
		"PUT": {signed(t, good()), func(m *message) {
			m.method = http.MethodPut
		}, 405, "POSTed"},
		"no JSON": {signed(t, good()), func(m *message) { *m = raw(t, "{") }, 400,
			"no delivery"},
		"a list":          {signed(t, []string{"inspect"}), func(*message) {}, 400, "no delivery"},
		"an empty object": {signed(t, map[string]any{}), func(*message) {}, 400, "needs task_id"},
		"no callback": {signed(t, with("callback", nil)), func(*message) {}, 400,
			"needs task_id, callback and deadline"},
		"no deadline": {signed(t, with("deadline", nil)), func(*message) {}, 400,
			"needs task_id, callback and deadline"},
		"no time": {signed(t, with("deadline", "soon")), func(*message) {}, 400, "no delivery"},
		"another stage": {signed(t, with("stage", "resize")), func(*message) {}, 404,
			`no handler for the stage \"resize\" of \"images\"`},
		"another type": {signed(t, with("type", "mail")), func(*message) {}, 404,
			`no handler for the stage \"inspect\" of \"mail\"`},
		"an empty batch": {signed(t, map[string]any{"deliveries": []any{}}), func(*message) {}, 400,
			"no deliveries"},
		"a mixed batch": {signed(t,
			map[string]any{"deliveries": []any{good(), with("stage", "resize")}}),
			func(*message) {}, 400,
			"several stages"},
		"a broken batch": {signed(t,
			map[string]any{"deliveries": []any{good(), with("task_id", "")}}), func(*message) {},
			400, "needs task_id"},
	} {
		c.change(&c.message)
		r := b.post(c.message)
		require.Equal(t, c.want, r.status, name)
		require.Contains(t, r.body, c.why, name)
		require.Equal(t, "application/json", r.header.Get("Content-Type"), name)
	}
	require.Zero(t, b.worker.InFlight())
}

// raw is a signed body that isn't JSON.
func raw(t *testing.T, body string) message {
	m := signed(t, nil)
	m.body = []byte(body)
	signer, err := signing.NewSigner(secret)
	require.NoError(t, err)
	require.NoError(t,
		signing.Sign(m.header, "images.1.42.0", time.Now(), m.body, []signing.Signer{signer}))
	return m
}

// A body without a length is read only up to the limit.
func TestEndlessBody(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxBody = 2000 })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url, endless{})
	require.NoError(t, err)
	req.Header = signed(t, b.envelope(`1`)).header
	resp, err := ownClient.Do(req)
	if err != nil { // the server may close the connection while it is still being written to
		return
	}
	defer resp.Body.Close()
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// While a secret is rotated, deliveries signed by the old secret, the new one, or both verify. So
// do signatures of an endpoint with an ed25519 key.
func TestSeveralKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	next := signing.NewSecret()
	b := setup(t, func(c *Config) {
		c.Keys = []string{secret, next, "whpk_" + base64.StdEncoding.EncodeToString(public)}
	})
	b.inspects(func(context.Context, Task[photo]) (picture, error) { return picture{1}, nil })
	for _, by := range []string{secret, next, "whsk_" +
		base64.StdEncoding.EncodeToString(private)} {
		require.Equal(t, 200, b.post(signedAt(t, time.Now(), b.envelope(`{}`), by)).status)
	}
	m := signed(t, b.envelope(`{}`))
	m.header.Set("webhook-signature", "v1,AAAA v1a,BBBB "+m.header.Get("webhook-signature"))
	require.Equal(t, 200, b.post(m).status)
}

// A challenge is echoed only if it is signed.
func TestChallenge(t *testing.T) {
	b := setup(t)
	m := signed(t, map[string]string{"type": "asyncflow.challenge", "challenge": "a <text>"})
	require.JSONEq(t, `{"challenge":"a <text>"}`, b.post(m).body)
	m.header.Set("webhook-id", "another")
	r := b.post(m)
	require.Equal(t, 401, r.status)
	require.NotContains(t, r.body, "a <text>")
}

// A repeated request, during the work or after it, doesn't start the handler again: it gets the
// same answer. A new attempt is another request.
func TestDuplicates(t *testing.T) {
	const times = 8
	b := setup(t)
	var calls atomic.Int32
	release := make(chan struct{})
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		<-release
		return picture{int(calls.Add(1))}, nil
	})
	m := signed(t, b.envelope(`{}`))
	replies := make(chan reply, times)
	for range times {
		go func() { replies <- b.post(m) }()
	}
	require.Eventually(t, func() bool {
		return b.worker.InFlight() == 1
	}, soon, 20*time.Millisecond)
	close(release)
	for range times {
		require.JSONEq(t, `{"output":{"width":1}}`, (<-replies).body)
	}
	require.JSONEq(t, `{"output":{"width":1}}`, b.post(m).body)
	require.JSONEq(t, `{"output":{"width":2}}`, b.deliver(`{}`).body)
	require.EqualValues(t, 2, calls.Load())
}

// An answer that is too large to be kept isn't made a second time.
func TestDuplicateOfALargeAnswer(t *testing.T) {
	b := setup(t)
	Handle(b.worker, "images", "inspect", func(context.Context, Task[photo]) (string, error) {
		return strings.Repeat("x", rememberedBody), nil
	})
	m := signed(t, b.envelope(`{}`))
	require.Equal(t, 200, b.post(m).status)
	r := b.post(m)
	require.Equal(t, 409, r.status)
	require.Contains(t, r.body, "was answered before")
}

// A worker without capacity says so, and accepts deliveries again once it got some.
func TestMaxInFlight(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxInFlight = 2 })
	release := make(chan struct{})
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		<-release
		return picture{}, nil
	}, AnswerWithin(-1))
	for range 2 {
		require.Equal(t, 202, b.deliver(`{}`).status)
	}
	m := signed(t, b.envelope(`{}`))
	full := b.post(m)
	require.Equal(t, "1", full.header.Get("Retry-After"))
	require.Equal(t, 503, full.status)
	close(release)
	require.Eventually(t, func() bool {
		return b.worker.InFlight() == 0
	}, soon, 20*time.Millisecond)
	require.Equal(t, 202, b.post(m).status, "what was refused may come again")
}
