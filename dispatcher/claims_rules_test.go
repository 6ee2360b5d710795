package dispatcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// Votes follow the rules of their task: an excluded claimer gets none and doesn't poll while it
// waits, and the others decide.
func TestVotesHaveTheRulesOfTheirTask(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 2, MaxVotes: 3})
	task := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`), Options: asyncflow.Options{
		Claim: &asyncflow.ClaimRules{Exclude: []string{"anna"}}}}
	r := f.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
	require.NoError(t, r.Err)
	f.inLine(2)
	f.vote(f.claim(t, "first", "bob", 1)[0], says(`"cat"`))
	looks := f.ClaimLooks()
	all, err := f.Claim(t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
		Claimer: "anna", Max: 1, Wait: 2 * time.Second})
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.LessOrEqual(t, f.ClaimLooks()-looks, int64(5))
	f.none("bob")
	f.vote(f.claim(t, "first", "carol", 1)[0], says(`"cat"`))
	assert.Equal(t, asyncflow.StatusSucceeded, f.ended(r.ID).Status)
}
