package auth

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestParseScopes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"submit read":                   "submit read",
		"  read\tsubmit read ":          "submit read",
		"admin manage work read submit": "submit read work manage admin",
	} {
		set, err := ParseScopes(text)
		require.NoError(t, err)
		require.Equal(t, want, set.String())
		again, err := ParseScopes(set.String())
		require.NoError(t, err)
		require.Equal(t, set, again)
	}
	for _, text := range []string{"submit root", "Read", "read,submit", "*"} {
		_, err := ParseScopes(text)
		requireCode(t, err, asyncflow.CodeInvalid, "scope names the unknown scope")
	}
}

// Each scope stands for itself only; admin is not all of them.
func TestHasAndRequire(t *testing.T) {
	t.Parallel()
	for _, held := range allScopes {
		p := Principal{Scopes: NewScopes(held)}
		for _, asked := range allScopes {
			err := p.Require(asked)
			require.Equal(t, held == asked, p.Has(asked))
			require.Equal(t, held == asked, err == nil)
			if held != asked {
				requireCode(t, err, asyncflow.CodeForbidden, `"`+string(asked)+`"`)
			}
		}
	}
	all := Principal{Scopes: NewScopes(allScopes[:]...)}
	require.False(t, all.Has("root"), "an unknown scope is never held")
	require.False(t, all.Has(""))
	require.Error(t, Principal{}.Require(ScopeRead))
}
