package dispatcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// If the database takes too long with earlier reports, so that a worker no longer waits, its report
// is refused at once, and the worker may report again.
func TestReportsThatWaitedTooLong(t *testing.T) {
	w := setupWriter(t)
	pipe := w.put(writerType())
	w.submit(newTask(`1`))
	lease := w.lease(pipe, 1)[0]
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	settlement := asyncflow.Settlement{Lease: lease, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, lease, o, w.Clock.Now())}
	settled := make(chan store.Settled, 1)
	w.SettleUntil(time.Now().Add(-time.Second), tenant, settlement, func(s store.Settled) {
		settled <- s
	})
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf((<-settled).Err))
	again := w.settle(pipe, lease, o)
	require.NoError(t, again.Err)
	assert.Empty(t, again.Written, "the first report was not written")
}
