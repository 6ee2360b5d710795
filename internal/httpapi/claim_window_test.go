package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// A claimer sees no more tasks in a window than its limit: asking again shows no others, and tasks
// that it gives back count.
func TestClaimWindow(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim","window":{"tasks":2,"per":"1h","random":false}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	ids := b.submitJudge(5)
	first := b.claim("anna", `,"max":5`)
	require.Len(t, first, 2)
	again := b.claim("anna", `,"max":5`)
	require.Len(t, again, 2)
	assert.Equal(t, []string{ids[0], ids[1]}, []string{again[0].TaskID, again[1].TaskID})
	require.Equal(t, 200, b.report(first[0], "release", ``).status)
	require.Equal(t, 200, b.report(first[1], "complete", ``).status)
	back := b.claim("anna", `,"max":5`)
	require.Len(t, back, 1, "the window is full, but she knows that one")
	assert.Equal(t, []any{ids[0], 2}, []any{back[0].TaskID, back[0].Seq})
	known := make(chan []api.Delivery)
	go func() {
		known <- b.claim("anna", fmt.Sprintf(`,"wait":"1m","held":[%q]`, ids[0]))
	}()
	b.waitingClaims(1)
	require.Equal(t, 200, b.report(back[0], "release", ``).status)
	back = <-known
	require.Len(t, back, 1, "a call that waits gets what she has given back")
	assert.Equal(t, []any{ids[0], 3}, []any{back[0].TaskID, back[0].Seq})
	require.Equal(t, 200, b.report(back[0], "complete", ``).status)
	assert.Empty(t, b.claim("anna", `,"max":5,"wait":"50ms"`))
	// A call that waits counts as it begins.
	b.inVain(api.StageClaims{Stage: "look", ClosedWindows: 2})
	other := b.claim("bob", ``)
	require.Len(t, other, 1, "another claimer is shown tasks")

	answer := make(chan []api.Delivery)
	_, err := b.db.Exec(t.Context(), `UPDATE tenant_acme.claim_windows
		SET shown = ARRAY[now() - interval '1 hour' + interval '2 s', now()] WHERE claimer = 'anna'`)
	require.NoError(t, err)
	go func() { answer <- b.claim("anna", `,"max":5,"wait":"1m"`) }()
	assert.Len(t, <-answer, 1, "it waits until the first one doesn't count any more")

	n, err := b.store.ForgetClaims(t.Context(), "acme")
	require.NoError(t, err)
	assert.Zero(t, n)
	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.claim_windows SET until = now() - interval '1 s'`)
	require.NoError(t, err)
	n, err = b.store.ForgetClaims(t.Context(), "acme")
	require.NoError(t, err)
	assert.Equal(t, 2, n)

	for window, field := range map[string]string{
		`"mode":"claim","window":{"tasks":0,"per":"1h"}`:    "stages[0].window.tasks",
		`"mode":"claim","window":{"tasks":1001,"per":"1h"}`: "stages[0].window.tasks",
		`"mode":"claim","window":{"tasks":1,"per":"1ms"}`:   "stages[0].window.per",
		`"mode":"claim","window":{"tasks":1,"per":"169h"}`:  "stages[0].window.per",
		`"window":{"tasks":1,"per":"1h"}`:                   "stages[0].window",
	} {
		a := b.call("PUT", "/v1/task-types/bad", `{"stages":[{"name":"look",`+window+`}]}`)
		require.Equal(t, 400, a.status, "%s", a.body)
		assert.Equal(t, field, a.problem.Errors[0].Field, window)
	}
}

// However many calls one claimer makes at a time, its window holds.
func TestClaimWindowAtOnce(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim","window":{"tasks":3,"per":"1h"}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.submitJudge(40)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	got := make(chan []asyncflow.Lease)
	for range 10 { // as from ten nodes
		go func() {
			ask := &store.ClaimAsk{Claimer: "anna", N: 2}
			for {
				_, err := b.store.LeaseForClaims(t.Context(), judge, "look",
					[]*store.ClaimAsk{ask}, 2, 1<<20)
				if !store.IsHeld(err) { // by another transaction for the same claimer
					assert.NoError(t, err)
					break
				}
			}
			got <- ask.Leases
		}()
	}
	sum := 0
	for range 10 {
		sum += len(<-got)
	}
	assert.Equal(t, 3, sum)
}

// A call that waits hears that its window is wider now.
func TestAWiderWindowOpens(t *testing.T) {
	b := setup(t)
	put := func(tasks int) {
		a := b.call("PUT", "/v1/task-types/judge", fmt.Sprintf(
			`{"stages":[{"name":"look","mode":"claim","window":{"tasks":%d,"per":"1h"}}]}`, tasks))
		require.Less(t, a.status, 300, "%s", a.body)
	}
	put(1)
	ids := b.submitJudge(2)
	require.Equal(t, 200, b.report(b.claim("anna", "")[0], "complete", ``).status)
	answer := make(chan []api.Delivery)
	go func() { answer <- b.claim("anna", `,"wait":"1m"`) }()
	b.waitingClaims(1)
	put(2)
	got := <-answer
	require.Len(t, got, 1)
	assert.Equal(t, ids[1], got[0].TaskID)
}

// Tasks with contexts that don't fit stay in line as if nobody read them, and don't count in
// the window.
func TestClaimsOfManyBytes(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/judge",
		`{"stages":[{"name":"look","mode":"claim","window":{"tasks":4,"per":"1h","random":false}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	ids := b.submitJudge(3)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)
	for i, id := range ids {
		ask := &store.ClaimAsk{Claimer: "anna", N: 3, Held: b.open()}
		_, err = b.store.LeaseForClaims(t.Context(), judge, "look", []*store.ClaimAsk{ask}, 3, 10)
		require.NoError(t, err)
		require.Len(t, ask.Leases, 1, "one context has 7 bytes")
		assert.Equal(t, []any{id, 1}, []any{ask.Leases[0].ID.String(), ask.Leases[0].Seq})
		assert.Len(t, b.open(), i+1)
		var shown, waiting, journal int
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT
			(SELECT cardinality(ids) FROM tenant_acme.claim_windows),
			(SELECT count(*) FROM tenant_acme.wait WHERE seq = 1 AND reason = 'claimer'),
			(SELECT count(*) FROM tenant_acme.journal_1)`).Scan(&shown, &waiting, &journal))
		assert.Equal(t, []int{i + 1, 2 - i, 0}, []int{shown, waiting, journal})
	}
}

// open returns the numbers of the tasks that are leased.
func (b *bundle) open() (ids []int64) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `SELECT id FROM tenant_acme.lease`)
	require.NoError(b.t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	return ids
}
