package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// voteMachine makes claimers vote on tasks, in random interleavings with all that may go wrong.
type voteMachine struct {
	treeMachine
	parents []asyncflow.TaskID
	open    []asyncflow.Lease // claims that stand
	lost    []asyncflow.Lease // claims that ran out
}

var voteQuorum = asyncflow.Quorum{Votes: 2, MaxVotes: 3, MaxErrors: 1}

// voters is enough for all votes on a task, each by another claimer.
const voters = 6

// However claims, votes, losses, late reports, pauses, cancels and deaths of nodes interleave: no
// claimer votes twice on a task or gets one that its rules keep from it, there are never more votes
// at once than are needed, and each task ends.
func TestVoteModel(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for lane := range modelLanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) { eachSet(t, holdVotesAgainstModel) })
	}
}

func holdVotesAgainstModel(t *testing.T, b *bundle) {
	b.byHand()
	spec := patient()
	spec.Stages = spec.Stages[:1]
	spec.Stages[0].Mode, spec.Stages[0].Quorum = asyncflow.ModeClaim, &voteQuorum
	b.told()
	b.put(spec)
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	nodes := newNodePair(t, b)
	checkSequences(t, 10, func(rt *rapid.T) {
		m := &voteMachine{treeMachine: treeMachine{nodePair: nodes, t: rt}}
		m.clear()
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "claim": m.claim, "claim more": m.claim, "vote": m.vote,
			"vote more": m.vote, "give back": m.giveBack, "expire": m.expire, "report late": m.late,
			"follow up": m.followUp, "follow up more": m.followUp,
			"follow up twice": m.followUpTwice,
			"die":             m.die, "pause": m.pause, "resume": m.resume, "cancel": m.cancel, "": m.check,
		})
		m.finish()
	})
}

func (m *voteMachine) kind() *store.Type { return m.b.known() }

// clear removes what a failed sequence left.
func (m *voteMachine) clear() {
	kind := m.kind()
	m.b.exec(fill(kind, kind.End, `DELETE FROM {task}; DELETE FROM {journal}; DELETE FROM {ready};
		DELETE FROM {lease}; DELETE FROM {wait}; DELETE FROM {outbox}; DELETE FROM {fan_outs};
		DELETE FROM {votes}; DELETE FROM {tallies}; DELETE FROM {notifications}`))
}

func (m *voteMachine) submit(t *rapid.T) {
	if len(m.parents) > 2 {
		t.Skip("enough")
	}
	task := newTask(`1`)
	task.Options.OnFinal = shop()
	task.Options.Claim = rapid.SampledFrom(voteRules).Draw(t, "rules")
	id := m.b.submit(task)[0].ID
	m.parents = append(m.parents, id)
	l := m.b.leaseAll(m.kind(), 1)[0]
	m.b.settle(m.kind(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: *m.kind().FansOut(l),
			Count: voteQuorum.MaxVotes + voteQuorum.MaxErrors}})
}

func (m *voteMachine) claim(t *rapid.T) {
	m.ask(t, rapid.IntRange(1, voters).Draw(t, "claimer"), rapid.IntRange(1, 3).Draw(t, "n"))
}

// voteRules leave enough voters for all votes on a task.
var voteRules = []*asyncflow.ClaimRules{nil, {Exclude: []string{"c1"}}, {Exclude: []string{"c2*"}},
	{Labels: map[string]string{"lang": "de"}}}

// ask makes a voter ask until it looked at the whole line. No voter gets what it must not get.
func (m *voteMachine) ask(t require.TestingT, voter, n int) {
	a := &store.ClaimAsk{Claimer: fmt.Sprint("c", voter), N: n, Further: true}
	if voter != voters {
		a.Labels = asyncflow.ClaimerLabels{"lang": {"en", "de"}}
	}
	for pages := 0; a.Further; pages++ {
		require.Less(t, pages, 20, "it looks for ever")
		_, err := m.b.LeaseForClaims(m.b.t.Context(), m.kind(), m.kind().Stages[0].Name,
			[]*store.ClaimAsk{a}, n, 1<<20)
		require.NoError(t, err)
	}
	for _, l := range a.Leases {
		require.True(t, l.Options.Claim.Allow(a.Claimer, a.Subject, a.Labels), "%s: %v", a.Claimer,
			l.Options.Claim)
	}
	m.open = append(m.open, a.Leases...)
}

// take takes one of the leases out of a list.
func take(t *rapid.T, all *[]asyncflow.Lease) asyncflow.Lease {
	if len(*all) == 0 {
		t.Skip("none")
	}
	at := rapid.IntRange(0, len(*all)-1).Draw(t, "at")
	l := (*all)[at]
	*all = slices.Delete(*all, at, at+1)
	return l
}

// outcome draws what a claimer reports.
func (m *voteMachine) outcome(t *rapid.T, l asyncflow.Lease) asyncflow.Outcome {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Endpoint: asyncflow.ClaimedBy(l.Claimer, ""),
		Output:   json.RawMessage(rapid.SampledFrom([]string{`1`, `2`}).Draw(t, "outcome"))}
	if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
		o.Kind, o.Output, o.Error = asyncflow.OutcomeRejected, nil, "too dark"
	}
	return o
}

func (m *voteMachine) vote(t *rapid.T) {
	l := take(t, &m.open)
	m.b.settle(m.kind(), l, m.outcome(t, l)) // it may be stale: its parent was cancelled
}

func (m *voteMachine) giveBack(t *rapid.T) {
	l := m.kind().Reordered(take(t, &m.open))
	m.b.settle(m.kind(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
		Endpoint: asyncflow.ClaimedBy(l.Claimer, "")})
}

// expire lets a claim run out: of some, nothing was heard.
func (m *voteMachine) expire(t *rapid.T) {
	l := take(t, &m.open)
	heard := rapid.Bool().Draw(t, "heard")
	if heard {
		m.lost = append(m.lost, l)
	}
	m.b.exec(fill(m.kind(), 0, `UPDATE {lease} SET until = now() - interval '1 s',
		leased_at = now() - CASE WHEN $2 THEN interval '1 h' ELSE interval '5 s' END
		WHERE type = {number} AND id = $1`), l.ID.Number, heard)
	_, err := m.b.Rescue(m.b.t.Context(), m.kind())
	require.NoError(t, err)
	m.b.exec(`UPDATE tenant_acme.wait SET until = 'infinity', order_time = now() - interval '1 s',
		reason = 'claimer' WHERE reason = 'retry'`) // as the job promote does once its pause is over
}

func (m *voteMachine) late(t *rapid.T) {
	l := take(t, &m.lost)
	o := m.outcome(t, l)
	_, _, err := m.b.SettleLate(m.b.t.Context(), m.kind(), l.ID, l.Seq, o)
	require.NoError(t, err)
	_, err = m.b.LateVote(m.b.t.Context(), m.kind(), l.ID, l.Seq, l.Claimer, o.Output)
	require.NoError(t, err)
}

func (m *voteMachine) parent(t *rapid.T) asyncflow.TaskID {
	if len(m.parents) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(m.parents).Draw(t, "parent")
}

func (m *voteMachine) pause(t *rapid.T) {
	_, _ = m.b.PauseTree(m.b.t.Context(), tenant, m.parent(t), "") // perhaps it ended
}

func (m *voteMachine) resume(t *rapid.T) {
	_, _ = m.b.ResumeTree(m.b.t.Context(), tenant, m.parent(t))
}

func (m *voteMachine) cancel(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("rarely")
	}
	_, _ = m.b.Cancel(m.b.t.Context(), tenant, m.parent(t), "no more")
}

func (m *voteMachine) die(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("rarely")
	}
	_, _ = m.dying(t, func(b *bundle) error {
		_, err := b.FollowUp(b.t.Context(), tenant)
		return err
	})
}

// twiceSQL counts claimers with two votes on a task, cast or held; overSQL tasks with more votes at
// once than they need. Both are of one snapshot.
const (
	childrenSQL = `tenant_acme.fan_outs f, unnest(f.firsts, f.starts) AS r (first, start)`
	twiceSQL    = `(SELECT f.id FROM ` + childrenSQL + `, LATERAL (
			SELECT claimer FROM tenant_acme.lease l WHERE l.type = f.type AND claimer IS NOT NULL
				AND l.id BETWEEN r.first AND r.first + f.spawned - r.start - 1
			UNION ALL
			SELECT substr(endpoint, 9) FROM {journal} j WHERE j.type = f.type AND j.final = 'succeeded'
				AND j.id BETWEEN r.first AND r.first + f.spawned - r.start - 1) v
		GROUP BY f.id, f.seq, v.claimer HAVING count(*) > 1) twice`
	overSQL = `(SELECT f.id FROM tenant_acme.fan_outs f JOIN LATERAL (
		SELECT coalesce(sum(cast_n), 0) AS cast_n, coalesce(max(n), 0) AS best FROM (
			SELECT count(*) AS cast_n, count(*) FILTER (WHERE final = 'succeeded') AS n
			FROM ` + `unnest(f.firsts, f.starts) AS r (first, start), {journal} j
			WHERE j.type = f.type AND j.final IS NOT NULL
				AND j.id BETWEEN r.first AND r.first + f.spawned - r.start - 1
			GROUP BY j.final, j.output::text) o) v ON true
		WHERE NOT f.closed AND f.spawned - v.cast_n > 2 - v.best) over`
)

func (m *voteMachine) check(t *rapid.T) {
	require.Empty(t, m.b.wrongEnds())
	kind := m.kind()
	count := func(from string) int {
		return m.b.count(fill(kind, kind.End, `SELECT count(*) FROM `+from))
	}
	require.Zero(t, count(twiceSQL), "a claimer has two votes")
	require.Zero(t, count(overSQL), "more votes at once than are needed")
}

// finish makes all tasks end: none may wait for ever.
func (m *voteMachine) finish() {
	for _, id := range m.parents {
		_, _ = m.b.ResumeTree(m.b.t.Context(), tenant, id)
	}
	for round := 0; ; round++ {
		require.Less(m.t, round, 100, "a task doesn't end")
		for more := true; more; {
			var err error
			_, more, err = m.b.SweepFollowUps(m.b.t.Context(), tenant)
			require.NoError(m.t, err)
		}
		m.b.exec(`UPDATE tenant_acme.outbox SET due = now() - interval '1 s'`)
		m.check(m.t)
		ended := 0
		for _, id := range m.parents {
			if m.b.task(id).Status.Final() {
				ended++
			}
		}
		if ended == len(m.parents) {
			break
		}
		for _, l := range m.open {
			m.b.settle(m.kind(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
				Output:   json.RawMessage(`1`),
				Endpoint: asyncflow.ClaimedBy(l.Claimer, "")})
		}
		m.open = nil
		for c := range voters {
			m.ask(m.t, c+1, 3)
		}
	}
	require.Zero(m.t, m.b.count(`SELECT count(*) FROM tenant_acme.votes WHERE until IS NULL
		AND NOT EXISTS (SELECT FROM tenant_acme.fan_outs f WHERE NOT f.closed)`), "votes stay behind")
}
