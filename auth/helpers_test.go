package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// patience bounds the wait for an event. It is long because a slow machine is no fault, and costs
// nothing because the wait ends with the event.
const patience = 2 * time.Minute

var (
	testNow    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	testSecret = bytes.Repeat([]byte("s3cret!."), 4)
)

// fields are the members of a header or of claims, on top of the valid defaults. A member with the
// value absent is left out.
type fields map[string]any

type absentMember struct{}

var absent = absentMember{}

func (f fields) over(defaults fields) []byte {
	all := maps.Clone(defaults)
	maps.Copy(all, f)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == absent })
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return text
}

func headerWith(f fields) []byte {
	return f.over(fields{"alg": "HS256", "typ": "at+jwt"})
}

func claimsWith(f fields) []byte {
	return f.over(fields{
		"iss": "asyncflow", "aud": "asyncflow", "sub": "ci", "tenant": "acme",
		"scope": "submit read",
		"exp":   testNow.Add(time.Hour).Unix(), "iat": testNow.Unix(),
	})
}

// sign creates a token by hand, so that it can break any rule.
func sign(t testing.TB, method jwt.SigningMethod, key any, header, claims []byte) string {
	t.Helper()
	text := base64url(header) + "." + base64url(claims)
	sig, err := method.Sign(text, key)
	require.NoError(t, err)
	return text + "." + base64url(sig)
}

// hs256 creates a token with testSecret and some changed members.
func hs256(t testing.TB, header, claims fields) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, testSecret, headerWith(header), claimsWith(claims))
}

func secretConfig() Config {
	cfg := DefaultConfig()
	cfg.HMACSecret = testSecret
	return cfg
}

func publicConfig(publicPEM ...[]byte) Config {
	cfg := DefaultConfig()
	cfg.PublicKeys = bytes.Join(publicPEM, nil)
	return cfg
}

func newVerifier(t testing.TB, cfg Config) *Verifier {
	t.Helper()
	v, err := NewVerifier(cfg)
	require.NoError(t, err)
	return v
}

func newIssuer(t testing.TB, cfg Config) *Issuer {
	t.Helper()
	i, err := NewIssuer(cfg)
	require.NoError(t, err)
	return i
}

// pair is a key with both halves as PEM.
type pair struct {
	signer          crypto.Signer
	private, public []byte
}

func newPair(t testing.TB, signer crypto.Signer, headers map[string]string) pair {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	require.NoError(t, err)
	return pair{
		signer: signer,
		private: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Headers: headers,
			Bytes: private}),
		public: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Headers: headers,
			Bytes: public}),
	}
}

func newEd25519(t testing.TB, headers map[string]string) pair {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return newPair(t, key, headers)
}

func newECDSA(t testing.TB, curve elliptic.Curve) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return newPair(t, key, nil)
}

var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) {
	return rsa.GenerateKey(rand.Reader, 2048)
})

// newRSA returns the same key each time, since making one is slow.
func newRSA(t testing.TB) pair {
	t.Helper()
	key, err := rsaKey()
	require.NoError(t, err)
	return newPair(t, key, nil)
}

// requireCode checks the code of err and that its detail says want.
func requireCode(t testing.TB, err error, code asyncflow.Code, want string) {
	t.Helper()
	require.Error(t, err)
	var e *asyncflow.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.Contains(t, e.Detail(), want)
}

func requireRefused(t testing.TB, err error, want string) {
	t.Helper()
	requireCode(t, err, asyncflow.CodeUnauthenticated, want)
}
