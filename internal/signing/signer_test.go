package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

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
	of := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n))
	}
	for secret, want := range map[string]string{
		vectorSecret:                    "",
		of(24):                          "",
		of(64):                          "",
		of(23):                          "secret holds 23 bytes; it must be 24 to 64",
		of(65):                          "secret holds 65 bytes; it must be 24 to 64",
		"":                              "secret must start with whsec_ or whsk_",
		strings.TrimPrefix(of(32), "w"): "secret must start with whsec_ or whsk_",
		"WHSEC_" + of(32)[6:]:           "secret must start with whsec_ or whsk_",
		"whsk_" +
			of(33)[6:]: "secret holds 33 bytes; an ed25519 key has 32, or 64 with its public key",
		"whsk_" + of(64)[6:]:           "secret has a public key that is not its private key's",
		"whsk_" + of(32)[6:]:           "",
		"whsk_!":                       "secret must be whsk_ and base64",
		"whsec_":                       "secret holds 0 bytes; it must be 24 to 64",
		"whsec_!!!!":                   "secret must be whsec_ and base64",
		strings.TrimRight(of(32), "="): "secret must be whsec_ and base64",
	} {
		t.Run(secret, func(t *testing.T) {
			err := CheckSecret(secret)
			if want == "" {
				require.NoError(t, err)
				return
			}
			var e *asyncflow.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, want, e.Detail())
			require.Equal(t, asyncflow.CodeInvalid, e.Code)
		})
	}
}

const vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the specification

// rfcKeys returns the first key pair of RFC 8032, 7.1.
func rfcKeys(t *testing.T) (seed, public []byte) {
	t.Helper()
	seed, err := hex.DecodeString(
		"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	require.NoError(t, err)
	public, err = hex.DecodeString(
		"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
	require.NoError(t, err)
	return seed, public
}

func TestEd25519Keys(t *testing.T) {
	t.Parallel()
	seed, public := rfcKeys(t)
	for _, raw := range [][]byte{seed, append(append([]byte{}, seed...), public...)} {
		t.Run(fmt.Sprintf("%d bytes", len(raw)), func(t *testing.T) {
			s, err := NewSigner("whsk_" + base64.StdEncoding.EncodeToString(raw))
			require.NoError(t, err)
			require.Equal(t, asyncflow.SecretEd25519, s.Kind())
			require.Equal(t, "whpk_"+base64.StdEncoding.EncodeToString(public), s.PublicKey())
		})
	}
	for kind, prefix := range map[asyncflow.SecretKind]string{"": "whsec_",
		asyncflow.SecretHMAC: "whsec_", asyncflow.SecretEd25519: "whsk_"} {
		t.Run(fmt.Sprintf("%q", kind), func(t *testing.T) {
			secret, err := NewSecretOf(kind)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(secret, prefix))
			require.NoError(t, CheckSecret(secret))
		})
	}
	_, err := NewSecretOf("rsa")
	require.ErrorContains(t, err, `kind is "rsa"; it must be hmac or ed25519`)
}

// Signatures equal the reference library's, even when several goroutines sign.
func TestHMACSignatures(t *testing.T) {
	secret := NewSecret()
	own, err := NewSigner(secret)
	require.NoError(t, err)
	reference, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	var signing sync.WaitGroup
	for i := range 50 {
		signing.Go(func() {
			id, at, body := fmt.Sprint("pipe.1.", i), time.Unix(int64(i)<<(i%40), 0),
				bytes.Repeat([]byte("ä"), i*i)
			want, err := reference.Sign(id, at, body)
			assert.NoError(t, err)
			got, err := own.sign(id, at, body)
			assert.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	signing.Wait()
}

func BenchmarkSign(b *testing.B) {
	s, err := NewSigner(NewSecret())
	require.NoError(b, err)
	body := make([]byte, 1000)
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.sign("pipe.1.1234567", at, body)
		require.NoError(b, err)
	}
}
