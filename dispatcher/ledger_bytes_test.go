package dispatcher_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// The byte budget bounds the tasks with large contexts in flight. Tasks of another type find
// capacity beside them, and finally all are delivered.
func TestContextsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	const bound, size, tasks = 400 << 10, 20 << 10, 60
	for name, answer := range map[string]asyncflow.Outcome{
		"done":     {Kind: asyncflow.OutcomeDone, Status: 200},
		"accepted": {Kind: asyncflow.OutcomeAccepted, Status: 202},
		"rejected": {Kind: asyncflow.OutcomeRejected, Status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			hang := make(chan struct{})
			release := sync.OnceFunc(func() { close(hang) })
			defer release()
			var underWay, most, sent atomic.Int64
			n := b.start("a", dispatcher.Config{ContextBytes: bound},
				func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
					if d.Lease.ID.Type == "other" {
						return done
					}
					most.Store(max(most.Load(), underWay.Add(1)))
					defer underWay.Add(-1)
					sent.Add(1)
					<-hang
					return answer
				})
			n.addType(t, "other", 8)
			large := make([]asyncflow.NewTask, tasks)
			for i := range large {
				large[i] = asyncflow.NewTask{
					Type:    "pipe",
					Context: []byte(`"` + strings.Repeat("x", size-2) + `"`),
				}
			}
			all := n.Submit(t.Context(), tenant, large)
			// Four fifths of 20, the number of contexts within the budget.
			require.Eventually(t, func() bool { return underWay.Load() >= 13 }, patience,
				20*time.Millisecond)
			n.await(t, n.submitTo(t, "other", 50), asyncflow.StatusSucceeded)
			assert.LessOrEqual(t, most.Load(), int64(16))
			release()
			require.Eventually(t, func() bool {
				return sent.Load() >= tasks
			}, patience, 20*time.Millisecond)
			switch answer.Kind {
			case asyncflow.OutcomeDone:
				n.await(t, all, asyncflow.StatusSucceeded)
			case asyncflow.OutcomeRejected:
				n.await(t, all, asyncflow.StatusFailed)
			}
		})
	}
}

// A context larger than the budget is sent alone.
func TestAContextAboveTheBound(t *testing.T) {
	b := setup(t)
	var underWay, most atomic.Int64
	n := b.start("a", dispatcher.Config{ContextBytes: 1000},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			return done
		})
	large := make([]asyncflow.NewTask, 20)
	for i := range large {
		large[i] = asyncflow.NewTask{Type: "pipe",
			Context: []byte(`"` + strings.Repeat("x", 5000) + `"`)}
	}
	n.await(t, n.Submit(t.Context(), tenant, large), asyncflow.StatusSucceeded)
	assert.Equal(t, int64(1), most.Load())
}

// Outputs count until they are written. While they can't be written, no more tasks begin.
func TestOutputsAreBounded(t *testing.T) {
	const size, tasks = 20 << 10, 20
	b := setup(t)
	var sent atomic.Int64
	n := b.start("a", dispatcher.Config{ContextBytes: tasks * size},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			sent.Add(1)
			return asyncflow.Outcome{
				Kind:   asyncflow.OutcomeDone,
				Status: 200,
				Output: []byte(`"` + strings.Repeat("x", size-2) + `"`),
			}
		})
	// Now the node knows how short contexts are.
	n.await(t, n.submit(t, 1), asyncflow.StatusSucceeded)
	before := sent.Load()
	unlock := sync.OnceFunc(b.lock("tenant_acme.journal_1"))
	defer unlock()
	var all []store.Submitted
	const room = tasks * 4 / 5 // is what a type gets alone
	for i := range room {
		all = append(all, n.submit(t, 1)...)
		require.Eventually(t, func() bool {
			return n.Load() >= (i+1)*size
		}, patience, 20*time.Millisecond)
	}
	all = append(all, n.submit(t, tasks)...)
	require.Never(t, func() bool { return sent.Load() > before+room }, 200*time.Millisecond,
		10*time.Millisecond)
	unlock()
	n.await(t, all, asyncflow.StatusSucceeded)
	require.Eventually(t, func() bool { return n.Load() == 0 }, patience, 20*time.Millisecond)
}
