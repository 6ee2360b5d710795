package httpapi_test

import (
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// runOut ends all leases of the type judge, as time would.
func (b *bundle) runOut(name string) {
	b.t.Helper()
	b.exec(`UPDATE tenant_acme.lease
		SET leased_at = leased_at - interval '2 hours', until = until - interval '2 hours'`)
	of, err := b.store.Catalog.Type("acme", name)
	require.NoError(b.t, err)
	_, err = b.store.Rescue(b.t.Context(), of)
	require.NoError(b.t, err)
}

// A late report on a claim without a sign of life counts until the task begins again.
func TestALateReportOfASilentClaim(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(4)
	all := b.claim("anna", `,"max":4`)
	require.Len(t, all, 4)
	b.runOut("judge")
	for range 2 {
		require.Equal(t, 200, b.report(all[0], "complete", `{"output":"a cat"}`).status)
	}
	require.Equal(t, 409, b.report(all[0], "complete", `{"output":"a dog"}`).status)
	done := b.task(ids[0])
	assert.Equal(t, []any{asyncflow.StatusSucceeded, `"a cat"`},
		[]any{done.Status, string(done.Result)})

	require.Equal(t, 200, b.report(all[1], "fail", `{"error":"dark","retryable":false}`).status)
	assert.Equal(t, []any{asyncflow.StatusFailed, "dark"},
		[]any{b.task(ids[1]).Status, b.task(ids[1]).Error})
	for range 2 {
		require.Equal(t, 200, b.report(all[2], "fail", `{"error":"dark"}`).status)
	}
	assert.Equal(t, 2, b.task(ids[2]).Attempt, "the attempt is counted")

	other := b.claim("bob", ``)
	require.Equal(t, []any{ids[3], 2}, []any{other[0].TaskID, other[0].Seq})
	require.Equal(t, 409, b.report(all[3], "complete", `{"output":"a cat"}`).status,
		"it began again")
	require.Equal(t, 200, b.report(other[0], "complete", `{"output":"a cat"}`).status)
	require.Equal(t, 409, b.report(all[3], "complete", `{"output":"a cat"}`).status, "bob's counts")
}

// After the arrival of its answer a claim stands for the processing time of its stage, though
// nothing else is heard of it. Both kinds of connections tell that: one that is kept, and one that
// is closed.
func TestAClaimThatHasArrived(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system doesn't tell whether an answer has arrived")
	}
	b := setupWith(t, func(cfg *httpapi.Config) { cfg.ClaimCheck = 50 * time.Millisecond })
	b.claimed()
	ids := b.submitJudge(2)
	worker := b.newToken("acme", auth.ScopeWork)
	for i, closes := range []bool{false, true} {
		req, err := http.NewRequest("POST", b.url+"/v1/claims",
			strings.NewReader(`{"type":"judge","stage":"look","claimer":"anna`+strconv.Itoa(i)+`"}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+worker)
		req.Header.Set("Content-Type", "application/json")
		req.Close = closes
		require.Equal(t, 200, b.do(req).status)
		require.Eventually(t, func() bool {
			return time.Until(b.task(ids[i]).Deadline) > 2*asyncflow.FirstClaim
		}, patience, 10*time.Millisecond, "closes: %v", closes)
	}
}

// An answer prolongs nothing if it isn't known to be there, or if its claim was given back or heard
// of meanwhile.
func TestProlongedFromItsEndOnly(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(2)
	all := b.claim("anna", `,"max":2`)
	require.Len(t, all, 2)
	leases := make([]asyncflow.Lease, 2)
	for i := range all {
		id, err := asyncflow.ParseTaskID(ids[i])
		require.NoError(t, err)
		l, stands, err := b.committer.LeaseOf(t.Context(), "acme", id, 1)
		require.NoError(t, err)
		require.True(t, stands)
		leases[i] = l
	}
	require.Equal(t, 200, b.report(all[0], "heartbeat", ``).status)
	heard := b.task(ids[0]).Deadline
	b.committer.Prolong("acme", leases)
	require.Eventually(t, func() bool {
		return time.Until(b.task(ids[1]).Deadline) > 2*asyncflow.FirstClaim
	}, patience, 10*time.Millisecond)
	assert.Equal(t, heard, b.task(ids[0]).Deadline)
}

// A claimer that names an open claim holds it: the claim is prolonged.
func TestAClaimThatIsNamed(t *testing.T) {
	b := setup(t)
	b.claimed()
	ids := b.submitJudge(2)
	require.Len(t, b.claim("anna", `,"max":2`), 2)
	require.Len(t, b.claim("anna", `,"max":2,"held":["`+ids[0]+`"]`), 1)
	assert.Greater(t, time.Until(b.task(ids[0]).Deadline), 2*asyncflow.FirstClaim)
	assert.Less(t, time.Until(b.task(ids[1]).Deadline), 2*asyncflow.FirstClaim)
}

// What is kept to learn whether claims arrived is bounded for each tenant, however often its
// claimers ask again for what they hold.
func TestArrivalsAreBounded(t *testing.T) {
	b := setupWith(t, func(cfg *httpapi.Config) { cfg.ClaimCheck = time.Hour })
	b.claimed()
	const open = 500
	b.submitJudge(open)
	for range httpapi.MaxArrivalsPerTenant/open + 2 {
		require.Len(t, b.claim("anna", `,"max":500`), open)
		require.LessOrEqual(t, b.server.Arrivals(), httpapi.MaxArrivalsPerTenant)
	}
	assert.Equal(t, httpapi.MaxArrivalsPerTenant/open*open, b.server.Arrivals())
}
