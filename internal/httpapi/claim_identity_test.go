package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
)

// Where names count, a claimer is who the token says. A token that lists claimers is bound to these
// everywhere.
func TestClaimerIsWhoTheTokenSays(t *testing.T) {
	const (
		plain     = `"name":"look","mode":"claim"`
		window    = plain + `,"window":{"tasks":2,"per":"1h"}`
		quorum    = plain + `,"quorum":{"votes":2,"max_votes":3,"trust":{"after":2}}`
		unchecked = `,"identity":"unchecked"`
	)
	tokens := map[string]auth.Claimers{"sub only": nil, "listed": {"bob", "carol-*"}, "none": {}, "all": {"*"}}
	b := setup(t)
	claim := func(t *testing.T, token, claimer string) int {
		t.Helper()
		text, err := b.issuer.IssueClaimers("acme", "anna", []auth.Scope{auth.ScopeWork},
			tokens[token], time.Hour, time.Now())
		require.NoError(t, err)
		a := b.callAs(text, "POST", "/v1/claims",
			`{"type":"judge","stage":"look","claimer":"`+claimer+`"}`)
		if a.status == 403 {
			assert.Contains(t, a.problem.Detail, claimer)
		}
		return a.status
	}
	for _, stage := range []string{plain, window, quorum, window + unchecked, quorum + unchecked} {
		t.Run(stage, func(t *testing.T) {
			a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{`+stage+`}]}`)
			require.Contains(t, []int{200, 201}, a.status, "%s", a.body)
			other := 200
			if stage == window || stage == quorum {
				other = 403
			}
			assert.Equal(t, []int{200, other, other}, []int{claim(t, "sub only", "anna"),
				claim(t, "sub only", "bob"), claim(t, "sub only", "Anna")})
			assert.Equal(t, []int{200, 200, 403, 403, 403}, []int{claim(t, "listed", "bob"),
				claim(t, "listed", "carol-1"), claim(t, "listed", "bobby"), claim(t, "listed", "carol"),
				claim(t, "listed", "anna")})
			assert.Equal(t, []int{200, 200}, []int{claim(t, "all", "x"), claim(t, "all", "anna")})
		})
	}
	a := b.call("PUT", "/v1/task-types/bad", `{"stages":[{`+plain+`,"identity":"checked"}]}`)
	require.Equal(t, 400, a.status)
	assert.Equal(t, "stages[0].identity", a.problem.Errors[0].Field)
}
