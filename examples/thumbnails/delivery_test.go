package thumbnails_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

var now = time.Now

// Nothing of a delivery is looked at unless its signature verifies.
func TestDeliveryRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	envelope := b.envelope("inspect", map[string]any{"image": "harbour.jpg"})
	for name, c := range map[string]struct {
		message message
		change  func(*message)
		want    int
	}{
		"unchanged":       {signed(t, now(), envelope), func(*message) {}, http.StatusOK},
		"tampered body":   {signed(t, now(), envelope), func(m *message) { m.body = bytes.Replace(m.body, []byte("harbour"), []byte("sunset0"), 1) }, http.StatusUnauthorized},
		"tampered id":     {signed(t, now(), envelope), func(m *message) { m.header.Set("webhook-id", "msg_2") }, http.StatusUnauthorized},
		"bad signature":   {signed(t, now(), envelope), func(m *message) { m.header.Set("webhook-signature", "v1,AAAA") }, http.StatusUnauthorized},
		"no signature":    {signed(t, now(), envelope), func(m *message) { m.header.Del("webhook-signature") }, http.StatusUnauthorized},
		"six minutes old": {signed(t, now().Add(-6*time.Minute), envelope), func(*message) {}, http.StatusUnauthorized},
		"of the future":   {signed(t, now().Add(6*time.Minute), envelope), func(*message) {}, http.StatusUnauthorized},
		"too large":       {signed(t, now(), envelope), func(m *message) { m.body = make([]byte, 1<<20+1) }, http.StatusRequestEntityTooLarge},
		"other stage":     {signed(t, now(), b.envelope("resize", nil)), func(*message) {}, http.StatusBadRequest},
		"no delivery":     {signed(t, now(), []string{"inspect"}), func(*message) {}, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			c.change(&c.message)
			got := b.post(t, "inspect", c.message)
			require.Equal(t, c.want, got.status, got.body)
		})
	}
}

// A rotated secret: one of several signatures is enough.
func TestDeliverySignedTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := signed(t, now(), b.envelope("inspect", map[string]any{"image": "harbour.jpg"}))
	m.header.Set("webhook-signature", "v1,AAAA v1a,BBBB "+m.header.Get("webhook-signature"))
	require.Equal(t, http.StatusOK, b.post(t, "inspect", m).status)
}

// A challenge is echoed if it is signed with our secret, and only then.
func TestChallengeIsEchoed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	challenge := signed(t, time.Now(), map[string]string{"type": "asyncflow.challenge", "challenge": "a text"})
	for _, stage := range []string{"inspect", "resize"} {
		r := b.post(t, stage, challenge)
		require.Equal(t, http.StatusOK, r.status)
		require.JSONEq(t, `{"challenge": "a text"}`, r.body)
	}
	challenge.header.Set(standardwebhooks.HeaderWebhookID, "another")
	r := b.post(t, "inspect", challenge)
	require.Equal(t, http.StatusUnauthorized, r.status)
	require.NotContains(t, r.body, "a text")
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/inspect": http.StatusMethodNotAllowed, "/resize": http.StatusMethodNotAllowed, "/": http.StatusNotFound,
	} {
		res, err := http.Get(b.url + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode, path)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*thumbnails.Config){
		"no secret":        func(c *thumbnails.Config) { c.Secret = "" },
		"empty key":        func(c *thumbnails.Config) { c.Secret = "whsec_" },
		"short key":        func(c *thumbnails.Config) { c.Secret = "whsec_AAAA" },
		"no prefix":        func(c *thumbnails.Config) { c.Secret = c.Secret[len("whsec_"):] },
		"no base64":        func(c *thumbnails.Config) { c.Secret = "whsec_?" },
		"no images":        func(c *thumbnails.Config) { c.Images = "" },
		"images not there": func(c *thumbnails.Config) { c.Images += "/none" },
		"no thumbnails":    func(c *thumbnails.Config) { c.Thumbnails = "" },
	} {
		cfg := thumbnails.Config{Images: t.TempDir(), Thumbnails: t.TempDir(), Secret: secret}
		change(&cfg)
		_, err := thumbnails.New(cfg)
		require.Error(t, err, name)
	}
}
