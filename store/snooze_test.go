package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// snoozed is the outcome of a worker that puts a task off.
func snoozed(after time.Duration) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed, Status: 200, RetryAfter: after,
		Error: "no label yet", Duration: 3 * time.Second}
}

// snooze settles a lease by a snooze, as dispatcher and API do.
func (b *bundle) snooze(l asyncflow.Lease, after time.Duration) {
	b.t.Helper()
	o := snoozed(after)
	var err error
	o.FirstSent, err = b.FirstSent(b.t.Context(), b.known(), l)
	require.NoError(b.t, err)
	b.settle(b.known(), l, o)
}

// due brings a waiting or pending task forward and leases it.
func (b *bundle) due(id asyncflow.TaskID) asyncflow.Lease {
	b.t.Helper()
	_, err := b.Change(b.t.Context(), tenant, id, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(b.t, err)
	l := b.lease(b.known(), 1)[0]
	require.Equal(b.t, id, l.ID)
	return l
}

// A task that is put off waits with its reason, for seconds and for days, and keeps its attempt.
// The statistics count it apart.
func TestSnooze(t *testing.T) { eachSet(t, testSnooze) }

func testSnooze(t *testing.T, b *bundle) {
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	for _, after := range []time.Duration{time.Second * 30, 3 * time.Hour} {
		l := b.lease(b.known(), 1)[0]
		require.Equal(t, 1, l.Attempt)
		b.snooze(l, after)
		task := b.task(id)
		require.Equal(t, asyncflow.WaitSnooze, task.WaitsFor)
		require.Equal(t, 1, task.Attempt)
		require.Equal(t, "no label yet", task.Error)
		require.WithinDuration(t, b.Clock.Now().Add(after), task.OrderTime, time.Minute)
		_, err := b.Change(t.Context(), tenant, id, asyncflow.Patch{RunAt: b.Clock.Now()})
		require.NoError(t, err)
	}
	sums := first(b.tallies(tenant, "pipe"))
	require.Equal(t, tallied{Submitted: 1, Snoozes: 2}, sums)
	b.exec(`UPDATE tenant_acme.tallies SET at = at - interval '1 h'`)
	_, err := b.Fold(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, sums, first(b.tallies(tenant, "pipe")))
	b.settle(b.known(), b.lease(b.known(), 1)[0], goodEnd)
	require.Equal(t, "second", b.task(id).Stage)
}

// max_snooze counts from the first delivery of the stage. After a redrive it counts anew.
func TestSnoozeEnds(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].MaxSnooze = asyncflow.NewDuration(time.Hour)
	spec.Stages[0].Retry = asyncflow.RetryPolicy{MaxAttempts: 1}
	b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	l := b.lease(b.known(), 1)[0]
	at, err := b.FirstSent(t.Context(), b.known(), l)
	require.NoError(t, err)
	require.Equal(t, l.LeasedAt, at)
	b.snooze(l, 50*time.Minute)
	b.exec(b.at(1, `UPDATE {journal} SET at = at - interval '50 min'`))
	b.snooze(b.due(id), 50*time.Minute)
	require.WithinDuration(t, b.Clock.Now().Add(10*time.Minute), b.task(id).OrderTime, time.Minute,
		"the last pause ends with max_snooze")
	b.exec(b.at(1, `UPDATE {journal} SET at = at - interval '10 min'`))
	b.snooze(b.due(id), 50*time.Minute)
	task := b.task(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	require.Equal(t, "it was snoozed for longer than max_snooze, 1h. "+
		"The last time: no label yet", task.Error)
	require.Equal(t, tallied{Submitted: 1, Snoozes: 2, Attempts: 1, Failures: 1, Failed: 1},
		first(b.tallies(tenant, "pipe")))

	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.snooze(b.lease(b.known(), 1)[0], 50*time.Minute)
	require.Equal(t, asyncflow.WaitSnooze, b.task(id).WaitsFor)
}

// A late snooze of a lost attempt counts, with the attempt's own number; the same once more is no
// error.
func TestLateSnooze(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.lease(b.known(), 1)[0]
	b.loseAll(b.known(), 1)
	require.Equal(t, 2, b.task(id).Attempt)
	for range 2 {
		_, taken, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, snoozed(time.Hour))
		require.NoError(t, err)
		require.True(t, taken)
	}
	task := b.task(id)
	require.Equal(t, 1, task.Attempt)
	require.Equal(t, asyncflow.WaitSnooze, task.WaitsFor)
}

// A snooze after max_snooze was counted as a failed attempt: the task waits for its retry.
func TestSnoozeAfterItsEndIsRetried(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].MaxSnooze = asyncflow.NewDuration(time.Hour)
	spec.Stages[0].Retry = asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-30)}
	b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	b.snooze(b.lease(b.known(), 1)[0], 2*time.Hour)
	b.exec(b.at(1, `UPDATE {journal} SET at = at - interval '1 h'`))
	b.snooze(b.due(id), time.Hour)
	task := b.task(id)
	require.Equal(t, []any{asyncflow.StatusPending, 2, asyncflow.WaitRetry},
		[]any{task.Status, task.Attempt, task.WaitsFor})
}
