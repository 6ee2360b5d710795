package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A node that doesn't know a type yet makes its children all the same.
func TestAFanOutOfATypeThatANodeDoesNotKnow(t *testing.T) {
	b := setup(t)
	b.byHand()
	ignorant, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "node-2", Pool: 2,
		HotPool: 2, NoRoles: pgtest.NoRoles()})
	require.NoError(t, err) // it doesn't run, so it doesn't read the type
	t.Cleanup(ignorant.Close)
	follower := dispatcher.NewCommitter(ignorant, nil)
	t.Cleanup(follower.Close)
	spec := twoStages()
	spec.Stages[0].FanOut = &asyncflow.FanOut{Shards: 2}
	b.put(spec)
	b.submit(newTask(`{}`))
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind:      asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Shards: 2}, Count: 2}})
	for more := true; more; {
		more, _ = follower.FollowUp(t.Context(), tenant)
	}
	b.exec(`UPDATE tenant_acme.outbox SET due = due - interval '1 hour'`)
	b.followUp()
	b.leaseAll(b.known(), 2)
}

// Long outputs of children are left out of their parent's context, and come in pages.
func TestLongOutputsOfChildren(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	long := goodEnd
	long.Output = json.RawMessage(`"` + strings.Repeat("x", asyncflow.MaxInlineResults) + `"`)
	b.endChildren(goodEnd, long)
	b.followUp()
	l := b.leaseAll(b.known(), 1)[0]
	assert.Contains(t, string(l.Context), `"results_url"`)
	results, count, err := b.ChildResults(t.Context(), tenant, id, 2, 0, 2)
	require.NoError(t, err)
	assert.Equal(t, 2, count)
	require.Len(t, results, 2)
	assert.Nil(t, results[0].Output)
	assert.Equal(t, long.Output, results[1].Output)
}

// Where the type asks for it, results say how each child ended, byte for byte.
func TestSettledResultsOfChildren(t *testing.T) {
	b := setupFanOut(t)
	rule := asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled,
		Results: asyncflow.ResultsSettled}
	id := b.fanOut(rule)
	fine := goodEnd
	fine.Output = json.RawMessage(`{"a":  1.0, "b": "<"}`)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	children, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id, Limit: 2})
	require.NoError(t, err)
	first, second := children[1].ID.String(), children[0].ID.String()
	_, err = b.Redrive(t.Context(), tenant, children[1].ID, store.Redrive{})
	require.NoError(t, err)
	results, _, err := b.ChildResults(t.Context(), tenant, id, 0, 0, 2)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusPending, results[0].Status, "it was redriven")
	for _, l := range b.leaseAll(b.known(), 2) {
		end := fine
		if l.Options.Child.Index == 1 {
			end = badEnd
			end.Error = "no \"x\"\n<é>"
		}
		b.settle(b.known(), l, end)
	}
	b.followUp()
	assert.Equal(t, `{"count":2,"succeeded":1,"failed":1,"cancelled":0,"results":[`+
		`{"index":0,"status":"succeeded","id":"`+first+`","output":{"a":  1.0, "b": "<"}},`+
		`{"index":1,"status":"failed","id":"`+second+`","error":"no \"x\"\n\u003cé\u003e"}]}`,
		string(b.leaseAll(b.known(), 1)[0].Context))
	results, _, err = b.ChildResults(t.Context(), tenant, id, 2, 0, 2)
	require.NoError(t, err)
	assert.Equal(t, "no \"x\"\n<é>", results[1].Error)
	assert.Nil(t, results[1].Output)
}

// A row of a fan-out that is locked for long is left for later, and holds up no others. The node
// tries again by itself.
func TestALockedFanOut(t *testing.T) {
	b := setupFanOut(t)
	locked := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, goodEnd)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.fan_outs FOR UPDATE`)
	require.NoError(t, err)
	other := b.submit(newTask(`{"items":[1,2]}`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = b.FollowUp(ctx, tenant) // takes both, and leaves one
	require.NoError(t, err)
	assert.Equal(t, 2, b.task(other).Children.Pending)
	for more := true; more; {
		more, err = b.FollowUp(ctx, tenant)
		require.NoError(t, err)
	}
	assert.Equal(t, asyncflow.WaitChildren, b.task(locked).WaitsFor)
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, "it is tried again", func() bool {
		return b.task(locked).WaitsFor != asyncflow.WaitChildren
	})
}

// One transaction cancels no more children than its bound, of all trees together.
func TestOneTransactionCancelsNoMoreThanItsBound(t *testing.T) {
	b := setupFanOut(t)
	parents := b.submit(newTask(`1`), newTask(`1`))
	for _, l := range b.leaseAll(b.known(), 2) {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Shards: 400}, Count: 400}})
	}
	b.followUp()
	for _, parent := range parents {
		_, err := b.Cancel(t.Context(), tenant, parent.ID, "")
		require.NoError(t, err)
	}
	const cancelled = `SELECT coalesce(sum(cancelled), 0) - 2 FROM tenant_acme.tallies`
	more, err := b.FollowUp(t.Context(), tenant)
	require.NoError(t, err)
	assert.True(t, more)
	assert.Equal(t, 500, b.count(cancelled))
	b.followUp()
	assert.Equal(t, 800, b.count(cancelled))
}

// One transaction makes children until these take 1 MiB. Later ones make the others.
func TestOneTransactionMakesNoMoreBytesThanItsBound(t *testing.T) {
	b := setupFanOut(t)
	const parents, children, size = 2, 8, 300 << 10 // 4 of them take more than 1 MiB
	item := `"` + strings.Repeat("x", size) + `"`
	for range parents {
		b.submit(newTask(`{"items":[` + strings.Repeat(item+",", children-1) + item + `]}`))
	}
	for _, l := range b.leaseAll(b.known(), parents) {
		rule := asyncflow.FanOut{Items: "/items"}
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{FanOut: rule, Count: children}})
	}
	const made = `SELECT sum(spawned) FROM tenant_acme.fan_outs`
	for want := 4; want <= parents*children; want += 4 {
		more, err := b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, want, b.count(made))
		require.Equal(t, want < parents*children, more)
	}
	indexes := map[string]int{}
	for _, l := range b.leaseAll(b.known(), parents*children) {
		indexes[fmt.Sprint(l.Options.Child.Parent, l.Options.Child.Index)]++
		assert.Len(t, l.Context, len(item))
	}
	assert.Len(t, indexes, parents*children)
	b.checkTokens("pipe")
}

// Only the end of a child that moves nothing by itself waits for others.
func TestEndsOfManyChildrenWaitForOthers(t *testing.T) {
	ended := func(count, parallel int, kind asyncflow.VerdictKind) time.Duration {
		known := &store.Type{}
		known.Stages = []asyncflow.Stage{{Name: "first",
			FanOut: &asyncflow.FanOut{MaxParallel: parallel}}}
		settled := &asyncflow.Settlement{Lease: asyncflow.Lease{Stage: "first"},
			Verdict: asyncflow.Verdict{Kind: kind}}
		if count > 0 {
			settled.Lease.Options.Child = &asyncflow.Child{Count: count}
		}
		return store.LingerAfter(known, settled)
	}
	assert.Equal(t, 20*time.Millisecond, ended(100_000, 0, asyncflow.Succeed))
	assert.Equal(t, 2*time.Millisecond, ended(1000, 0, asyncflow.Succeed))
	assert.Zero(t, ended(100_000, 0, asyncflow.Fail), "others may have to be stopped")
	assert.Zero(t, ended(100_000, 10, asyncflow.Succeed), "another one may begin")
	assert.Zero(t, ended(0, 0, asyncflow.Succeed), "no child")
}

// A row of a kind that this version doesn't know is left to nodes of a later one.
func TestFollowUpLeavesUnknownKinds(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.exec(`INSERT INTO tenant_acme.outbox (kind, due, type, id, at)
		SELECT 'unheard_of', now() - interval '1 min', number, $1, 7 FROM tenant_acme.task_types`,
		id.Number)
	b.followUp()
	var later bool
	var at int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT due > now(), at FROM tenant_acme.outbox
		WHERE kind = 'unheard_of'`).Scan(&later, &at))
	require.Equal(t, []any{true, 7}, []any{later, at})
}
