package auth

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestDefaultsMakeAVerifier(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	require.LessOrEqual(t, cfg.Leeway, MaxLeeway)
	_, err := NewVerifier(cfg)
	requireCode(t, err, asyncflow.CodeInvalid, "there is no key to verify with")
	_, err = NewIssuer(cfg)
	requireCode(t, err, asyncflow.CodeInvalid, "there is no key to sign with")
	newVerifier(t, secretConfig())
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	ed := newEd25519(t, nil)
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"empty issuer":   {func(c *Config) { c.Issuer = "" }, "Issuer must not be empty"},
		"empty audience": {func(c *Config) { c.Audience = "" }, "Audience must not be empty"},
		"blank audience": {func(c *Config) { c.Audience = " \n" }, "Audience must not be empty"},
		"empty typ":      {func(c *Config) { c.TokenType = "" }, "TokenType must not be empty"},
		"typ of a prefix": {func(c *Config) { c.TokenType = "application/" },
			"TokenType must not be empty"},

		"long leeway": {func(c *Config) { c.Leeway = 30*time.Second + 1 },
			"Leeway must be between"},

		"negative leeway": {func(c *Config) { c.Leeway = -1 }, "Leeway must be between"},

		"short secret": {func(c *Config) { c.HMACSecret = testSecret[:31] },
			"at least 32 bytes, not 31"},

		"key as secret": {func(c *Config) { c.HMACSecret = ed.public }, "holds a PEM block"},
		"two families": {func(c *Config) { c.PublicKeys = ed.public },
			"keys are of one family"},
		"secret and signer": {func(c *Config) { c.PrivateKey = ed.private },
			"keys are of one family"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := secretConfig()
			tc.change(&cfg)
			_, err := NewVerifier(cfg)
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
			_, err = NewIssuer(cfg)
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestPublicKeysRefused(t *testing.T) {
	t.Parallel()
	weakKey, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	ed, named := newEd25519(t, nil), newEd25519(t, map[string]string{"kid": "a"})
	damaged := bytes.Replace(ed.public, []byte("\n-----END"), []byte("*\n-----END"), 1)
	for name, tc := range map[string]struct {
		pem  [][]byte
		want string
	}{
		"no PEM":      {[][]byte{[]byte("hello")}, "holds no PEM block"},
		"private key": {[][]byte{ed.private}, `not "PRIVATE KEY"`},
		"not DER": {[][]byte{pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY",
			Bytes: []byte("x")})}, "key 1 of 1"},
		"weak RSA": {[][]byte{newPair(t, weakKey, nil).public}, "at least 2048 bits, not 1024"},
		"P-384":    {[][]byte{newECDSA(t, elliptic.P384()).public}, "must be on P-256"},
		"mixed families": {[][]byte{ed.public, newRSA(t).public},
			"several algorithms, EdDSA and RS256"},
		"twice the same": {[][]byte{ed.public, ed.public}, "two keys have the id"},
		"same name": {[][]byte{named.public, newEd25519(t, map[string]string{"kid": "a"}).public},
			"two keys have the id"},
		"empty name": {[][]byte{newEd25519(t, map[string]string{"kid": ""}).public},
			"kid must have"},
		"damaged second": {[][]byte{named.public, damaged}, "damaged PEM block"},
		"damaged first":  {[][]byte{damaged, named.public}, "damaged PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewVerifier(publicConfig(tc.pem...))
			requireCode(t, err, asyncflow.CodeInvalid, "PublicKeys ")
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
		})
	}
}

// The caller may overwrite the keys that it passed in.
func TestSecretIsCopied(t *testing.T) {
	t.Parallel()
	cfg := secretConfig()
	cfg.HMACSecret = bytes.Clone(testSecret)
	v, i := newVerifier(t, cfg), newIssuer(t, cfg)
	clear(cfg.HMACSecret)
	token, err := i.Issue("acme", "ci", nil, time.Hour, testNow)
	require.NoError(t, err)
	_, err = v.Verify(context.Background(), token, testNow)
	require.NoError(t, err)
	_, err = v.Verify(context.Background(), hs256(t, nil, nil), testNow)
	require.NoError(t, err)
}
