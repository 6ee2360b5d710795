package governance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// roll runs the job and returns how many steps it took.
func (b *bundle) roll(t *testing.T) int {
	t.Helper()
	n, err := b.jobs["roll"].Run(t.Context())
	require.NoError(t, err)
	return n
}

func (b *bundle) rolls(t *testing.T) []store.Roll {
	t.Helper()
	rolls, err := b.Rolls(t.Context(), tenant)
	require.NoError(t, err)
	return rolls
}

// back moves one of the times of all rolls back.
func back(t *testing.T, url, column, by string) {
	exec(t, url,
		fmt.Sprintf(`UPDATE tenant_acme.rolls SET %[1]s = %[1]s - interval '%[2]s'`, column, by))
}

// The job takes a full roll through its steps, each after every node has had time to hear of the
// previous one.
func TestRollJob(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	spec := asyncflow.TaskType{Name: "pipe", RollRows: 1000, Retention: asyncflow.Duration(time.Hour),
		Stages: []asyncflow.Stage{{Name: "only"}}}
	_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	known := func() *store.Type {
		pipe, err := b.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		return pipe
	}
	submit := func(n int) {
		tasks := make([]asyncflow.NewTask, n)
		for i := range tasks {
			tasks[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
		}
		for _, r := range b.Submit(t.Context(), tenant, tasks) {
			require.NoError(t, r.Err)
		}
	}
	submit(999)
	exec(t, url, `UPDATE tenant_acme.rolls SET next_number = 100000`)
	require.Zero(t, b.roll(t), "numbers have gaps: it is judged by its size")
	submit(1)
	require.Equal(t, 1, b.roll(t), "opened")
	require.Equal(t, 2, known().End)
	require.Zero(t, b.roll(t), "not every node knows of it yet")
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Zero(t, b.roll(t), "tasks are left")
	for left := 1000; left > 0; {
		leases, _, err := b.Lease(t.Context(), known(), 1000)
		require.NoError(t, err)
		left -= len(leases)
		for _, l := range leases {
			settle(t, b, known(), l)
		}
	}
	require.Equal(t, 1, b.roll(t), "drained")
	require.Equal(t, 2, known().Begin)
	require.Zero(t, b.roll(t), "not every node knows of that yet")
	back(t, url, "drained_at", "10 s")
	require.Equal(t, 1, b.roll(t), "cleared")
	require.Equal(t, 1, b.roll(t), "idle")
	require.Zero(t, b.roll(t), "its tasks are kept for an hour")
	back(t, url, "sealed_at", "2 h")
	require.Zero(t, b.roll(t), "its tasks have ended just now")
	back(t, url, "idle_since", "2 h")
	require.Equal(t, 1, b.roll(t), "dropped")
	rolls := b.rolls(t)
	require.Len(t, rolls, 1)
	assert.Equal(t, 2, rolls[0].Position)
}

// An old roll that isn't empty is followed by another, but not while its lock is taken.
func TestRollJobByAge(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	back(t, url, "opened_at", "31 days")
	require.Zero(t, b.roll(t), "it is empty")
	leases := b.submitAndLease(t, pipe, 1)
	require.Equal(t, 1, b.roll(t))
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Equal(t, 1, b.roll(t), "drained: what is leased holds nothing")
	settle(t, b, pipe, leases[0])
	task, err := b.Task(t.Context(), tenant, leases[0].ID)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
}

// In another history of the database each type gets a roll, even without tasks.
func TestRollJobInAnotherHistory(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	require.Zero(t, b.roll(t))
	exec(t, url, `UPDATE tenant_acme.rolls SET history = 'lost'`)
	require.Equal(t, 1, b.roll(t), "opened")
	require.Zero(t, b.roll(t))
	rolls := b.rolls(t)
	require.Len(t, rolls, 2)
	assert.True(t, rolls[0].Lost)
	assert.False(t, rolls[1].Lost)
}

func settle(t *testing.T, b *bundle, pipe *store.Type, l asyncflow.Lease) {
	t.Helper()
	done := make(chan store.Settled, 1)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	b.Settle(tenant,
		asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o,
				b.Clock.Now())}, func(r store.Settled) { done <- r })
	require.NoError(t, (<-done).Err)
}
