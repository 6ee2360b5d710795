package auth

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Issuers are added and removed while tokens are verified; the others keep their keys and tokens.
func TestChangeOfIssuers(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	key, second := newEd25519(t, nil), newEd25519(t, map[string]string{"kid": "k"})
	s.publish(200, setOf(named(t, key, "a")))
	foreign, other := s.config(), issuerNamed("https://other.example", second)
	foreign.Issuer = "https://login.example"
	v, err := NewVerifier(secretConfig(), foreign)
	require.NoError(t, err)
	require.NoError(t, v.trust.Load().issuers[1].source.load(t.Context()))
	ofForeign := tokenOf(t, key, "a", fields{"iss": foreign.Issuer})
	ofOther := tokenOf(t, second, "k", fields{"iss": other.Issuer})
	require.NoError(t, verify(v, ofForeign))
	requireRefused(t, verify(v, ofOther), "is not trusted here")
	s.publish(503, nil) // it can't be loaded again

	change := func(want bool, configs ...Config) {
		t.Helper()
		changed, err := v.Change(configs...)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	foreign.RootCAs = x509.NewCertPool() // made anew, as from a file that is read again
	foreign.RootCAs.AddCert(s.Certificate())
	change(false, secretConfig(), foreign)
	change(true, secretConfig(), foreign, other)
	require.NoError(t, verify(v, ofOther))
	require.NoError(t, verify(v, ofForeign))
	foreign.Tenants = []string{"beta"}
	change(true, foreign, other)
	requireRefused(t, verify(v, ofForeign), "tenant")
	requireRefused(t, verify(v, hs256(t, nil, nil)), "is not trusted here")
	require.NoError(t, verify(v, tokenOf(t, key, "a",
		fields{"iss": foreign.Issuer, "tenant": "beta"})), "its keys are those of before")
	foreign.RootCAs = x509.NewCertPool()
	change(true, foreign, other)
	requireCode(t, verify(v, tokenOf(t, key, "a", fields{"iss": foreign.Issuer, "tenant": "beta"})),
		asyncflow.CodeUnavailable, "not been loaded yet")
	change(true, other)
	requireRefused(t, verify(v, hs256(t, nil, nil)), "algorithm is not EdDSA")
	require.NoError(t, verify(v, ofOther))
}

// Configs that can't be used change nothing.
func TestBadChangeOfIssuers(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, secretConfig())
	token := hs256(t, nil, nil)
	bad := secretConfig()
	bad.Issuer, bad.HMACSecret = "bad", []byte("short")
	for want, configs := range map[string][]Config{
		"Issuer must be set":           nil,
		"HMACSecret must have":         {secretConfig(), bad},
		"is that of another issuer":    {secretConfig(), secretConfig()},
		"there is no key to verify wi": {DefaultConfig()},
	} {
		t.Run(want, func(t *testing.T) {
			changed, err := v.Change(configs...)
			require.False(t, changed)
			requireCode(t, err, asyncflow.CodeInvalid, want)
			var wrong *IssuerError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, max(len(configs)-1, 0), wrong.Index)
			require.NoError(t, verify(v, token))
		})
	}
}

// A ready node stays ready when an issuer is added; one that waits at its start keeps waiting.
func TestChangeKeepsReadiness(t *testing.T) {
	t.Parallel()
	down := newKeyServer(t, httptest.NewTLSServer).config()
	down.Issuer = "https://down.example"
	ready := newVerifier(t, secretConfig())
	_, err := ready.Change(secretConfig(), down)
	require.NoError(t, err)
	require.NoError(t, ready.Ready())

	v, err := NewVerifier(secretConfig(), down)
	require.NoError(t, err)
	down.Tenants = []string{"acme"}
	_, err = v.Change(secretConfig(), down)
	require.NoError(t, err)
	requireCode(t, v.Ready(), asyncflow.CodeUnavailable, "https://down.example")
	_, err = v.Change(secretConfig())
	require.NoError(t, err)
	require.NoError(t, v.Ready())
}

// Run loads the keys of issuers that are added later, and no longer the keys of removed ones.
func TestRunFollowsTheChange(t *testing.T) {
	t.Parallel()
	s := newKeyServer(t, httptest.NewTLSServer)
	s.publish(200, setOf(named(t, newEd25519(t, nil), "a")))
	foreign := s.config()
	foreign.Issuer = "https://login.example"
	v := newVerifier(t, secretConfig())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx, slog.New(slog.DiscardHandler)) }()
	_, err := v.Change(secretConfig(), foreign)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.fetches.Load() == 1
	}, patience, 20*time.Millisecond)
	stop()
	require.NoError(t, <-done)

	old := v.trust.Load()
	_, err = v.Change(secretConfig())
	require.NoError(t, err)
	old.follow(t.Context(), slog.New(slog.DiscardHandler)) // which ends: its issuers are gone
}
