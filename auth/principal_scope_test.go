package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestScopesRoundTrip(t *testing.T) {
	for _, text := range []string{"", "read", "submit read",
		"submit read work operate manage admin"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			require.Equal(t, text, scopesOfToken(strings.Fields(text)).String())
		})
	}
	require.Equal(t, NewScopes(ScopeRead, ScopeSubmit),
		scopesOfToken(strings.Fields("  read\tsubmit read nonsense ")))
}

// Each scope allows only itself; admin doesn't include the others.
func TestHasAndRequire(t *testing.T) {
	t.Parallel()
	for _, has := range allScopes {
		p := Principal{Scopes: NewScopes(has)}
		for _, asked := range allScopes {
			err := p.Require(asked)
			require.Equal(t, has == asked, p.Has(asked))
			require.Equal(t, has == asked, err == nil)
			if has != asked {
				requireCode(t, err, asyncflow.CodeForbidden, `"`+string(asked)+`"`)
			}
		}
	}
	all := Principal{Scopes: NewScopes(allScopes[:]...)}
	require.False(t, all.Has("root"), "an unknown scope is never in a set")
	require.False(t, all.Has(""))
	require.Error(t, Principal{}.Require(ScopeRead))
}
