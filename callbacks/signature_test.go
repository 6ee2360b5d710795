package callbacks

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The test vector that Standard Webhooks publishes.
func TestSignTestVector(t *testing.T) {
	t.Parallel()
	s := NewSender(Config{}, testKeys(t, nodeSecret))
	e := deliveryTo("").Endpoint
	h := http.Header{}
	require.NoError(t, s.sign(h, e, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999), []byte(`{"test": 2432232314}`)))
	require.Equal(t, http.Header{
		"Webhook-Id":        {"msg_p5jXN8AQM9LWM0D4loKWxJek"},
		"Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}, h)
}

// The signature covers id, timestamp and body, and depends on the secret.
func TestSignatureCovers(t *testing.T) {
	t.Parallel()
	s := NewSender(Config{}, testKeys(t, nodeSecret))
	e := deliveryTo("").Endpoint
	at := time.Now()
	signed := func() http.Header {
		h := http.Header{}
		require.NoError(t, s.sign(h, e, "thumbnails.1.42.3", at, []byte("body")))
		return h
	}
	verify := func(secret, body string, h http.Header) error {
		w, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		return w.Verify([]byte(body), h)
	}
	with := func(name, value string) http.Header {
		h := signed()
		h.Set(name, value)
		return h
	}
	require.NoError(t, verify(testSecret, "body", signed()))
	require.Error(t, verify(testSecret, "bodY", signed()))
	require.Error(t, verify(NewSecret(), "body", signed()))
	require.Error(t, verify(testSecret, "body", with("Webhook-Id", "thumbnails.1.42.4")))
	require.Error(t, verify(testSecret, "body", with("Webhook-Timestamp", "1")))
}

func TestNewSecret(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		secret := NewSecret()
		require.NoError(t, CheckSecret(secret))
		require.False(t, seen[secret])
		seen[secret] = true
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		require.NoError(t, err)
		require.Len(t, raw, 32)
	}
}

func TestCheckSecret(t *testing.T) {
	t.Parallel()
	of := func(n int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for secret, want := range map[string]string{
		testSecret:                      "",
		of(24):                          "",
		of(64):                          "",
		of(23):                          "secret holds 23 bytes; it must be 24 to 64",
		of(65):                          "secret holds 65 bytes; it must be 24 to 64",
		"":                              "secret must start with whsec_ or whsk_",
		strings.TrimPrefix(of(32), "w"): "secret must start with whsec_ or whsk_",
		"WHSEC_" + of(32)[6:]:           "secret must start with whsec_ or whsk_",
		"whsk_" + of(33)[6:]:            "secret holds 33 bytes; an ed25519 key has 32, or 64 with its public key",
		"whsk_" + of(64)[6:]:            "secret has a public key that is not its private key's",
		"whsk_" + of(32)[6:]:            "",
		"whsk_!":                        "secret must be whsk_ and base64",
		"whsec_":                        "secret holds 0 bytes; it must be 24 to 64",
		"whsec_!!!!":                    "secret must be whsec_ and base64",
		strings.TrimRight(of(32), "="):  "secret must be whsec_ and base64",
	} {
		err := CheckSecret(secret)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		var e *asyncflow.Error
		require.True(t, errors.As(err, &e), secret)
		require.Equal(t, want, e.Detail())
		require.Equal(t, asyncflow.CodeInvalid, e.Code)
	}
}
