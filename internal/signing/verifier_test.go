package signing

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// signedBy returns the headers of a body signed by a secret.
func signedBy(t *testing.T, at time.Time, body string, secrets ...string) http.Header {
	t.Helper()
	var signers []Signer
	for _, secret := range secrets {
		s, err := NewSigner(secret)
		require.NoError(t, err)
		signers = append(signers, s)
	}
	h := http.Header{}
	require.NoError(t, Sign(h, "mail.1.1.1", at, []byte(body), signers))
	return h
}

// Each kind of key verifies what its secret signed, also among other signatures, and nothing else.
func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1795257985, 700e6)
	seed, public := rfcKeys(t)
	private, whpk := "whsk_"+base64.StdEncoding.EncodeToString(seed),
		"whpk_"+base64.StdEncoding.EncodeToString(public)
	both, err := NewVerifier(NewSecret(), vectorSecret, whpk)
	require.NoError(t, err)
	for name, secrets := range map[string][]string{
		"hmac": {vectorSecret}, "ed25519": {private}, "while rotated": {NewSecret(), vectorSecret},
		"to another kind": {NewSecret(), private},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := both.Verify(signedBy(t, now, "body", secrets...), []byte("body"), now)
			require.NoError(t, err, name)
			require.Equal(t, Request{ID: "mail.1.1.1", At: now.Truncate(time.Second)}, r)
		})
	}
	none, err := NewVerifier()
	require.NoError(t, err)
	_, err = none.Verify(signedBy(t, now, "body", vectorSecret), []byte("body"), now)
	require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err),
		"without a key nothing verifies")
	require.NoError(t, none.Add(whpk))
	_, err = none.Verify(signedBy(t, now, "body", private), []byte("body"), now)
	require.NoError(t, err)
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1795257985, 0)
	seed, public := rfcKeys(t)
	private := "whsk_" + base64.StdEncoding.EncodeToString(seed)
	v, err := NewVerifier(vectorSecret, "whpk_"+base64.StdEncoding.EncodeToString(public))
	require.NoError(t, err)
	for _, secret := range []string{vectorSecret, private} {
		t.Run(fmt.Sprintf("%.5s", secret), func(t *testing.T) {
			for name, c := range map[string]struct {
				change func(http.Header)
				body   string
				at     time.Duration
				want   string
			}{
				"nothing changed":    {func(http.Header) {}, "body", 0, ""},
				"as old as may be":   {func(http.Header) {}, "body", -Tolerance, ""},
				"as early as may be": {func(http.Header) {}, "body", Tolerance, ""},
				"too old": {func(http.Header) {}, "body", -Tolerance - time.Second,
					"more than 5m0s from now"},
				"of the future": {func(http.Header) {}, "body", Tolerance + time.Second,
					"more than 5m0s from now"},
				"another body": {func(http.Header) {}, "bodY", 0, "no signature of it verifies"},
				"another id": {func(h http.Header) {
					h.Set("webhook-id", "mail.1.1.2")
				}, "body", 0, "no signature of it verifies"},
				"another time": {func(h http.Header) {
					h.Set("webhook-timestamp", "1795257986")
				}, "body", 0, "no signature of it verifies"},
				"a time in words": {func(h http.Header) {
					h.Set("webhook-timestamp", "now")
				}, "body", 0, "no number of seconds"},
				"no id": {func(h http.Header) { h.Del("webhook-id") }, "body", 0, "is not signed"},
				"no time": {func(h http.Header) {
					h.Del("webhook-timestamp")
				}, "body", 0, "is not signed"},
				"no signature": {func(h http.Header) {
					h.Del("webhook-signature")
				}, "body", 0, "is not signed"},
				"blank signature": {func(h http.Header) {
					h.Set("webhook-signature", " ")
				}, "body", 0, "is not signed"},
				"signature of others": {func(h http.Header) {
					h.Set("webhook-signature", "v1,AAAA v1a,AAAA v2,? v1 ,")
				}, "body", 0, "no signature of it verifies"},
				"a long id": {func(h http.Header) {
					h.Set("webhook-id", strings.Repeat("x", 257))
				}, "body", 0, "too long"},
				"many signatures": {func(h http.Header) {
					h.Set("webhook-signature", strings.Repeat("v1a,AAAA ",
						16)+h.Get("webhook-signature"))
				}, "body", 0, "too many signatures"},
			} {
				t.Run(name, func(t *testing.T) {
					h := signedBy(t, now.Add(c.at), "body", secret)
					c.change(h)
					_, err := v.Verify(h, []byte(c.body), now)
					if c.want == "" {
						require.NoError(t, err)
						return
					}
					require.ErrorContains(t, err, c.want)
					require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
				})
			}
		})
	}
}

func TestNewVerifierRefuses(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":           "key is empty; it must be whsec_ or whpk_, and base64",
		"secret":     "key must start with whsec_ or whpk_",
		"whsec_":     "secret holds 0 bytes; it must be 24 to 64",
		"whsec_AAAA": "secret holds 3 bytes; it must be 24 to 64",
		"whsec_?":    "secret must be whsec_ and base64",
		"whpk_AAAA":  "key must be whpk_ and the base64 of 32 bytes",
		"whpk_?":     "key must be whpk_ and the base64 of 32 bytes",
		"whsk_AAAA": "key is a private key, which only asyncflow should have; a worker has the " +
			"public one, whpk_…",
	} {
		t.Run(key, func(t *testing.T) {
			_, err := NewVerifier(key)
			require.EqualError(t, err, want)
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		})
	}
}

// Without a signer there is no signature: a request that no worker could verify isn't sent.
func TestSignWithoutSigner(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	require.Error(t, Sign(h, "id", time.Now(), nil, nil))
	require.Empty(t, h)
}
