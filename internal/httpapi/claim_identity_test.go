package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
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
	tokens := map[string]auth.Claimers{"sub only": nil, "listed": {"bob", "carol-*"}, "none": {},
		"all": {"*"}}
	b := setup(t)
	claim := func(t *testing.T, token, claimer string) int {
		t.Helper()
		text, err := b.issuer.IssueLimited("acme", "anna", []auth.Scope{auth.ScopeWork},
			auth.ClaimLimits{Claimers: tokens[token]}, time.Hour, time.Now())
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
				claim(t, "listed", "carol-1"), claim(t, "listed", "bobby"),
				claim(t, "listed", "carol"),
				claim(t, "listed", "anna")})
			assert.Equal(t, []int{200, 200}, []int{claim(t, "all", "x"), claim(t, "all", "anna")})
		})
	}
	a := b.call("PUT", "/v1/task-types/bad", `{"stages":[{`+plain+`,"identity":"checked"}]}`)
	require.Equal(t, 400, a.status)
	assert.Equal(t, "stages[0].identity", a.problem.Errors[0].Field)
}

// Where names don't count, tokens may use the same ones. But what was handed to one token is shown
// again only to tokens of the same subject, and to tokens that name the claimer; and the journal
// says which token it was.
func TestOpenClaimsAreOfASubject(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(2)
	claim := func(subject, more string, claimers ...string) []api.Delivery {
		t.Helper()
		token, err := b.issuer.IssueLimited("acme", subject, []auth.Scope{auth.ScopeWork},
			auth.ClaimLimits{Claimers: claimers}, time.Hour, time.Now())
		require.NoError(t, err)
		return read[api.ClaimList](b, 200, b.callAs(token, "POST", "/v1/claims",
			`{"type":"judge","stage":"look","claimer":"anna"`+more+`}`)).Claims
	}
	own := claim("desk one", "")
	require.Len(t, own, 1)
	others := claim("thief", `,"held":["`+ids[0]+`"]`)
	require.Len(t, others, 1)
	assert.Equal(t, []string{ids[0], ids[1]}, []string{own[0].TaskID, others[0].TaskID})
	assert.Less(t, time.Until(b.task(ids[0]).Deadline), 2*asyncflow.FirstClaim,
		"a stranger who names the task doesn't prolong it")
	assert.Equal(t, ids[0], claim("desk one", "")[0].TaskID, "another token of the same subject")
	assert.Len(t, claim("manager", `,"max":2`, "anna"), 2, "a token that names the claimer")

	b.runOut("judge")
	require.Equal(t, 200, b.report(own[0], "complete", `{}`).status, "late")
	require.Equal(t, 200, b.report(own[0], "complete", `{}`).status, "again")
	for i, subject := range []string{"desk one", "thief"} {
		for _, a := range read[api.AttemptList](b, 200,
			b.call("GET", "/v1/tasks/"+ids[i]+"/attempts", "")).Data {
			assert.Equal(t, []string{"anna", subject}, []string{a.Claimer, a.Subject}, "%s",
				a.Outcome)
		}
	}
	again := claim("desk two", "")
	require.Len(t, again, 1)
	require.Equal(t, 200, b.report(again[0], "complete", `{}`).status)
	attempts := read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+ids[1]+"/attempts", "")).Data
	assert.Equal(t, "desk two", attempts[len(attempts)-1].Subject)
}
