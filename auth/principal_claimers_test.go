package auth

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A token that says something about claimers in a form that can't be read, or names none, allows
// none.
func TestClaimersOfAToken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Claimers{
		`["anna","desk-*"]`: {"anna", "desk-*"}, `[]`: {}, `null`: {},
	} {
		t.Run(text, func(t *testing.T) {
			got := Claimers(nil)
			require.NoError(t, got.UnmarshalJSON([]byte(text)), text)
			assert.Equal(t, want, got, text)
		})
	}
	for _, text := range []string{`"anna"`, `{}`, `[1]`, `[""]`, `["an na"]`, `[null]`} {
		t.Run(text, func(t *testing.T) {
			require.Error(t, new(Claimers).UnmarshalJSON([]byte(text)))
		})
	}
	many := make(Claimers, MaxClaimers+1)
	for i := range many {
		many[i] = "anna"
	}
	require.Error(t, many.check())

	config := DefaultConfig()
	config.HMACSecret = testSecret
	issuer, err := NewIssuer(config)
	require.NoError(t, err)
	verifier, err := NewVerifier(config)
	require.NoError(t, err)
	for _, names := range []Claimers{nil, {"anna", "desk-*"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			token, err := issuer.IssueLimited("acme", "anna", []Scope{ScopeWork},
				ClaimLimits{Claimers: names}, time.Hour, testNow)
			require.NoError(t, err)
			p, err := verifier.Verify(t.Context(), token, testNow)
			require.NoError(t, err)
			assert.Equal(t, names, p.Claimers)
		})
	}
	_, err = issuer.IssueLimited("acme", "anna", []Scope{ScopeWork},
		ClaimLimits{Claimers: Claimers{"a b"}}, time.Hour, testNow)
	require.Error(t, err)
}

func TestClaimersHas(t *testing.T) {
	t.Parallel()
	names := Claimers{"anna", "desk-*"}
	for name, want := range map[string]bool{
		"anna": true, "desk-1": true, "desk-": true, "desk": false, "annab": false, "bob": false,
		"": false,
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, want, names.Has(name), name)
		})
	}
	assert.False(t, Claimers(nil).Has("anna"))
	assert.True(t, Claimers{"*"}.Has("anna"))
}
