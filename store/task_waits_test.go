package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// serving puts the type with an endpoint for its first stage, so that its tasks are due.
func (b *bundle) serving(spec asyncflow.TaskType) {
	b.t.Helper()
	b.put(spec)
	_, err := b.CreateEndpoint(b.t.Context(), tenant, asyncflow.Endpoint{
		ID:     "0190a6f0-0000-7000-8000-000000000001",
		Type:   "pipe",
		Stage:  "first",
		URL:    "https://w",
		Weight: 1,
	})
	require.NoError(b.t, err)
}

// reasons returns what a task waits for by each of the ways to ask for it.
func (b *bundle) reasons(id asyncflow.TaskID) []asyncflow.WaitReason {
	b.t.Helper()
	watched, _, _, err := b.Watch(b.t.Context(), tenant, id, store.AttemptPage{Limit: 10})
	require.NoError(b.t, err)
	page, err := b.TaskPage(b.t.Context(), tenant,
		store.Filter{Type: "pipe", After: id.Number + 1, Limit: 1})
	require.NoError(b.t, err)
	waited, err := b.AwaitFinal(b.t.Context(), tenant, id, time.Millisecond)
	require.NoError(b.t, err)
	return []asyncflow.WaitReason{
		b.task(id).WaitsFor,
		watched.WaitsFor,
		page.Tasks[0].WaitsFor,
		waited.WaitsFor,
	}
}

func all(reason asyncflow.WaitReason) []asyncflow.WaitReason {
	return []asyncflow.WaitReason{reason, reason, reason, reason}
}

// A task waits for the rate of its type as long as about as many were begun lately, those that
// ended included.
func TestWaitsForTheRate(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Rate = asyncflow.Rate{Count: 2, Per: time.Hour}
	b.serving(spec)
	b.submit(newTask(`1`), newTask(`2`))
	last := b.submit(newTask(`3`))[0].ID
	require.Equal(t, all(asyncflow.WaitCapacity), b.reasons(last), "there is room")
	l := b.leaseLimited(1, &doorman{})[0]
	require.Equal(t, all(asyncflow.WaitType), b.reasons(last))
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.Equal(t, all(asyncflow.WaitType), b.reasons(last))

	spec.Rate.Count = 100
	b.put(spec)
	b.exec(`UPDATE tenant_acme.tallies SET at = at - interval '1 minute'`)
	require.Equal(t, all(asyncflow.WaitCapacity), b.reasons(last),
		"that was longer ago than the next one is due")
}

// A used-up quota of the tenant is named, whichever of its types used it.
func TestWaitsForAQuota(t *testing.T) {
	b := setup(t)
	b.serving(twoStages())
	other := twoStages()
	other.Name = "other"
	_, _, err := b.PutTaskType(t.Context(), tenant, other)
	require.NoError(t, err)
	quota := func(name asyncflow.QuotaName, limit float64) {
		_, err := b.PatchTenant(t.Context(), tenant,
			store.TenantPatch{Quotas: map[asyncflow.QuotaName]float64{name: limit}})
		require.NoError(t, err)
	}
	task := newTask(`1`)
	task.Type = "other"
	require.NoError(t, b.Submit(t.Context(), tenant, []asyncflow.NewTask{task, task})[0].Err)
	id := b.submit(newTask(`2`))[0].ID
	quota(asyncflow.QuotaConcurrency, 1)
	require.Equal(t, all(asyncflow.WaitCapacity), b.reasons(id))
	of, err := b.Catalog.Type(tenant, "other")
	require.NoError(t, err)
	l := b.lease(of, 1)[0]
	require.Equal(t, all(asyncflow.WaitConcurrency), b.reasons(id))
	extended := make(chan bool, 1)
	b.Extend(tenant, l, b.Clock.Now().Add(time.Hour), store.Checkpoint{}, store.Seen{},
		func(stands bool, err error) { extended <- stands && err == nil })
	require.True(t, receive(t, extended))
	require.Equal(t, all(asyncflow.WaitCapacity), b.reasons(id),
		"what was answered with 202 doesn't count")

	quota(asyncflow.QuotaDeliveriesPerSecond, 0.01)
	assert.Equal(t, all(asyncflow.WaitDeliveries), b.reasons(id))
	quota(asyncflow.QuotaDeliveriesPerSecond, 100)
	assert.Equal(t, all(asyncflow.WaitCapacity), b.reasons(id))
}

// A wait that is ended while it reads answers with the task all the same.
func TestAWaitThatIsEndedAnswers(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	ctx, end := context.WithCancel(t.Context())
	end()
	task, err := b.AwaitFinal(ctx, tenant, id, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusPending, task.Status)
}
