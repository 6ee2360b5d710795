package callbacks

import (
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// The test vector that Standard Webhooks publishes.
func TestSignTestVector(t *testing.T) {
	t.Parallel()
	e := deliveryTo("https://worker.example.com/").Endpoint
	to, err := NewSender(Config{}, testKeys(t, nodeSecret)).open("acme", e)
	require.NoError(t, err)
	h, err := to.sign(nil, e, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999),
		[]byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	require.Equal(t, transport.Headers{
		{Name: "Webhook-Id", Value: "msg_p5jXN8AQM9LWM0D4loKWxJek"},
		{Name: "Webhook-Timestamp", Value: "1614265330"},
		{Name: "Webhook-Signature", Value: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}, h)
}

// The signature covers id, timestamp and body, and depends on the secret.
func TestSignatureCovers(t *testing.T) {
	t.Parallel()
	e := deliveryTo("https://worker.example.com/").Endpoint
	to, err := NewSender(Config{}, testKeys(t, nodeSecret)).open("acme", e)
	require.NoError(t, err)
	at := time.Now()
	signed := func() http.Header {
		all, err := to.sign(nil, e, "thumbnails.1.42.3", at, []byte("body"))
		require.NoError(t, err)
		h := http.Header{}
		for _, one := range all {
			h.Set(one.Name, one.Value)
		}
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
	require.Error(t, verify(signing.NewSecret(), "body", signed()))
	require.Error(t, verify(testSecret, "body", with("Webhook-Id", "thumbnails.1.42.4")))
	require.Error(t, verify(testSecret, "body", with("Webhook-Timestamp", "1")))
}
