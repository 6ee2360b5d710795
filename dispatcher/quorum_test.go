package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// startQuorum starts a node with a type "pipe" that lets several claim its first stage.
func startQuorum(t *testing.T, q asyncflow.Quorum) *family {
	b := setup(t)
	f := &family{t: t, b: b}
	f.node = b.start("a", dispatcher.Config{}, f.join)
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].Mode, spec.Stages[0].Quorum = asyncflow.ModeClaim, &q
	_, _, err = f.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
	return f
}

// join takes the deliveries of the stage after the votes.
func (f *family) join(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joined = append(f.joined, string(d.Lease.Context))
	return done
}

// vote ends a claim with an outcome.
func (f *family) vote(d asyncflow.Delivery, o asyncflow.Outcome) {
	f.t.Helper()
	f.voteAt(f.node, d, o)
}

func (f *family) voteAt(n *node, d asyncflow.Delivery, o asyncflow.Outcome) {
	f.t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(f.t, err)
	o.Endpoint = asyncflow.ClaimedBy(d.Lease.Claimer, "")
	settled, l := make(chan store.Settled, 1), pipe.Reordered(d.Lease)
	n.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, n.Clock.Now())},
		func(r store.Settled) { settled <- r })
	require.Equal(f.t, store.Settled{}, <-settled)
}

func says(output string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(output)}
}

// none checks that a claimer gets nothing.
func (f *family) none(claimer string) {
	f.t.Helper()
	all, err := f.Claim(f.t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
		Claimer: claimer, Max: 10})
	require.NoError(f.t, err)
	require.Empty(f.t, all)
}

// A task goes on once two votes agree. There are never more votes at once than are needed, and no
// claimer gets two.
func TestQuorum(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 2, MaxVotes: 3, MaxErrors: 1, AgreeOn: "/label"})
	id := f.submitOne(`{"image":7}`)
	anna := f.claim(t, "first", "anna", 10)
	require.Len(t, anna, 1)
	assert.JSONEq(t, `{"image":7}`, string(anna[0].Lease.Context))
	bob := f.claim(t, "first", "bob", 10)
	require.Len(t, bob, 1)
	f.none("carol")
	f.vote(anna[0], says(`{"label":{"a":1, "b":2.0}, "note":1}`))
	f.vote(bob[0], says(`{"label":"dog"}`))
	carol := f.claim(t, "first", "carol", 10)
	require.Len(t, carol, 1)
	for _, name := range []string{"anna", "bob", "dora"} {
		f.none(name)
	}
	f.vote(carol[0], says(`{"note":2,"label":{"b":2.0,"a":1}}`))
	task := f.ended(id)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Equal(t, &asyncflow.Children{Total: 3, Succeeded: 3}, task.Children)
	var next struct {
		Outcome json.RawMessage
		Votes   []struct {
			Claimer string
			Outcome json.RawMessage
			At      time.Time
		}
	}
	require.NoError(t, json.Unmarshal([]byte(f.joined[0]), &next))
	assert.Equal(t, `{"a":1,"b":2.0}`, string(next.Outcome))
	require.Len(t, next.Votes, 3)
	assert.Equal(t, []string{"anna", `{"a":1,"b":2.0}`}, []string{next.Votes[0].Claimer,
		string(next.Votes[0].Outcome)})
	assert.Equal(t, []string{"bob", `"dog"`}, []string{next.Votes[1].Claimer,
		string(next.Votes[1].Outcome)})
	assert.WithinDuration(t, time.Now(), next.Votes[2].At, patience)
	for _, table := range []string{"votes", "wait", "lease"} {
		assert.Zero(t, f.b.count("tenant_acme."+table), table)
	}
}

// Without agreement a task fails with the tally, as soon as none is possible. A redrive begins
// anew.
func TestQuorumWithoutAgreement(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 2, MaxVotes: 3, MaxErrors: 1})
	id := f.submitOne(`1`)
	rejected := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "too dark"}
	for i, o := range []asyncflow.Outcome{says(`"cat"`), rejected, says(`"dog"`), says(`"cow"`)} {
		f.vote(f.claim(t, "first", fmt.Sprint("c", i), 10)[0], o)
	}
	task := f.ended(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Equal(t, `no outcome has 2 votes: 1 × "cat", 1 × "dog", 1 × "cow", 1 without an outcome`,
		task.Error)
	_, err := f.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	for i := range 2 { // both are errors: one is without an output
		o := rejected
		if i == 1 {
			o = says(``)
		}
		f.vote(f.claim(t, "first", fmt.Sprint("c", i), 10)[0], o)
	}
	task = f.ended(id)
	assert.Contains(t, task.Error, `no outcome has 2 votes: 2 without an outcome`)
	assert.Empty(t, f.joined)
}

// A claimer that gives its vote back may get it again. It comes before the votes on other tasks.
func TestAVoteThatIsGivenBack(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 1, MaxVotes: 1})
	var ids []asyncflow.TaskID
	for i := range 3 {
		ids = append(ids, f.submitOne(fmt.Sprint(i)))
		f.inLine(i + 1)
	}
	for _, want := range []string{"0", "0", "1", "2"} {
		d := f.claim(t, "first", "anna", 1)[0]
		assert.Equal(t, want, string(d.Lease.Context))
		if d.Lease.Seq == 1 && want == "0" {
			f.vote(d, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
		} else {
			f.vote(d, says(`1`))
		}
	}
	for _, id := range ids {
		assert.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	}
}

// inLine waits until some votes wait for claimers.
func (f *family) inLine(n int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		return f.b.count(`tenant_acme.wait WHERE reason = 'claimer'`) == n
	}, patience, 20*time.Millisecond)
}

// overshootSQL counts the tasks with more live votes than they need, in one snapshot.
const overshootSQL = `(SELECT f.id FROM tenant_acme.fan_outs f
	JOIN LATERAL (SELECT count(*) AS cast_n, coalesce(max(n), 0) AS best FROM (
		SELECT count(*) OVER (PARTITION BY j.output) AS n FROM tenant_acme.journal_1 j
		WHERE j.type = f.type AND j.final IS NOT NULL
			AND j.id BETWEEN f.firsts[1] AND f.firsts[1] + f.spawned - 1) o) v ON true
	WHERE f.spawned > 0 AND f.spawned - v.cast_n > 3 - v.best) over`

// Many claimers at once decide many tasks: no vote is wasted, none is one too many at any time, and
// nobody votes twice on a task.
func TestManyVoters(t *testing.T) {
	longform.Costly(t)
	tasks, claimers := longform.Size(100, 1000), longform.Size(50, 200)
	f := startQuorum(t, asyncflow.Quorum{Votes: 3, MaxVotes: 30})
	nodes := []*node{f.node, f.b.start("b", dispatcher.Config{}, f.join)}
	require.NoError(t, nodes[1].Catalog.RefreshTenant(t.Context(), tenant))
	for i := range tasks {
		f.submitOne(fmt.Sprint(i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for c := range claimers {
		all.Go(func() {
			for ctx.Err() == nil {
				got, err := nodes[c%2].Claim(ctx, tenant, dispatcher.ClaimRequest{Type: "pipe",
					Stage: "first", Claimer: fmt.Sprint("c", c), Max: 3, Wait: time.Second})
				if !assert.NoError(t, err) {
					return
				}
				for _, d := range got {
					n := nodes[rand.IntN(2)] // reports go to any node
					switch rand.IntN(10) {
					case 0:
						f.voteAt(n, d, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
					case 1, 2:
						f.voteAt(n, d, says(`"dog"`))
					default:
						f.voteAt(n, d, says(`"cat"`))
					}
				}
			}
		})
	}
	require.Eventually(t, func() bool {
		require.Zero(t, f.b.count(overshootSQL))
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.joined) == tasks
	}, patience, 20*time.Millisecond)
	stop()
	all.Wait()
	for _, doc := range f.joined {
		var next struct {
			Outcome string
			Votes   []struct{ Claimer, Outcome string }
		}
		require.NoError(t, json.Unmarshal([]byte(doc), &next))
		voters, agreed := map[string]bool{}, 0
		for _, v := range next.Votes {
			assert.False(t, voters[v.Claimer], "twice: %s", doc)
			voters[v.Claimer] = true
			if v.Outcome == next.Outcome {
				agreed++
			}
		}
		assert.Equal(t, 3, agreed)
		assert.Equal(t, next.Outcome, next.Votes[len(next.Votes)-1].Outcome, "the last one decided")
	}
	sum := f.b.count(`tenant_acme.journal_1 j JOIN tenant_acme.task_1 k USING (type, id)
		WHERE j.final = 'succeeded' AND k.options ->> 'child' IS NOT NULL`)
	assert.Equal(t, sum, f.votes(), "each vote that was cast counts")
}

// votes returns how many votes the next stages were told of.
func (f *family) votes() (n int) {
	for _, doc := range f.joined {
		var next struct{ Votes []any }
		require.NoError(f.t, json.Unmarshal([]byte(doc), &next))
		n += len(next.Votes)
	}
	return n
}

// A claimer that agreed often decides alone, most of the time; one that then disagrees is no longer
// trusted.
func TestTrust(t *testing.T) {
	f := startQuorum(t, asyncflow.Quorum{Votes: 2, MaxVotes: 3, Trust: &asyncflow.Trust{After: 2}})
	vote := func(claimer, outcome string) {
		f.vote(f.claim(t, "first", claimer, 1)[0], says(outcome))
	}
	both := func(first, second string) {
		id := f.submitOne(`1`)
		vote("anna", first)
		vote("bob", second)
		if first != second {
			vote("carol", second)
		}
		require.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	}
	both(`"cat"`, `"cat"`)
	both(`"cat"`, `"cat"`)
	f.b.quietly(`UPDATE tenant_acme.voters SET agreed = 1000000000
		WHERE claimer = 'anna' AND agreed = 2`) // the chance that she is checked is 1 in a billion
	id := f.submitOne(`1`)
	f.inLine(1)
	vote("anna", `"dog"`)
	require.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	assert.Contains(t, f.joined[2], `"outcome":"dog"`)
	votes, err := f.Votes(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, []any{`"dog"`, 1}, []any{string(votes.Outcome), len(votes.Cast)})
	assert.Equal(t, 1, f.b.count(`tenant_acme.voters WHERE agreed = 1000000000`), "it says nothing")

	f.b.quietly(`UPDATE tenant_acme.voters SET agreed = 1 WHERE claimer = 'anna'`)
	both(`"cow"`, `"cat"`)
	assert.Equal(t, 1, f.b.count(`tenant_acme.voters WHERE claimer = 'anna' AND agreed = 0`))
	assert.Equal(t, 1, f.b.count(`tenant_acme.voters WHERE claimer = 'bob' AND agreed = 3`))

	f.b.quietly(`UPDATE tenant_acme.voters SET agreed = 2147483647 WHERE claimer = 'bob'`)
	both(`"cat"`, `"cat"`)
	assert.Equal(t, 1, f.b.count(`tenant_acme.voters WHERE claimer = 'bob' AND agreed = 1000000001`))
}
