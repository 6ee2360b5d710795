package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// claimType puts the type pipe with one claimed stage.
func (b *bundle) claimType(w *asyncflow.Window) *store.Type {
	b.t.Helper()
	spec := patient()
	spec.Stages = spec.Stages[:1]
	spec.Stages[0].Mode, spec.Stages[0].Window = asyncflow.ModeClaim, w
	b.put(spec)
	require.NoError(b.t, b.Catalog.RefreshTenant(b.t.Context(), tenant))
	return b.known()
}

// claimOf asks once for n tasks.
func (b *bundle) claimOf(ask *store.ClaimAsk) (next time.Time) {
	b.t.Helper()
	kind := b.known()
	next, err := b.LeaseForClaims(b.t.Context(), kind, kind.Stages[0].Name,
		[]*store.ClaimAsk{ask}, ask.N, 1<<20)
	require.NoError(b.t, err)
	return next
}

func ruled(r *asyncflow.ClaimRules) asyncflow.NewTask {
	task := newTask(`1`)
	task.Options.Claim = r
	return task
}

// A task behind 12,000 that a claimer may not get is reached by a bounded number of pages, and the
// others stay as they were.
func TestATaskBehindManyExcludedOnes(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	const excluded = 12_000
	rules := &asyncflow.ClaimRules{Exclude: []string{"anna"}}
	b.submit(ruled(rules))
	b.exec(`INSERT INTO tenant_acme.wait (order_time, id, seq, stage, attempt, reason, until, type,
		rules) SELECT order_time + n * interval '1 microsecond', id + 1000000 + n, seq, stage,
		attempt, reason, until, type, rules FROM tenant_acme.wait, generate_series(1, $1::int) n`, excluded)
	last := newTask(`2`)
	want := b.submit(last)[0].ID
	b.exec(`UPDATE tenant_acme.wait SET order_time = order_time + interval '10 ms'
		WHERE id = $1`, want.Number)
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	pages := 0
	begun := time.Now()
	for b.claimOf(ask); ask.Further; b.claimOf(ask) {
		pages++
		require.Less(t, pages, 10)
	}
	t.Logf("%d pages took %s", pages+1, time.Since(begun))
	require.Len(t, ask.Leases, 1)
	assert.Equal(t, want, ask.Leases[0].ID)
	assert.Equal(t, 1+(excluded+1)/5000, pages, "the first transaction saw the rules of one task")

	// There is nothing for her: she rests, and the excluded ones are nobody's alarm.
	ask = &store.ClaimAsk{Claimer: "anna", N: 1, Held: []int64{want.Number}}
	next := b.claimOf(ask)
	for ask.Further {
		next = b.claimOf(ask)
	}
	assert.Empty(t, ask.Leases)
	assert.True(t, ask.Rest.After(time.Now()), "rest: %v", ask.Rest)
	assert.Zero(t, next)
}

// Rows in line without the rules of their tasks, such as those after a retry, are no way around.
func TestRulesHoldForRowsWithoutThem(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	id := b.submit(ruled(&asyncflow.ClaimRules{Labels: map[string]string{"lang": "de"}}))[0].ID
	b.exec(`UPDATE tenant_acme.wait SET rules = NULL`)
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	b.claimOf(ask)
	assert.Empty(t, ask.Leases)
	assert.True(t, ask.Further, "there may be others")
	b.claimOf(ask)
	assert.Empty(t, ask.Leases)
	assert.False(t, ask.Further)
	german := &store.ClaimAsk{Claimer: "bob", N: 1,
		Labels: asyncflow.ClaimerLabels{"lang": {"en", "de"}}}
	b.claimOf(german)
	require.Len(t, german.Leases, 1)
	assert.Equal(t, id, german.Leases[0].ID)
}

// Many rows without the rules of their tasks, as when a pushed stage gets the mode claim, cost a
// claimer that is kept from them a bounded number of transactions.
func TestManyRowsWithoutRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	const excluded = 2500
	var tasks []asyncflow.NewTask
	for range excluded {
		tasks = append(tasks, ruled(&asyncflow.ClaimRules{Exclude: []string{"anna"}}))
	}
	b.submit(tasks...)
	want := b.submit(newTask(`2`))[0].ID
	b.exec(`UPDATE tenant_acme.wait SET rules = NULL`)
	b.exec(`UPDATE tenant_acme.wait SET order_time = order_time + interval '10 ms'
		WHERE id = $1`, want.Number)
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	looks := 1
	for b.claimOf(ask); ask.Further; b.claimOf(ask) {
		looks++
		require.Less(t, looks, 10)
	}
	require.Len(t, ask.Leases, 1)
	assert.Equal(t, want, ask.Leases[0].ID)
	var left, bare int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*),
		count(*) FILTER (WHERE rules IS NULL) FROM tenant_acme.wait`).Scan(&left, &bare))
	assert.Equal(t, []int{excluded, 0}, []int{left, bare})
	bob := &store.ClaimAsk{Claimer: "bob", N: 1}
	b.claimOf(bob)
	assert.Len(t, bob.Leases, 1)
}

// Claimers of one transaction get what each may get, though one of them could take it all.
func TestClaimersOfOneTransactionWithRules(t *testing.T) {
	b := setup(t)
	kind := b.claimType(nil)
	for range 2 {
		b.submit(ruled(&asyncflow.ClaimRules{Exclude: []string{"bob"}}))
	}
	free := b.submit(newTask(`1`))[0].ID
	for range 2 { // the first one may only see that there are rules
		anna := &store.ClaimAsk{Claimer: "anna", N: 1}
		bob := &store.ClaimAsk{Claimer: "bob", N: 1}
		_, err := b.LeaseForClaims(t.Context(), kind, kind.Stages[0].Name,
			[]*store.ClaimAsk{anna, bob}, 2, 1<<20)
		require.NoError(t, err)
		require.Len(t, anna.Leases, 1)
		assert.NotEqual(t, free, anna.Leases[0].ID)
		if len(bob.Leases) == 1 {
			assert.Equal(t, free, bob.Leases[0].ID)
			return
		}
		require.True(t, bob.Further)
	}
	assert.Fail(t, "bob got nothing")
}

// In a window, the choice among the first tasks can't be predicted, never goes beyond them, and no
// task is overtaken by one that came later by the window's length.
func TestAWindowChoosesAtRandom(t *testing.T) {
	b := setup(t)
	b.claimType(&asyncflow.Window{Tasks: 5, Per: asyncflow.NewDuration(time.Hour)})
	var tasks []asyncflow.NewTask
	for i := range 12 {
		tasks = append(tasks, newTask(fmt.Sprint(i)))
	}
	place := map[int64]int{}
	for i, r := range b.submit(tasks...) {
		place[r.ID.Number] = i
		b.exec(`UPDATE tenant_acme.wait SET order_time = now() - $2 * interval '1 minute'
			WHERE id = $1`, r.ID.Number, 100-i)
	}
	first := map[int]bool{}
	for i := range 40 {
		ask := &store.ClaimAsk{Claimer: fmt.Sprint("c", i), N: 1}
		b.claimOf(ask)
		require.Len(t, ask.Leases, 1)
		first[place[ask.Leases[0].ID.Number]] = true
		b.exec(`INSERT INTO tenant_acme.wait (order_time, id, seq, stage, attempt, reason, until,
			type) SELECT now() - $2 * interval '1 minute', id, seq, stage, attempt, 'claimer',
			'infinity', type FROM tenant_acme.lease WHERE id = $1`, ask.Leases[0].ID.Number,
			100-place[ask.Leases[0].ID.Number])
		b.exec(`DELETE FROM tenant_acme.lease`)
	}
	assert.Greater(t, len(first), 1, "each one got the same task")
	for at := range first {
		assert.Less(t, at, 5)
	}

	b.exec(`UPDATE tenant_acme.wait SET order_time = now() - interval '3 hours'
		WHERE id = (SELECT max(id) FROM tenant_acme.wait)`)
	ask := &store.ClaimAsk{Claimer: "late", N: 1}
	b.claimOf(ask)
	require.Len(t, ask.Leases, 1)
	assert.Equal(t, 11, place[ask.Leases[0].ID.Number], "it has waited for the longest")

	off := false
	b.claimType(&asyncflow.Window{Tasks: 5, Per: asyncflow.NewDuration(time.Hour), Random: &off})
	for i := range 5 {
		ask := &store.ClaimAsk{Claimer: "ordered", N: 1, Again: false}
		b.claimOf(ask)
		require.Len(t, ask.Leases, 1)
		assert.Equal(t, i, place[ask.Leases[0].ID.Number])
	}
}
