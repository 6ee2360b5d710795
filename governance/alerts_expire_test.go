package governance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Tasks that expire soon count while they are not running. Later ones and ones without a lifetime
// don't.
func TestWillExpireAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{WillExpire: 2,
		WillExpireWithin: asyncflow.NewDuration(10 * time.Minute)})
	submit := func(end time.Duration) {
		task := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
		if end > 0 {
			task.EndBy = asyncflow.DeadlineAfter(end)
		}
		require.NoError(t, b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0].Err)
	}
	submit(5 * time.Minute)
	b.admitted(t, pipe) // it runs
	submit(6 * time.Minute)
	submit(time.Hour)
	submit(0)
	require.Zero(t, b.turn(t, url, tenant), "one runs, one has an hour")
	submit(7 * time.Minute)
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertWillExpire, "pipe")
	assert.Equal(t, []float64{2, 2, 600}, []float64{e.Value, e.Limit, e.Detail.Within})
	exec(t, url, `UPDATE tenant_acme.lifetimes SET expires_at = expires_at - interval '-1 hour'`)
	require.Equal(t, 1, b.resolves(t, url))
}

// Tasks that expire count as failed for good, and the alert is about them as about others.
func TestExpiredTasksFailForGood(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailedForGood: 2})
	for n := range 2 {
		require.Zero(t, b.turn(t, url, tenant), "%d have expired", n)
		task := asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
		task.EndBy = asyncflow.DeadlineAt(b.Clock.Now().Add(-time.Second))
		require.NoError(t, b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0].Err)
		ended, err := b.jobs["expire"].Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, ended)
	}
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertFailedForGood, "pipe")
	assert.Equal(t, []float64{2, 2}, []float64{e.Value, e.Limit})
}
