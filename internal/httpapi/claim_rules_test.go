package httpapi_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// submitRuled submits a task of the type judge with rules.
func (b *bundle) submitRuled(rules string) string {
	b.t.Helper()
	return read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"judge","context":{},"claim":`+rules+`}`)).ID
}

// limitedToken returns a token with limits on its claims.
func (b *bundle) limitedToken(subject string, l auth.ClaimLimits) string {
	b.t.Helper()
	token, err := b.issuer.IssueLimited("acme", subject, []auth.Scope{auth.ScopeWork}, l, time.Hour,
		time.Now())
	require.NoError(b.t, err)
	return token
}

// ids returns the ids of deliveries.
func ids(all []api.Delivery) (some []string) {
	for _, d := range all {
		some = append(some, d.TaskID)
	}
	return some
}

// A task goes only to claimers that its rules allow, whoever else asks, and nobody who asks for
// more waits behind the tasks that it may not get.
func TestClaimRules(t *testing.T) {
	b := setup(t)
	b.claimed()
	own := b.submitRuled(`{"exclude":["anna","desk-*"]}`)
	german := b.submitRuled(`{"labels":{"lang":"de"}}`)
	both := b.submitRuled(`{"exclude":["carl"],"labels":{"lang":"de","level":"2"}}`)
	free := b.submitJudge(1)[0]
	assert.Equal(t, []string{free}, ids(b.claim("anna", `,"max":10,"labels":{"lang":["en"]}`)))
	assert.Empty(t, b.claim("desk-7", `,"max":10`))
	assert.Equal(t, []string{own}, ids(b.claim("carl",
		`,"max":1,"labels":{"lang":["en","de"],"level":["2"]}`)))
	assert.Equal(t, []string{german}, ids(b.claim("carl",
		`,"max":10,"held":["`+own+`"],"labels":{"lang":["de"],"level":["2"]}`)))
	last := b.claim("desk-7", `,"max":10,"labels":{"lang":["de"],"level":["1","2"]}`)
	require.Equal(t, []string{both}, ids(last))

	// Given back, it keeps its rules; they are also shown.
	require.Equal(t, 200, b.report(last[0], "release", ``).status)
	assert.Empty(t, b.claim("emil", `,"max":10,"labels":{"lang":["de"]}`))
	rules := b.task(both).Claim
	require.NotNil(t, rules)
	assert.Equal(t, []string{"carl"}, rules.Exclude)
	assert.Equal(t, map[string]string{"lang": "de", "level": "2"}, rules.Labels)
	assert.Equal(t, "only claimers with the labels lang=de, level=2 may have it; "+
		"1 claimer is excluded", b.task(both).WaitsBecause)
}

// A call that waits gets a task that it may get, and sleeps while there are others.
func TestAClaimerWaitsForATaskItMayHave(t *testing.T) {
	b := setup(t)
	b.claimed()
	b.submitRuled(`{"exclude":["anna"]}`)
	answer := make(chan []api.Delivery)
	go func() { answer <- b.claim("anna", `,"wait":"1m"`) }()
	b.waitingClaims(1)
	b.submitRuled(`{"exclude":["anna"]}`)
	want := b.submitRuled(`{"exclude":["bob"]}`)
	assert.Equal(t, []string{want}, ids(<-answer))
}

// What a token says wins: labels of the call don't count beside its own, its sub is excluded under
// any name, and it claims from no other stage than those that it lists.
func TestClaimLimitsOfATokenHold(t *testing.T) {
	b := setup(t)
	b.claimed()
	ruled := b.submitRuled(`{"labels":{"lang":"de"}}`)
	call := func(token, more string) answer {
		return b.callAs(token, "POST", "/v1/claims",
			`{"type":"judge","stage":"look","claimer":"x","max":9`+more+`}`)
	}
	claim := func(token, more string) []string {
		t.Helper()
		return ids(read[api.ClaimList](b, 200, call(token, more)).Claims)
	}
	german := `,"labels":{"lang":["de"]}`
	for name, labels := range map[string]auth.Labels{"other": {"lang": {"en"}}} {
		liar := b.limitedToken("liar", auth.ClaimLimits{Labels: labels})
		assert.Empty(t, claim(liar, german), name)
	}
	assert.Equal(t, []string{ruled}, claim(b.limitedToken("speaker",
		auth.ClaimLimits{Labels: auth.Labels{"lang": {"en", "de"}}}), ""))

	b.submitRuled(`{"exclude":["author"]}`)
	assert.Empty(t, claim(b.limitedToken("author", auth.ClaimLimits{}), ""), "under another name")

	for entry, status := range map[string]int{"judge": 200, "judge/look": 200, "judge/other": 403,
		"judges": 403, "other": 403} {
		a := call(b.limitedToken("limited", auth.ClaimLimits{Stages: auth.Stages{entry}}), "")
		require.Equal(t, status, a.status, "%s: %s", entry, a.body)
		if status == 403 {
			assert.Contains(t, a.problem.Detail, "stage look of judge")
		}
	}
}

// A patch replaces all rules of a task in line, from the next claim on. A claimer that holds it
// keeps it, and the journal says who changed the task.
func TestChangedClaimRules(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := b.submitRuled(`{"exclude":["anna"],"labels":{"lang":"de"}}`)
	patch := func(rules string) api.Task {
		t.Helper()
		return read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id, `{"claim":`+rules+`}`))
	}
	assert.Empty(t, b.claim("bob", ``))
	changed := patch(`{"exclude":["bob"]}`)
	assert.Equal(t, []any{[]string{"bob"}, 0},
		[]any{changed.Claim.Exclude, len(changed.Claim.Labels)})
	assert.Empty(t, b.claim("bob", ``))
	read[api.Task](b, 200, b.call("PATCH", "/v1/tasks/"+id, `{"priority":5}`))
	assert.Empty(t, b.claim("bob", ``), "another change keeps them")
	patch(`{"exclude":["bob"]}`)
	assert.Nil(t, patch(`{}`).Claim)
	got := b.claim("bob", ``)
	require.Equal(t, []string{id}, ids(got))
	a := b.call("PATCH", "/v1/tasks/"+id, `{"claim":{"exclude":["bob"]}}`)
	require.Equal(t, 409, a.status, "it is claimed: %s", a.body)
	require.Equal(t, 200, b.report(got[0], "complete", `{}`).status)

	var changes int
	for _, one := range b.attempts(id) {
		if one.Outcome == api.AttemptOutcome(asyncflow.OutcomeChanged) {
			changes++
		}
	}
	assert.Equal(t, 3, changes, "the same rules again change nothing")
	for _, rules := range []string{`{"exclude":[""]}`, `{"labels":{"la=ng":"de"}}`} {
		a := b.call("PATCH", "/v1/tasks/"+b.submitJudge(1)[0], `{"claim":`+rules+`}`)
		assert.Equal(t, 400, a.status, "%s: %s", rules, a.body)
	}
}

// A rerun gets the rules of the old task, or the rules that it is given.
func TestRerunsHaveClaimRules(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := b.submitRuled(`{"exclude":["anna"]}`)
	require.Equal(t, 200, b.report(b.claim("bob", ``)[0], "complete", `{}`).status)
	for body, want := range map[string]*asyncflow.ClaimRules{
		``:                                   {Exclude: []string{"anna"}},
		`{"claim":{}}`:                       nil,
		`{"claim":{"labels":{"lang":"de"}}}`: {Labels: map[string]string{"lang": "de"}},
	} {
		made := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks/"+id+"/rerun", body))
		assert.Equal(t, want, b.task(made.ID).Claim, body)
	}
	a := b.call("POST", "/v1/tasks/"+id+"/rerun", `{"claim":{"exclude":[""]}}`)
	assert.Equal(t, 400, a.status, "%s", a.body)
}

// While a node runs that doesn't know the rules, it would hand the tasks to anyone: so they are
// refused, also in changes.
func TestClaimRulesBesideAnOlderNode(t *testing.T) {
	b := setup(t)
	b.claimed()
	id := b.submitJudge(1)[0]
	_, err := b.db.Exec(t.Context(), `INSERT INTO asyncflow.nodes
		(id, roles, version, started_at, seen_at, knows)
		VALUES ('old', 'api', '0.0.9', now(), now() + interval '1 h', '{deliver}')`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.store.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	require.Eventually(t, func() bool {
		return b.store.CheckKnownLately(asyncflow.CapClaimRules) != nil
	}, 2*time.Minute, 20*time.Millisecond, "the node hears of the other one")
	for _, call := range [][3]string{
		{"POST", "/v1/tasks", `{"type":"judge","context":{},"claim":{"exclude":["anna"]}}`},
		{"PATCH", "/v1/tasks/" + id, `{"claim":{"exclude":["anna"]}}`},
	} {
		a := b.call(call[0], call[1], call[2])
		require.Equal(t, 409, a.status, "%s: %s", call, a.body)
		assert.Contains(t, a.problem.Detail, "claim_rules")
	}
}

// Rules that nothing would keep, or that are too long, are refused by the name of their field.
func TestRefusedClaimRules(t *testing.T) {
	b := setup(t)
	b.claimed()
	a := b.call("PUT", "/v1/task-types/pushed", `{"stages":[{"name":"look"}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	long := fmt.Sprintf("%0256d", 1)
	for rules, field := range map[string]string{
		`{}`:                                 "claim",
		`{"exclude":["` + long + `"]}`:       "claim.exclude[0]",
		`{"exclude":["a\nb"]}`:               "claim.exclude",
		`{"labels":{"la=ng":"de"}}`:          "claim.labels",
		`{"labels":{"lang":"` + long + `"}}`: "claim.labels.lang",
	} {
		a := b.call("POST", "/v1/tasks", `{"type":"judge","context":{},"claim":`+rules+`}`)
		require.Equal(t, 400, a.status, "%s: %s", rules, a.body)
		assert.Contains(t, string(a.body), "claim", field)
	}
	a = b.call("POST", "/v1/tasks", `{"type":"pushed","context":{},"claim":{"exclude":["anna"]}}`)
	require.Equal(t, 400, a.status, "%s", a.body)
	assert.Equal(t, "claim", a.problem.Errors[0].Field)
}
