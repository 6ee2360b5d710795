package dispatcher_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// Types that are created, used and deleted leave nothing behind on a node.
func TestTypesThatAreGoneAreForgotten(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	const types = 20
	for i := range types {
		name := fmt.Sprint("passing", i)
		n.addType(t, name, 100+i)
		task := n.submitTo(t, name, 1)[0]
		n.await(t, []store.Submitted{task}, asyncflow.StatusFailed)
	}
	require.Greater(t, n.KeptTypes(), types)
	for i := range types {
		require.NoError(t, n.DeleteTaskType(t.Context(), tenant, fmt.Sprint("passing", i), false))
	}
	require.Eventually(t, func() bool {
		n.Tidy()
		return n.KeptTypes() == 1 // pipe is still there
	}, patience, 20*time.Millisecond)
}
