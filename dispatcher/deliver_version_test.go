package dispatcher_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// A delivery, pushed or claimed, goes by the version of its type at the time of the send: a task
// that was submitted before, too, goes by the new one.
func TestDeliveriesHaveTheVersion(t *testing.T) {
	b := setup(t)
	sent := make(chan int, 10)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			sent <- d.TypeVersion
			return done
		})
	version := func() int {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		return pipe.Version
	}
	first := version()
	tasks := n.submit(t, 1)
	n.await(t, tasks, asyncflow.StatusSucceeded)
	require.Equal(t, []int{first, first}, []int{<-sent, <-sent}, "both stages")
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	tasks = n.submit(t, 2)
	d := n.claim(t, "first", "anna", 1)[0]
	require.Equal(t, first+1, d.TypeVersion)
	n.complete(t, d)
	require.Equal(t, first+1, <-sent)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.RollRows = 12_345
	_, _, err = n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	d = n.claim(t, "first", "anna", 1)[0]
	require.Equal(t, first+2, d.TypeVersion)
	n.complete(t, d)
	require.Equal(t, first+2, <-sent)
	n.await(t, tasks, asyncflow.StatusSucceeded)
}
