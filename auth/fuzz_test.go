package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A token is refused with a typed error, or its claims keep every rule: a good signature alone is
// not enough, and a bad one is never accepted.
func FuzzJWT(f *testing.F) {
	cfg := DefaultConfig()
	cfg.HMACSecret = testSecret
	f.Fuzz(func(t *testing.T, header, claims, other string) {
		v, err := NewVerifier(cfg)
		require.NoError(t, err)
		encode := base64.RawURLEncoding.EncodeToString
		signed := encode([]byte(header)) + "." + encode([]byte(claims))
		mac := hmac.New(sha256.New, testSecret)
		mac.Write([]byte(signed))
		good := encode(mac.Sum(nil))

		p, err := v.Verify(t.Context(), signed+"."+good, testNow)
		if err != nil {
			require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
		} else {
			requireRules(t, p, header, claims)
		}
		if signature, err := base64.RawURLEncoding.DecodeString(other); err != nil ||
			!hmac.Equal(signature, mac.Sum(nil)) {
			for _, token := range []string{signed + "." + other, other, signed} {
				_, err = v.Verify(t.Context(), token, testNow)
				require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err), "%q", token)
			}
		}
		_, err = Bearer(other)
		if err != nil {
			require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
		}
	})
}

// requireRules parses an accepted token again, independently.
func requireRules(t *testing.T, p Principal, header, claims string) {
	var h struct{ Alg, Typ string }
	var c map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(header), &h))
	require.NoError(t, json.Unmarshal([]byte(claims), &c))
	require.Equal(t, "HS256", h.Alg)
	typ := strings.TrimPrefix(strings.ToLower(h.Typ), "application/")
	switch p.Kind {
	case KindTenant:
		require.Equal(t, "at+jwt", typ)
		require.NoError(t, asyncflow.CheckName(p.Tenant))
		require.JSONEq(t, `"`+p.Tenant+`"`, string(c["tenant"]))
		require.False(t, p.Has(ScopeAdmin))
	case KindOperator:
		require.Equal(t, DefaultAdminType, typ)
		require.Empty(t, p.Tenant)
		require.Equal(t, NewScopes(ScopeAdmin), p.Scopes)
	default:
		t.Fatalf("a token of the kind %q", p.Kind)
	}
	require.JSONEq(t, `"asyncflow"`, string(c["iss"]))
	require.Contains(t, string(c["aud"]), "asyncflow")
	require.False(t, p.ExpiresAt.Before(testNow.Add(-MaxLeeway)), "it has expired")
	require.NotEmpty(t, c["exp"])
	for scope := range strings.SplitSeq(p.Scopes.String(), " ") {
		if scope != "" {
			require.True(t, Scope(scope).Known())
			require.Contains(t, string(c["scope"]), scope)
		}
	}
}

// Keys that can't be used are refused by the name of their setting; usable ones are of one family.
func FuzzPublicKeys(f *testing.F) {
	f.Fuzz(func(t *testing.T, pem []byte, token string) {
		cfg := DefaultConfig()
		cfg.PublicKeys = pem
		v, err := NewVerifier(cfg)
		if err != nil {
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			require.ErrorContains(t, err, "PublicKeys")
			return
		}
		require.Contains(t, []string{"EdDSA", "ES256", "RS256"},
			v.trust.Load().issuers[0].method.Alg())
		_, err = v.Verify(t.Context(), token, time.Now())
		require.Error(t, err)
	})
}
