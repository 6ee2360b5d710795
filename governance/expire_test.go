package governance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A tenant with many types that are due takes its turn, and doesn't keep another tenant waiting.
// What is left is due in the next run, or in the next round of the same one.
func TestExpireInTurns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	_, err := store.CreateTenant(t.Context(), url, "few", noRoles())
	require.NoError(t, err)
	b := setup(t, url, "a", governance.Config{})
	names := []string{"one", "two", "three"}
	for _, name := range names {
		b.pipe(t, name)
	}
	_, _, err = b.PutTaskType(t.Context(), "few", b.pipe(t, "four").TaskType)
	require.NoError(t, err)
	late := func(of, name string) {
		task := asyncflow.NewTask{Type: name, Context: []byte(`1`)}
		task.EndBy = asyncflow.DeadlineAt(b.Clock.Now().Add(-time.Second))
		require.NoError(t, b.Submit(t.Context(), of, []asyncflow.NewTask{task})[0].Err)
	}
	run := func() int {
		n, err := b.jobs["expire"].Run(t.Context())
		require.NoError(t, err)
		return n
	}
	for _, name := range names {
		late(tenant, name)
	}
	late("few", "four")
	b.gov.SetExpireTurn(-time.Minute, -time.Minute) // they are over at once
	assert.Equal(t, 2, run(), "one type of each tenant")
	assert.Equal(t, 1, run())
	assert.Equal(t, 1, run())
	assert.Zero(t, run())
	for _, name := range names {
		late(tenant, name)
	}
	b.gov.SetExpireTurn(-time.Minute, time.Minute)
	assert.Equal(t, 3, run(), "in three rounds")
}

// The job rests after a step that ended many tasks, and not after one of few.
func TestExpireRests(t *testing.T) {
	t.Parallel()
	b := setup(t, pgtest.Database(t, prepare), "a", governance.Config{})
	b.pipe(t, "pipe")
	rests := 0
	b.gov.SetExpireRest(func(_ context.Context, d time.Duration) bool {
		rests++
		assert.Positive(t, d)
		return true
	})
	for _, c := range []struct{ tasks, rests int }{{1, 0}, {store.ExpireBatch / 2, 1}} {
		tasks := make([]asyncflow.NewTask, c.tasks)
		for i := range tasks {
			tasks[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(`1`),
				EndBy: asyncflow.DeadlineAt(b.Clock.Now().Add(-time.Second))}
		}
		b.Submit(t.Context(), tenant, tasks)
		rests = 0
		ended, err := b.jobs["expire"].Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.tasks, ended)
		assert.Equal(t, c.rests, rests, "after %d tasks", c.tasks)
	}
}
