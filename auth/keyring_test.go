package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func TestFamiliesRoundTrip(t *testing.T) {
	t.Parallel()
	for alg, key := range map[string]pair{
		"EdDSA": newEd25519(t, nil),
		"ES256": newECDSA(t, elliptic.P256()),
		"RS256": newRSA(t),
	} {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			cfg := publicConfig(key.public)
			cfg.PrivateKey = key.private
			v := newVerifier(t, cfg)
			require.Equal(t, alg, v.trust.Load().issuers[0].method.Alg())
			token, err := newIssuer(t, cfg).Issue("acme", "ci", []Scope{ScopeWork}, time.Hour,
				testNow)
			require.NoError(t, err)
			p, err := v.Verify(context.Background(), token, testNow)
			require.NoError(t, err)
			require.NotEmpty(t, p.TokenID)
			p.TokenID = ""
			require.Equal(t, Principal{Kind: KindTenant, Tenant: "acme", Issuer: "asyncflow",
				Subject: "ci",
				Scopes:  NewScopes(ScopeWork), IssuedAt: testNow,
				ExpiresAt: testNow.Add(time.Hour)}, p)

			other := newVerifier(t, publicConfig(newEd25519(t, nil).public))
			_, err = other.Verify(context.Background(), token, testNow)
			requireRefused(t, err, "the token's ")
		})
	}
}

// A public key is public, so anybody can sign with it as a secret. Such tokens are refused, in each
// encoding that might be given to an HMAC library.
func TestPublicKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	for alg, key := range map[string]pair{"RS256": newRSA(t), "EdDSA": newEd25519(t, nil)} {
		t.Run(alg, func(t *testing.T) {
			keys, err := parsePublicKeys(key.public)
			require.NoError(t, err)
			v := newVerifier(t, publicConfig(key.public))
			for _, claimed := range []string{"HS256", alg} {
				token := sign(t, jwt.SigningMethodHS256, key.public,
					headerWith(fields{"alg": claimed, "kid": keys[0].id}), claimsWith(nil))
				_, err := v.Verify(context.Background(), token, testNow)
				requireRefused(t, err, "the token's ")
			}
			none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType,
				headerWith(fields{"alg": "none"}), claimsWith(nil))
			_, err = v.Verify(context.Background(), none, testNow)
			requireRefused(t, err, "algorithm is not "+alg)
		})
	}
}

// Other algorithms that work with the same key are refused too.
func TestOneAlgorithmPerKey(t *testing.T) {
	t.Parallel()
	key := newRSA(t)
	v := newVerifier(t, publicConfig(key.public))
	for _, method := range []jwt.SigningMethod{jwt.SigningMethodRS512, jwt.SigningMethodPS256} {
		t.Run(method.Alg(), func(t *testing.T) {
			token := sign(t, method, key.signer, headerWith(fields{"alg": method.Alg()}),
				claimsWith(nil))
			_, err := v.Verify(context.Background(), token, testNow)
			requireRefused(t, err, "algorithm is not RS256")
		})
	}
}

func TestKeyID(t *testing.T) {
	t.Parallel()
	one, two := newEd25519(t, nil), newEd25519(t, map[string]string{"kid": "2026-spring"})
	stranger := newEd25519(t, nil)
	oneID, err := thumbprint(one.signer.Public())
	require.NoError(t, err)
	single, several := publicConfig(one.public), publicConfig(one.public, two.public)

	for name, tc := range map[string]struct {
		cfg    Config
		signer pair
		kid    any
		want   string // empty: accepted
	}{
		"single, absent":             {single, one, absent, ""},
		"single, its thumbprint":     {single, one, oneID, ""},
		"single, another":            {single, one, "other", "not known here"},
		"single, empty":              {single, one, "", "not known here"},
		"single, not text":           {single, one, 7, "not known here"},
		"single, stranger":           {single, stranger, absent, "signature doesn't verify"},
		"single, stranger as it":     {single, stranger, oneID, "signature doesn't verify"},
		"several, thumbprint":        {several, one, oneID, ""},
		"several, PEM header":        {several, two, "2026-spring", ""},
		"several, absent":            {several, one, absent, "doesn't name its key"},
		"several, null":              {several, one, nil, "doesn't name its key"},
		"several, the other one":     {several, one, "2026-spring", "signature doesn't verify"},
		"several, unknown":           {several, one, "nope", "not known here"},
		"several, a path":            {several, one, "../../../../dev/null", "not known here"},
		"several, SQL":               {several, one, "' OR 1=1 --", "not known here"},
		"several, in other capitals": {several, two, "2026-SPRING", "not known here"},
		"several, a list":            {several, two, []string{"2026-spring"}, "not known here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := headerWith(fields{"alg": "EdDSA", "kid": tc.kid})
			_, err := newVerifier(t, tc.cfg).Verify(context.Background(),
				sign(t, jwt.SigningMethodEdDSA, tc.signer.signer, header, claimsWith(nil)), testNow)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			requireRefused(t, err, tc.want)
		})
	}
}

// A token that contains its own key is verified with ours.
func TestEmbeddedKeyIsIgnored(t *testing.T) {
	t.Parallel()
	ours, evil := newEd25519(t, nil), newEd25519(t, nil)
	evilKeys, err := parsePublicKeys(evil.public)
	require.NoError(t, err)
	jwk := fields{"kty": "OKP", "crv": "Ed25519",
		"x": base64url(evilKeys[0].key.(ed25519.PublicKey))}
	header := headerWith(fields{"alg": "EdDSA", "jwk": jwk, "jku": "https://evil.example/jwks",
		"x5u": "https://evil.example/x5u"})
	v := newVerifier(t, publicConfig(ours.public))

	_, err = v.Verify(context.Background(),
		sign(t, jwt.SigningMethodEdDSA, evil.signer, header, claimsWith(nil)), testNow)
	requireRefused(t, err, "signature doesn't verify")
	_, err = v.Verify(context.Background(),
		sign(t, jwt.SigningMethodEdDSA, ours.signer, header, claimsWith(nil)), testNow)
	require.NoError(t, err)
}
