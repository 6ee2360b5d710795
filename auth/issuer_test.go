package auth

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestIssueWritesEveryClaim(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, secretConfig())
	now := testNow.Add(300 * time.Millisecond)
	token, err := i.Issue("acme", "ci", []Scope{ScopeRead, ScopeSubmit, ScopeRead}, 90*time.Second,
		now)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	var header, body map[string]any
	require.NoError(t, json.Unmarshal(decode(t, parts[0]), &header))
	require.NoError(t, json.Unmarshal(decode(t, parts[1]), &body))

	require.Equal(t, map[string]any{"alg": "HS256", "typ": "at+jwt"}, header)
	require.NotEmpty(t, body["jti"])
	jti := body["jti"]
	delete(body, "jti")
	require.Equal(t, map[string]any{
		"iss": "asyncflow", "aud": []any{"asyncflow"}, "sub": "ci", "tenant": "acme",
		"scope": "submit read",
		"iat":   float64(testNow.Unix()), "exp": float64(testNow.Unix() + 91), // rounded up
	}, body)

	again, err := i.Issue("acme", "ci", nil, 90*time.Second, now)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(decode(t, strings.Split(again, ".")[1]), &body))
	require.NotEqual(t, jti, body["jti"])
}

func TestIssueNamesItsKey(t *testing.T) {
	t.Parallel()
	one, two := newEd25519(t, map[string]string{"kid": "one"}), newEd25519(t, nil)
	v := newVerifier(t, publicConfig(one.public, two.public))
	for _, key := range []pair{one, two} {
		cfg := DefaultConfig()
		cfg.PrivateKey = key.private
		token, err := newIssuer(t, cfg).Issue("acme", "ci", nil, time.Minute, testNow)
		require.NoError(t, err)
		_, err = v.Verify(context.Background(), token, testNow)
		require.NoError(t, err)
	}
}

func TestIssuedTokenLivesItsTTL(t *testing.T) {
	t.Parallel()
	cfg := secretConfig()
	cfg.Leeway = 0
	v, i := newVerifier(t, cfg), newIssuer(t, cfg)
	for _, ttl := range []time.Duration{1, 999 * time.Millisecond, time.Second, MaxTTL} {
		t.Run(ttl.String(), func(t *testing.T) {
			now := testNow.Add(500 * time.Millisecond)
			token, err := i.Issue("acme", "ci", nil, ttl, now)
			require.NoError(t, err)
			_, err = v.Verify(context.Background(), token, now.Add(ttl-1))
			require.NoError(t, err, ttl)
			_, err = v.Verify(context.Background(), token, now.Add(ttl+time.Second))
			requireRefused(t, err, "expired")
		})
	}
}

func TestIssueRefuses(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, secretConfig())
	good := []Scope{ScopeRead}
	for name, tc := range map[string]struct {
		tenant, subject string
		scopes          []Scope
		ttl             time.Duration
		field           string
	}{
		"no tenant":       {"", "ci", good, time.Hour, "tenant"},
		"bad tenant":      {"Acme", "ci", good, time.Hour, "tenant"},
		"long tenant":     {strings.Repeat("a", 41), "ci", good, time.Hour, "tenant"},
		"no subject":      {"acme", " ", good, time.Hour, "subject"},
		"control subject": {"acme", "c\ti", good, time.Hour, "subject"},
		"unknown scope":   {"acme", "ci", []Scope{ScopeRead, "root"}, time.Hour, "scopes"},
		"no ttl":          {"acme", "ci", good, 0, "ttl"},
		"negative ttl":    {"acme", "ci", good, -time.Second, "ttl"},
		"long ttl":        {"acme", "ci", good, MaxTTL + 1, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := i.Issue(tc.tenant, tc.subject, tc.scopes, tc.ttl, testNow)
			requireCode(t, err, asyncflow.CodeInvalid, tc.field+" ")
			var e *asyncflow.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tc.field, e.Fields[0].Field)
		})
	}
}

func TestPrivateKeyRefused(t *testing.T) {
	t.Parallel()
	key, other := newEd25519(t, nil), newEd25519(t, nil)
	renamed := newPair(t, key.signer, map[string]string{"kid": "renamed"})
	for name, tc := range map[string]struct {
		private, public []byte
		want            string
	}{
		"public key": {key.public, nil, `not "PUBLIC KEY"`},
		"two keys": {append(append([]byte{}, key.private...), other.private...), nil,
			"must be one key, not 2"},
		"not a pair":      {key.private, other.public, "not the other half"},
		"under other ids": {renamed.private, key.public, "not the other half"},
		"bad public keys": {key.private, []byte("x"), "PublicKeys can't be used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := publicConfig(tc.public)
			cfg.PrivateKey = tc.private
			_, err := NewIssuer(cfg)
			requireCode(t, err, asyncflow.CodeInvalid, tc.want)
		})
	}
}
