package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
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

// lookBack gives both stages of the type pipe the input and the first output, in some modes.
func (n *node) lookBack(t *testing.T, mode asyncflow.Mode) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].Mode, spec.Stages[1].Mode = mode, mode
	for i := range spec.Stages {
		spec.Stages[i].Deliver = &asyncflow.Deliver{Input: true, Outputs: []string{"first"}}
	}
	_, _, err = n.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
}

// pastText returns what a delivery carries besides its context.
func pastText(l asyncflow.Lease) (text string) {
	for _, doc := range l.Past {
		text += fmt.Sprintf("%s=%s ", doc.Stage, doc.JSON)
	}
	return text
}

// However a stage begins, its deliveries carry what it asks for: tasks that begin at once, that
// come in line, that go on with their next stage, and claims.
func TestDeliveriesCarryThePast(t *testing.T) {
	for _, mode := range []asyncflow.Mode{"", asyncflow.ModeClaim} {
		t.Run(string("mode "+mode), func(t *testing.T) {
			b := setup(t)
			var mu sync.Mutex
			got := map[string]string{}
			work := func(l asyncflow.Lease) asyncflow.Outcome {
				mu.Lock()
				defer mu.Unlock()
				got[l.ID.String()+" "+l.Stage] = pastText(l)
				o := done
				if l.Stage == "first" {
					o.Output = json.RawMessage(fmt.Sprintf(`{"of": %s}`, l.Context))
				}
				return o
			}
			n := b.start("a", dispatcher.Config{Concurrency: 8},
				func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
					return work(d.Lease)
				})
			n.lookBack(t, mode)
			tasks := n.submit(t, 30)
			for _, stage := range []string{"first", "second"} {
				for left := len(tasks); mode != "" && left > 0; {
					for _, d := range n.claim(t, stage, "anna", 7) {
						n.settleAs(t, d.Lease, work(d.Lease))
						left--
					}
				}
			}
			n.await(t, tasks, asyncflow.StatusSucceeded)
			want := map[string]string{}
			for i, task := range tasks {
				want[task.ID.String()+" first"] = fmt.Sprintf("=%d first= ", i)
				want[task.ID.String()+" second"] = fmt.Sprintf(`=%d first={"of": %d} `, i, i)
			}
			assert.Equal(t, want, got)
			require.Eventually(t, func() bool { return n.Load() == 0 }, patience,
				20*time.Millisecond, "the bytes are given back")
		})
	}
}

// settleAs ends a claimed stage with an outcome.
func (n *node) settleAs(t *testing.T, l asyncflow.Lease, o asyncflow.Outcome) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	settled := make(chan store.Settled, 1)
	n.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, n.Clock.Now())},
		func(r store.Settled) { settled <- r })
	require.Equal(t, store.Settled{}, <-settled)
}

// What stages are given counts in the byte budget, whether or not their contexts are short. All
// tasks are delivered in the end, and no attempt is counted for tasks that had to wait.
func TestThePastIsBounded(t *testing.T) {
	const bound, size, tasks = 400 << 10, 20 << 10, 60
	b := setup(t)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	var underWay, most atomic.Int64
	n := b.start("a", dispatcher.Config{ContextBytes: bound},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			o := done
			if d.Lease.Stage == "first" {
				o.Output = []byte(`1`)
				return o
			}
			assert.Equal(t, 1, d.Lease.Attempt)
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			<-hang
			return o
		})
	n.lookBack(t, "")
	large := make([]asyncflow.NewTask, tasks)
	for i := range large {
		large[i] = asyncflow.NewTask{Type: "pipe",
			Context: []byte(`"` + strings.Repeat("x", size-2) + `"`)}
	}
	all := n.Submit(t.Context(), tenant, large)
	require.Eventually(t, func() bool { return underWay.Load() >= 10 }, patience,
		20*time.Millisecond)
	require.Never(t, func() bool { return n.Load() > bound }, 200*time.Millisecond,
		10*time.Millisecond)
	assert.LessOrEqual(t, most.Load(), int64(bound/size))
	release()
	n.await(t, all, asyncflow.StatusSucceeded)
	require.Eventually(t, func() bool { return n.Load() == 0 }, patience, 20*time.Millisecond)
}

// What is larger than the budget is sent alone.
func TestAPastAboveTheBound(t *testing.T) {
	b := setup(t)
	var underWay, most atomic.Int64
	n := b.start("a", dispatcher.Config{ContextBytes: 1000},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			o := done
			if d.Lease.Stage == "first" {
				o.Output = []byte(`1`)
				return o
			}
			assert.Equal(t, 5001, d.Lease.PastSize())
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			return o
		})
	n.lookBack(t, "")
	large := make([]asyncflow.NewTask, 10)
	for i := range large {
		large[i] = asyncflow.NewTask{Type: "pipe",
			Context: []byte(`"` + strings.Repeat("x", 4998) + `"`)}
	}
	n.await(t, n.Submit(t.Context(), tenant, large), asyncflow.StatusSucceeded)
	assert.Equal(t, int64(1), most.Load())
}

// A claimer gets no more at once than a transaction reads. The rest goes back in line.
func TestClaimsOfALongPastAreBounded(t *testing.T) {
	const size, tasks = 700 << 10, 9
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, nil)
	n.lookBack(t, asyncflow.ModeClaim)
	large := make([]asyncflow.NewTask, tasks)
	for i := range large {
		large[i] = asyncflow.NewTask{Type: "pipe",
			Context: []byte(`"` + strings.Repeat("x", size-2) + `"`)}
	}
	all := n.Submit(t.Context(), tenant, large)
	small := done
	small.Output = []byte(`1`)
	for left := tasks; left > 0; {
		for _, d := range n.claim(t, "first", "anna", tasks) {
			n.settleAs(t, d.Lease, small)
			left--
		}
	}
	for left := tasks; left > 0; {
		got := n.claim(t, "second", "anna", tasks)
		bytes := 0
		for _, d := range got {
			bytes += d.Lease.PastSize()
			assert.Equal(t, 1, d.Lease.Attempt)
			n.settleAs(t, d.Lease, done)
			left--
		}
		assert.NotEmpty(t, got)
		assert.LessOrEqual(t, bytes, 4<<20)
	}
	n.await(t, all, asyncflow.StatusSucceeded)
}
