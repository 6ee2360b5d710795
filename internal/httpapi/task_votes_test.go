package httpapi_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// The votes on a task can be read. One that comes after the decision is told so, and kept.
func TestVotes(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"look","mode":"claim",
		"quorum":{"votes":1,"max_votes":2,"max_errors":1,"agree_on":"/label"}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	id := b.submitJudge(1)[0]
	b.fanOut("judge")
	anna := b.claim("anna", `,"wait":"1m"`)[0]
	assert.Equal(t, id, anna.FanOut.Parent)
	votes := func() api.VoteList {
		return read[api.VoteList](b, 200, b.call("GET", "/v1/tasks/"+id+"/votes", ""))
	}
	assert.Equal(t, api.VoteList{Data: []api.Vote{}}, votes())

	_, err := b.db.Exec(t.Context(), `UPDATE tenant_acme.lease SET leased_at = now() - interval '2 h',
		until = now() - interval '1 h'`)
	require.NoError(t, err)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	_, err = b.store.Rescue(t.Context(), judge)
	require.NoError(t, err)
	bob := b.claim("bob", `,"wait":"1m"`)[0]
	assert.Equal(t, anna.TaskID, bob.TaskID)
	require.Equal(t, 200, b.report(bob, "complete", `{"output":{"label":"cat"}}`).status)
	require.Eventually(t, func() bool { return b.task(id).Status == asyncflow.StatusSucceeded },
		patience, 20*time.Millisecond)
	for range 2 {
		late := b.report(anna, "complete", `{"output":{"label":"dog"}}`)
		assert.Equal(t, []any{410, string(asyncflow.CodeDecided)},
			[]any{late.status, late.problem.Code})
	}
	got := votes()
	require.Len(t, got.Data, 2)
	assert.Equal(t, []any{true, true, `"cat"`}, []any{got.Decided, got.Over, string(got.Outcome)})
	assert.Equal(t, []any{bob.TaskID, "bob", `"cat"`, false}, []any{got.Data[0].TaskID,
		got.Data[0].Claimer, string(got.Data[0].Outcome), got.Data[0].Late})
	assert.Equal(t, []any{"", "anna", "anna", `"dog"`, true}, []any{got.Data[1].TaskID,
		got.Data[1].Claimer, got.Data[1].Subject, string(got.Data[1].Outcome), got.Data[1].Late})
	assert.JSONEq(t, `{"label":"cat"}`, string(b.task(bob.TaskID).Result))
	b.inVain(api.StageClaims{Stage: "look", LateVotes: 1}) // the same vote again counts once

	n, err := b.store.ForgetClaims(t.Context(), "acme")
	require.NoError(t, err)
	assert.Zero(t, n)
	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.votes SET until = now() - interval '1 s'`)
	require.NoError(t, err)
	n, err = b.store.ForgetClaims(t.Context(), "acme")
	require.NoError(t, err)
	assert.Equal(t, 1, n)

	assert.Equal(t, 409, b.call("GET", "/v1/tasks/"+bob.TaskID+"/votes", "").status,
		"a vote itself")
	assert.Equal(t, 404, b.call("GET", "/v1/tasks/judge.1.999/votes", "").status)
	assert.Equal(t, 409, b.call("POST", "/v1/tasks/"+bob.TaskID+"/redrive", "").status)
}

// inVain waits until the stats of the type judge count what its claimers did in vain. The store
// writes such counts as long as it runs.
func (b *bundle) inVain(want api.StageClaims) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.store.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(b.t, <-done)
	}()
	require.Eventually(b.t, func() bool {
		all := read[api.StatsList](b, 200, b.call("GET", "/v1/stats?type=judge", "")).Data
		return slices.Equal(all[0].StageClaims, []api.StageClaims{want})
	}, patience, 100*time.Millisecond)
}

// Reports about the votes on a cancelled task are told that, not that it was decided.
func TestVotesOnACancelledTask(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"look","mode":"claim",
		"quorum":{"votes":1,"max_votes":1}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	id := b.submitJudge(1)[0]
	b.fanOut("judge")
	anna := b.claim("anna", `,"wait":"1m"`)[0]
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
	require.Eventually(t, func() bool {
		return b.task(anna.TaskID).Status == asyncflow.StatusCancelled
	}, patience, 20*time.Millisecond)
	late := b.report(anna, "complete", `{"output":"dog"}`)
	assert.Equal(t, 409, late.status, "%s", late.body)
	assert.Contains(t, late.problem.Detail, "cancelled")
	got := read[api.VoteList](b, 200, b.call("GET", "/v1/tasks/"+id+"/votes", ""))
	assert.False(t, got.Decided)
}

// A late vote counts though a claim takes it from its place and puts it back meanwhile.
func TestALateVoteWhileAClaimLooks(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge", `{"stages":[{"name":"look","mode":"claim",
		"quorum":{"votes":1,"max_votes":1}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.submitJudge(1)
	b.fanOut("judge")
	anna := b.claim("anna", `,"wait":"1m"`)[0]
	_, err := b.db.Exec(t.Context(), `UPDATE tenant_acme.lease SET leased_at = now() - interval '2 h',
		until = now() - interval '1 h'`)
	require.NoError(t, err)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	_, err = b.store.Rescue(t.Context(), judge)
	require.NoError(t, err)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	for _, sql := range []string{
		`CREATE TEMP TABLE x ON COMMIT DROP AS SELECT * FROM tenant_acme.wait WHERE seq = 2
			AND id IN (SELECT id FROM tenant_acme.journal_1 WHERE outcome = 'lost')`,
		`DELETE FROM tenant_acme.wait WHERE id IN (SELECT id FROM x)`,
		`INSERT INTO tenant_acme.wait SELECT * FROM x`,
	} {
		tag, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
	}
	done := make(chan answer, 1)
	go func() { done <- b.report(anna, "complete", `{"output":"cat"}`) }()
	require.Eventually(t, func() bool {
		var n int
		err := b.db.QueryRow(t.Context(), `SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n > 0
	}, patience, 20*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	late := <-done
	assert.Equal(t, 200, late.status, "%s", late.body)
}

func TestBadQuorums(t *testing.T) {
	b := setup(t)
	for stage, field := range map[string]string{
		`"quorum":{"votes":0,"max_votes":1}`:                                    "quorum.votes",
		`"quorum":{"votes":2,"max_votes":1}`:                                    "quorum.max_votes",
		`"quorum":{"votes":2,"max_votes":101}`:                                  "quorum.max_votes",
		`"quorum":{"votes":1,"max_votes":1,"max_errors":-1}`:                    "quorum.max_errors",
		`"quorum":{"votes":1,"max_votes":1,"agree_on":"label"}`:                 "quorum.agree_on",
		`"mode":"claim","quorum":{"votes":1,"max_votes":1,"trust":{"after":1}}`: "quorum.trust.after",
		`"quorum":{"votes":1,"max_votes":1,"trust":{"after":2}}`:                "quorum.trust",
		`"quorum":{"votes":1,"max_votes":1},"fan_out":{"shards":2}`:             "quorum",
		`"fan_out":{"quorum":{"votes":1,"max_votes":1}}`:                        "fan_out.quorum",
	} {
		a := b.call("PUT", "/v1/task-types/bad", `{"stages":[{"name":"look",`+stage+`}]}`)
		require.Equal(t, 400, a.status, "%s: %s", stage, a.body)
		assert.Equal(t, "stages[0]."+field, a.problem.Errors[0].Field, stage)
	}
	a := b.call("PUT", "/v1/task-types/bad", `{"flow":{"max_in_flight":1},
		"stages":[{"name":"look","quorum":{"votes":1,"max_votes":1}}]}`)
	require.Equal(t, 400, a.status, "%s", a.body)
	assert.Equal(t, "flow", a.problem.Errors[0].Field)
}

// Votes of a pushed stage that is listened to are like pushed ones: one listener gets all of a
// task's, as one endpoint would. Late ones count, too.
func TestVotesOfAListener(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/pipe", `{"stages":[{"name":"first",
		"quorum":{"votes":3,"max_votes":3,"agree_on":"/label"}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.createEndpoint(listening)
	id := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":{}}`)).ID
	b.fanOut("pipe")
	const cat = `{"status":200,"content_type":"application/json","body":"eyJvdXRwdXQiOnsibGFiZWwiOiJjYXQifX0="}`
	for i := range 3 {
		d, _, _ := b.claimSigned()
		assert.Equal(t, id, d.FanOut.Parent)
		if i > 0 {
			b.runOut("pipe")
		}
		for range 2 {
			require.Equal(t, 200, b.report(d, "answer", cat).status)
		}
	}
	require.Eventually(t, func() bool { return b.task(id).Status == asyncflow.StatusSucceeded },
		patience, 20*time.Millisecond)
	got := read[api.VoteList](b, 200, b.call("GET", "/v1/tasks/"+id+"/votes", ""))
	require.Len(t, got.Data, 3)
	assert.Empty(t, got.Data[0].Claimer, "it counts as pushed")
	attempts := read[api.AttemptList](b, 200,
		b.call("GET", "/v1/tasks/"+got.Data[0].TaskID+"/attempts", "")).Data
	assert.Equal(t, []string{"anna", ""}, []string{attempts[len(attempts)-1].Claimer,
		attempts[len(attempts)-1].Endpoint})
}
