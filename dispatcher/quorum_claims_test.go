package dispatcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// A claimer that waits after its vote for another vote costs nothing, though others are in line.
func TestAVoterThatWaitsDoesNotPoll(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 2, MaxVotes: 3})
	f.submitOne(`1`)
	f.inLine(2)
	f.vote(f.claim(t, "first", "anna", 1)[0], says(`"cat"`))
	looks := f.ClaimLooks()
	all, err := f.Claim(t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
		Claimer: "anna", Max: 1, Wait: 2 * time.Second})
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.LessOrEqual(t, f.ClaimLooks()-looks, int64(5))
}

// askFor asks for claimers in one transaction.
func (f *family) askFor(n int, claimers ...string) (asks []*store.ClaimAsk) {
	f.t.Helper()
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(f.t, err)
	for _, name := range claimers {
		asks = append(asks, &store.ClaimAsk{Claimer: name, N: n})
	}
	_, err = f.LeaseForClaims(f.t.Context(), pipe, "first", asks, 100, 1<<20)
	require.NoError(f.t, err)
	return asks
}

// Claimers that ask together share what is in line, and what nobody gets stays there untouched.
func TestVotersThatAskTogether(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 3, MaxVotes: 5})
	for range 4 {
		f.submitOne(`1`)
	}
	f.inLine(12)
	asks := f.askFor(10, "anna", "bob")
	assert.Len(t, asks[0].Leases, 4)
	assert.Len(t, asks[1].Leases, 4)
	f.inLine(4)
	assert.Empty(t, f.askFor(10, "anna", "bob")[0].Leases)
	assert.Len(t, f.askFor(10, "anna", "carol")[1].Leases, 4)
}

// Votes keep their rules when their stage is without a quorum later, and when a limit delayed them.
func TestVotesOfAnEarlierQuorum(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 3, MaxVotes: 3})
	id := f.submitOne(`1`)
	f.inLine(3)
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].Quorum = nil
	_, _, err = f.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
	for _, name := range []string{"anna", "bob", "carol"} {
		got := f.claim(t, "first", name, 10)
		require.Len(t, got, 1)
		f.vote(got[0], says(`"cat"`))
		f.none(name)
	}
	assert.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
}

// A vote that was pushed and lost is retried as any other task.
func TestAPushedVoteIsRetriedAfterAPause(t *testing.T) {
	spec := asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{{Name: "first",
		Quorum: &asyncflow.Quorum{Votes: 1, MaxVotes: 1}}}}.WithDefaults()
	now := time.Now()
	l := asyncflow.Lease{Stage: "first", Attempt: 1, LeasedAt: now, OrderTime: now,
		Options: asyncflow.Options{Child: &asyncflow.Child{Parent: 1, Vote: true}}}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeLost}
	assert.False(t, asyncflow.Decide(spec, l, o, now).OrderTime.Before(now))
	o.Endpoint = asyncflow.ClaimedBy("anna", "")
	assert.True(t, asyncflow.Decide(spec, l, o, now).OrderTime.Before(now))
}

// The votes on a task can be read after a later stage fans out.
func TestVotesAreReadAfterAFanOut(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 1, MaxVotes: 1})
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[1].FanOut = &asyncflow.FanOut{Shards: 2}
	_, _, err = f.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
	id := f.submitOne(`1`)
	f.vote(f.claim(t, "first", "anna", 1)[0], says(`"cat"`))
	require.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	votes, err := f.Votes(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, []any{1, `"cat"`}, []any{len(votes.Cast), string(votes.Outcome)})
}
