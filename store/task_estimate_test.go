package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// More than 10,000 tasks of a type, or of a final status, are estimated by the tallies, without
// the tasks that went with their roll. Other filters, and few tasks, are counted.
func TestEstimatedCount(t *testing.T) {
	b := setup(t)
	b.SetCountTime(patience)
	b.put(twoStages())
	b.submitMany(3)
	count := func(f store.Filter) store.TaskCount {
		t.Helper()
		n, err := b.TaskCount(t.Context(), tenant, f)
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, store.TaskCount{Tasks: 3, Exact: true}, count(store.Filter{Type: "pipe"}))
	b.exec(`INSERT INTO tenant_acme.tallies (type, at, submitted, succeeded, failed)
		VALUES ('pipe', $1, 30000, 12000, 11000), ('pipe', $2, 50000, 40000, 10000)`,
		b.Clock.Now(), b.Clock.Now().Add(-100*24*time.Hour))
	about := func(n int64) store.TaskCount {
		return store.TaskCount{Tasks: store.MaxTaskCount, Estimate: n}
	}
	assert.Equal(t, about(30_003), count(store.Filter{Type: "pipe"}))
	assert.Equal(t, about(30_003), count(store.Filter{NoChildren: true}))
	assert.Equal(t, about(12_000), count(store.Filter{Status: asyncflow.StatusSucceeded}))
	assert.Equal(t, about(11_000), count(store.Filter{Status: asyncflow.StatusFailed}))
	for name, f := range map[string]store.Filter{
		"waiting": {Status: asyncflow.StatusWaiting}, "pending": {Status: asyncflow.StatusPending},
		"cancelled": {Status: asyncflow.StatusCancelled}, "stage": {Stage: "first"},
		"user": {Labels: store.LabelFilter{User: "ada"}}, "flow key": {FlowKey: "k"},
		"since": {Since: time.Now().Add(-time.Hour)}, "key": {Key: "k"}, "code": {Code: "503"},
		"worker": {Worker: "w"}, "attempts": {Attempts: 2},
		"fingerprint": {Fingerprint: "5d41402abc4b2a76"},
	} {
		assert.Zero(t, count(f).Estimate, name)
	}
}

// What a tenant uses is what its stats say, at once for however many tasks.
func TestUsageIsThatOfTheStats(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 4)
	b.submitMany(7)
	b.leaseAll(b.known(), 2)
	used, err := b.TenantUsage(t.Context(), tenant)
	require.NoError(t, err)
	all, err := b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	s := all[0]
	assert.EqualValues(t, 2, s.Running)
	assert.Equal(t, map[asyncflow.QuotaName]float64{
		asyncflow.QuotaPendingTasks:        float64(s.Waiting + s.Pending + s.Running),
		asyncflow.QuotaConcurrency:         float64(s.Running),
		asyncflow.QuotaSubmitsPerSecond:    s.Rates.Submitted,
		asyncflow.QuotaDeliveriesPerSecond: s.Rates.Attempts,
	}, map[asyncflow.QuotaName]float64{
		asyncflow.QuotaPendingTasks:        used[asyncflow.QuotaPendingTasks],
		asyncflow.QuotaConcurrency:         used[asyncflow.QuotaConcurrency],
		asyncflow.QuotaSubmitsPerSecond:    used[asyncflow.QuotaSubmitsPerSecond],
		asyncflow.QuotaDeliveriesPerSecond: used[asyncflow.QuotaDeliveriesPerSecond],
	})
}
