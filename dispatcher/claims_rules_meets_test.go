package dispatcher_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// notAnna are rules that keep a task from one claimer.
var notAnna = &asyncflow.ClaimRules{Exclude: []string{"anna"}}

// ruledNode is a node with a type of one claimed stage, on which only a test runs jobs.
type ruledNode struct {
	*node
	t *testing.T
	b *bundle
}

func startRuled(t *testing.T, change func(*asyncflow.Stage)) *ruledNode {
	t.Helper()
	b := setup(t)
	r := &ruledNode{t: t, b: b}
	r.node = b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	r.put(t, func(spec *asyncflow.TaskType) {
		spec.Stages = spec.Stages[:1]
		spec.Stages[0].Mode = asyncflow.ModeClaim
		change(&spec.Stages[0])
	})
	require.NoError(t, r.Catalog.RefreshTenant(t.Context(), tenant))
	return r
}

// submitWith submits a task with rules.
func (r *ruledNode) submitWith(rules *asyncflow.ClaimRules, doc string) asyncflow.TaskID {
	r.t.Helper()
	got := r.Submit(r.t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
		Context: json.RawMessage(doc), Options: asyncflow.Options{Claim: rules}}})[0]
	require.NoError(r.t, got.Err)
	return got.ID
}

// got returns what a claimer is given at once.
func (r *ruledNode) got(claimer string) []asyncflow.Delivery {
	r.t.Helper()
	all, err := r.Claim(r.t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe",
		Stage: "first", Claimer: claimer, Max: 10})
	require.NoError(r.t, err)
	return all
}

// ends ends an attempt.
func (r *ruledNode) ends(d asyncflow.Delivery, o asyncflow.Outcome) {
	r.t.Helper()
	pipe, err := r.Catalog.Type(tenant, "pipe")
	require.NoError(r.t, err)
	settled, l := make(chan store.Settled, 1), pipe.Reordered(d.Lease)
	r.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, r.Clock.Now())},
		func(s store.Settled) { settled <- s })
	require.Equal(r.t, store.Settled{}, <-settled)
}

// promote brings delayed tasks that are due into line, as a job does.
func (r *ruledNode) promote() {
	r.t.Helper()
	pipe, err := r.Catalog.Type(tenant, "pipe")
	require.NoError(r.t, err)
	_, err = r.Promote(r.t.Context(), pipe, nil)
	require.NoError(r.t, err)
}

// A task keeps its rules wherever it comes back into line: given back, lost, after a failed
// attempt, after a redrive, and after a delay.
func TestRulesHoldForTasksThatComeBack(t *testing.T) {
	r := startRuled(t, func(*asyncflow.Stage) {})
	refusedForGood := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}
	for name, back := range map[string]func(asyncflow.Delivery){
		"given back": func(d asyncflow.Delivery) {
			r.ReleaseClaims(tenant, []asyncflow.Lease{d.Lease}, "given back")
		},
		"retry": func(d asyncflow.Delivery) { r.ends(d, refused) },
		"lost": func(asyncflow.Delivery) {
			r.b.quietly(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
			pipe, err := r.Catalog.Type(tenant, "pipe")
			require.NoError(t, err)
			_, err = r.Rescue(t.Context(), pipe)
			require.NoError(t, err)
		},
		"redrive": func(d asyncflow.Delivery) {
			r.ends(d, refusedForGood)
			_, err := r.Redrive(t.Context(), tenant, d.Lease.ID, store.Redrive{})
			require.NoError(t, err)
		},
		"delay": func(d asyncflow.Delivery) {
			r.ends(d, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
			_, err := r.Change(t.Context(), tenant, d.Lease.ID,
				asyncflow.Patch{RunAt: r.Clock.Now().Add(time.Hour)})
			require.NoError(t, err)
			r.b.quietly(`UPDATE tenant_acme.wait SET until = now(), order_time = now()
				WHERE until > now() AND until <> 'infinity'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := r.submitWith(notAnna, `1`)
			back(r.claim(t, "first", "bob", 1)[0])
			var again []asyncflow.Delivery
			require.Eventually(t, func() bool {
				r.promote()
				require.Empty(t, r.got("anna"))
				again = r.got("bob")
				return len(again) == 1
			}, patience, 20*time.Millisecond, "bob gets it again")
			assert.Equal(t, id, again[0].Lease.ID)
			r.ends(again[0], refusedForGood)
		})
	}
}

// Dependents and tasks that an attempt starts follow the rules that they are given, and none of the
// task from which they come.
func TestRulesAreNotInherited(t *testing.T) {
	r := startRuled(t, func(s *asyncflow.Stage) { s.Spawn = []string{"pipe"} })
	id := r.submitWith(notAnna, `1`)
	after := r.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
		Context: json.RawMessage(`"after"`), DependsOn: []asyncflow.Dependency{{Task: id}}}})[0]
	require.NoError(t, after.Err)
	r.ends(r.claim(t, "first", "bob", 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Status: 200, Output: json.RawMessage(`1`), Spawn: []asyncflow.SpawnedTask{
			{Type: "pipe", Context: json.RawMessage(`"free"`)},
			{Type: "pipe", Context: json.RawMessage(`"own"`),
				Claim: &asyncflow.ClaimRules{Exclude: []string{"bob"}}}}})
	var got []string
	for len(got) < 3 {
		for _, d := range r.claim(t, "first", "anna", 1) {
			got = append(got, string(d.Lease.Context))
			r.ends(d, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		}
		require.Empty(t, slices.DeleteFunc(r.got("bob"), func(d asyncflow.Delivery) bool {
			free := string(d.Lease.Context) != `"own"`
			if free {
				r.ends(d, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
			}
			return free
		}), "it has rules of its own")
	}
	assert.ElementsMatch(t, []string{`"after"`, `"free"`, `"own"`}, got)
}

// Children keep the rules of their parent from when it fanned out. The parent's can't be changed
// then, and the rules of a child are its own.
func TestChildrenHaveRules(t *testing.T) {
	r := startRuled(t, func(s *asyncflow.Stage) { s.FanOut = &asyncflow.FanOut{Shards: 3} })
	id := r.submitWith(notAnna, `1`)
	one := r.claim(t, "first", "bob", 1)[0]
	require.NotNil(t, one.Lease.Options.Child)
	_, err := r.Change(t.Context(), tenant, id, asyncflow.Patch{Claim: &asyncflow.ClaimRules{}})
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	require.Empty(t, r.got("anna"))
	r.ends(one, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
	require.Empty(t, r.got("anna"), "it came back with its rules")
	_, err = r.Change(t.Context(), tenant, one.Lease.ID,
		asyncflow.Patch{Claim: &asyncflow.ClaimRules{}})
	require.NoError(t, err)
	hers := r.claim(t, "first", "anna", 3)
	require.Len(t, hers, 1)
	assert.Equal(t, one.Lease.ID, hers[0].Lease.ID)
	r.ends(hers[0], done)
	require.Empty(t, r.got("anna"), "no other child")
	var others int
	for others < 2 {
		for _, d := range r.claim(t, "first", "carl", 3) {
			r.ends(d, done)
			others++
		}
	}
}
