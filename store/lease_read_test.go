package store_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Leases that are read together are each returned, also among leases that don't stand and tasks of
// rolls that don't exist.
func TestLeaseOfMany(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 60)
	for i := range tasks {
		tasks[i] = newTask(`1`)
		if i%2 == 0 {
			tasks[i].Options.Priority = asyncflow.Priority{i}
		}
	}
	b.submit(tasks...)
	var asking sync.WaitGroup
	for _, want := range b.leaseAll(pipe, len(tasks)) {
		asking.Go(func() {
			got, stands, err := b.LeaseOf(t.Context(), tenant, want.ID, want.Seq)
			assert.NoError(t, err)
			assert.True(t, stands)
			assert.Equal(t, []any{want.ID, want.Seq, want.Stage, want.Attempt, want.Options},
				[]any{got.ID, got.Seq, got.Stage, got.Attempt, got.Options})
			assert.True(t, want.Until.Equal(got.Until) && want.LeasedAt.Equal(got.LeasedAt))
		})
		asking.Go(func() {
			_, stands, err := b.LeaseOf(t.Context(), tenant, want.ID, want.Seq+1)
			assert.NoError(t, err)
			assert.False(t, stands)
		})
		asking.Go(func() {
			_, stands, err := b.LeaseOf(t.Context(), tenant,
				asyncflow.NewTaskID(want.ID.Type, pipe.End+1, want.ID.Number), want.Seq)
			assert.NoError(t, err)
			assert.False(t, stands)
		})
	}
	waitAll(t, &asking)
	require.NoError(t, t.Context().Err())
}
