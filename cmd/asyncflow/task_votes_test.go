package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// Two claimers decide a task, and a command shows how.
func TestCLIVotes(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	run(0, "types", "apply", "-f", writeFile(t, `
types:
  - name: pipe
    stages:
      - {name: judge, mode: claim, identity: unchecked, quorum: {votes: 2, max_votes: 3, agree_on: /label}}
`))
	c := node.client()
	claimer, err := client.New(node.url, tokenOf(t, node.tenant, auth.ScopeWork))
	require.NoError(t, err)
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON(`1`)})
	require.NoError(t, err)
	reporter := sdk.NewReporter(nil)
	for i, name := range []string{"anna", "bob"} {
		all, err := claimer.Claim(t.Context(), client.ClaimRequest{Type: "pipe", Stage: "judge",
			Claimer: name, Max: 1, Wait: client.NewDuration(time.Minute)})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, reporter.Complete(t.Context(),
			sdk.Callback{URL: all[0].Callback.URL, Token: all[0].Callback.Token},
			map[string]string{"label": "cat"}))
		if i == 0 {
			assert.Regexp(t, `(?s)anna \(token of test\) +succeeded +"cat" +pipe\..*\nundecided\n$`,
				run(0, "tasks", "votes", task.ID))
		}
	}
	done, err := c.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, done.Status)
	assert.Regexp(t, `(?s)anna .*bob .*\ndecided: "cat"\n$`, run(0, "tasks", "votes", task.ID))
	assert.Contains(t, run(0, "tasks", "votes", task.ID, "-o", "json"), `"decided": true`)
	votes, err := c.Votes(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Regexp(t, `claimed by anna \(token of test\)`,
		run(0, "tasks", "attempts", votes.Data[0].TaskID))
	run(exitNotFound, "tasks", "votes", "pipe.1.999999")
}
