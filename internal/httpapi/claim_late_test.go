package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// runOut ends all leases of the type judge, as time would.
func (b *bundle) runOut() {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), `UPDATE tenant_acme.lease
		SET leased_at = leased_at - interval '2 hours', until = until - interval '2 hours'`)
	require.NoError(b.t, err)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(b.t, err)
	_, err = b.store.Rescue(b.t.Context(), judge)
	require.NoError(b.t, err)
}

// A late report on a claim of which nothing was heard counts until the task has begun again.
func TestALateReportOfASilentClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(4)
	all := b.claim("anna", `,"max":4`)
	require.Len(t, all, 4)
	b.runOut()
	for range 2 {
		require.Equal(t, 200, b.report(all[0], "complete", `{"output":"a cat"}`).status)
	}
	require.Equal(t, 409, b.report(all[0], "complete", `{"output":"a dog"}`).status)
	done := b.task(ids[0])
	assert.Equal(t, []any{asyncflow.StatusSucceeded, `"a cat"`}, []any{done.Status, string(done.Result)})

	require.Equal(t, 200, b.report(all[1], "fail", `{"error":"dark","retryable":false}`).status)
	assert.Equal(t, []any{asyncflow.StatusFailed, "dark"},
		[]any{b.task(ids[1]).Status, b.task(ids[1]).Error})
	for range 2 {
		require.Equal(t, 200, b.report(all[2], "fail", `{"error":"dark"}`).status)
	}
	assert.Equal(t, 2, b.task(ids[2]).Attempt, "the attempt is counted")

	other := b.claim("bob", ``)
	require.Equal(t, []any{ids[3], 2}, []any{other[0].TaskID, other[0].Seq})
	require.Equal(t, 409, b.report(all[3], "complete", `{"output":"a cat"}`).status, "it began again")
	require.Equal(t, 200, b.report(other[0], "complete", `{"output":"a cat"}`).status)
	require.Equal(t, 409, b.report(all[3], "complete", `{"output":"a cat"}`).status, "bob's counts")
}
