package callbacks

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/signing"
)

// The first key pair of RFC 8032, 7.1.
const (
	rfcSeed   = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
	rfcPublic = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
)

func fromHex(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	return raw
}

// An ed25519 signature verifies with the public key alone: by package ed25519 over the content that
// the specification defines, and by openssl.
func TestSendEd25519(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	d := deliveryTo(w.url)
	secret, err := r.keys.SigningSecret("whsk_"+base64.StdEncoding.EncodeToString(fromHex(t,
		rfcSeed)),
		"e1", d.At)
	require.NoError(t, err)
	require.Equal(t, asyncflow.SecretEd25519, secret.Kind)
	// newWorker verifies the other secret
	d.Endpoint.Secrets = append([]asyncflow.SigningSecret{secret}, d.Endpoint.Secrets...)
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	got := w.all()[0]
	signatures := strings.Split(got.Header.Get("Webhook-Signature"), " ")
	require.Len(t, signatures, 2)
	encoded, ok := strings.CutPrefix(signatures[0], "v1a,")
	require.True(t, ok)
	signature, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	signed := []byte(got.Header.Get("Webhook-Id") + "." + got.Header.Get("Webhook-Timestamp") +
		"." + string(got.body))
	require.True(t, ed25519.Verify(fromHex(t, rfcPublic), signed, signature))
	require.False(t, ed25519.Verify(fromHex(t, rfcPublic), append(signed, ' '), signature))

	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl to verify with")
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	der := append(fromHex(t, "302a300506032b6570032100"), fromHex(t, rfcPublic)...) // RFC 8410
	out, err := exec.CommandContext(t.Context(), openssl, "pkeyutl", "-verify", "-pubin",
		"-keyform", "DER", "-inkey", write("key", der),
		"-rawin", "-in", write("signed", signed), "-sigfile",
		write("signature", signature)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// During a rotation, a worker with either secret verifies; afterwards only one with the new secret
// does.
func TestSendWhileRotating(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	at := time.Now()
	newest := signing.NewSecret()
	next, err := r.keys.SigningSecret(newest, "e1", at)
	require.NoError(t, err)
	d := deliveryTo(w.url)
	require.NoError(t, d.Endpoint.Rotate(next, time.Minute, at))
	verifies := func(secret string, i int) bool {
		webhook, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		got := w.all()[i]
		return webhook.VerifyIgnoringTimestamp(got.body, got.Header) == nil
	}
	for _, sent := range []time.Duration{0, time.Minute - 1} {
		d.At = at.Add(sent)
		require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	}
	for i := range 2 {
		require.True(t, verifies(testSecret, i))
		require.True(t, verifies(newest, i))
	}
	only := newWorkerOf(t, newest, reply(200, ""))
	d.At, d.Endpoint.URL = at.Add(time.Minute), only.url
	require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), d).Kind)
	require.Len(t, strings.Fields(only.all()[0].Header.Get("Webhook-Signature")), 1)

	d.Endpoint.Secrets = d.Endpoint.Secrets[1:]
	o := r.Send(t.Context(), d)
	require.Equal(t, "the endpoint has no secret that signs", o.Error)
	require.Len(t, only.all(), 1)
}
