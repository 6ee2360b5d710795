package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Reports of one task that come at once count once, and don't hold up the others in
// their batch.
func TestReportsAtOnce(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 20)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	b.submit(tasks...)
	b.leaseAll(pipe, 20)
	b.loseAll(pipe, 20)
	start := time.Now()
	var told sync.WaitGroup
	for _, l := range b.leaseAll(pipe, 20) {
		for _, seq := range []int{2, 1, 2} {
			l.Seq = seq
			told.Add(1)
			b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}, Verdict: asyncflow.Verdict{Kind: asyncflow.Fail}},
				func(r store.Settled) {
					assert.NoError(t, r.Err)
					assert.Equal(t, seq == 1, r.Stale)
					told.Done()
				})
		}
	}
	told.Wait()
	assert.Less(t, time.Since(start), time.Minute)
	assert.Equal(t, tallied{Submitted: 20, Attempts: 40, Failures: 40, Failed: 20}, first(b.tallies(tenant, "pipe")))
	b.checkTokens("pipe")
}
