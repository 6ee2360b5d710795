package store_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestStageWithLiveTasksStays(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	fewer := twoStages()
	fewer.Stages = fewer.Stages[1:]
	_, _, err := b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in ready")
	l := b.lease(pipe, 1)[0]
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "in lease")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	_, _, err = b.PutTaskType(t.Context(), tenant, fewer)
	require.NoError(t, err, "it is in another stage")
}

func TestDeleteTaskType(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	require.Equal(t, asyncflow.CodeConflict,
		asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe")))
	l := b.lease(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe"))
	var left int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_tables
			WHERE schemaname = 'tenant_acme' AND tablename ~ 'pipe'`).Scan(&left))
	assert.Zero(t, left)
	require.Equal(t, asyncflow.CodeNotFound,
		asyncflow.CodeOf(b.DeleteTaskType(t.Context(), tenant, "pipe")))
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r[0].Err))
	b.put(twoStages()) // it can be created again
	b.submit(newTask(`1`))
}

// A delete must not slip between the submits of another node that doesn't know of it: they are
// refused, not lost.
func TestDeleteWhileSubmitting(t *testing.T) { eachSet(t, deleteWhileSubmitting) }

func deleteWhileSubmitting(t *testing.T, b *bundle) {
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	stop := make(chan struct{})
	accepted := make(chan asyncflow.TaskID, 10000)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(accepted)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, r := range far.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)}) {
				if r.Err == nil {
					accepted <- r.ID
				} else {
					assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(r.Err), "%v", r.Err)
				}
			}
		}
	})
	<-accepted
	err := b.DeleteTaskType(t.Context(), tenant, "pipe")
	assert.Contains(t, []asyncflow.Code{asyncflow.CodeConflict, asyncflow.CodeUnavailable},
		asyncflow.CodeOf(err), "live tasks keep it from being deleted")
	close(stop)
	wg.Wait()
	for id := range accepted {
		_, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err, "%s was acknowledged", id)
	}
}
