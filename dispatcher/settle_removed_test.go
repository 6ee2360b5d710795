package dispatcher_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// The stage that follows is removed, without a mapping, while an attempt runs: the task goes on as
// the type says now. It doesn't wait for a stage that is no more.
func TestTheNextStageIsRemoved(t *testing.T) {
	b := setup(t)
	sent, answers := make(chan asyncflow.Delivery), make(chan asyncflow.Outcome)
	n := b.start("a", dispatcher.Config{}, func(
		_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		sent <- d
		return <-answers
	})
	results := n.submit(t, 1)
	<-sent
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages[:1]...)
	_, _, err = n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
	answers <- done
	n.await(t, results, asyncflow.StatusSucceeded)
}
