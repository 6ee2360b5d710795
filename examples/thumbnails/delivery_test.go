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

// A delivery is ignored unless its signature verifies.
func TestDeliveryRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	envelope := b.envelope("inspect", map[string]any{"image": "harbour.jpg"})
	for name, c := range map[string]struct {
		message message
		change  func(*message)
		want    int
	}{
		"unchanged": {signed(t, now(), envelope), func(*message) {}, http.StatusOK},
		"tampered body": {signed(t, now(), envelope), func(m *message) {
			m.body = bytes.Replace(m.body, []byte("harbour"), []byte("sunset0"), 1)
		}, http.StatusUnauthorized},
		"too large": {signed(t, now(), envelope), func(m *message) {
			m.body = make([]byte, 1<<20+1)
		}, http.StatusRequestEntityTooLarge},
		"other stage": {signed(t, now(), b.envelope("upload", nil)), func(*message) {},
			http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			c.change(&c.message)
			got := b.post(t, "inspect", c.message)
			require.Equal(t, c.want, got.status, got.body)
		})
	}
}

// Nothing is done after the deadline: by then, the task is delivered again.
func TestDeadlinePassed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	envelope := b.envelope("resize", map[string]any{"image": "small.png"})
	envelope["deadline"] = now().Add(-3 * time.Second).Format(time.RFC3339)
	require.Equal(t, http.StatusAccepted, b.post(t, "resize", signed(t, now(), envelope)).status)
	b.close(t)
	require.Empty(t, b.asyncflow.reports)
	require.Empty(t, files(t, b.out))
}

// A challenge is echoed only if it is signed with our secret.
func TestChallengeIsEchoed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	challenge := signed(t, now(),
		map[string]string{"type": "asyncflow.challenge", "challenge": "a text"})
	for _, stage := range []string{"inspect", "resize"} {
		t.Run(stage, func(t *testing.T) {
			r := b.post(t, stage, challenge)
			require.Equal(t, http.StatusOK, r.status)
			require.JSONEq(t, `{"challenge": "a text"}`, r.body)
		})
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
		"/healthz": http.StatusOK, "/inspect": http.StatusMethodNotAllowed,
		"/resize": http.StatusMethodNotAllowed, "/": http.StatusNotFound,
	} {
		t.Run(path, func(t *testing.T) {
			res, err := ownClient.Get(b.url + path)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, want, res.StatusCode)
		})
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
		t.Run(name, func(t *testing.T) {
			cfg := thumbnails.Config{Images: t.TempDir(), Thumbnails: t.TempDir(), Secret: secret}
			change(&cfg)
			_, err := thumbnails.New(cfg)
			require.Error(t, err, name)
		})
	}
}
