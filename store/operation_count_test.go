package store_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// An operation counts all tasks of its filter, however many, in steps.
func TestCountAll(t *testing.T) {
	const history = 2 * store.MaxTaskCount
	b, pipe := behindHistory(t, history)
	// What past wrote doesn't count in the stats, from which the total is guessed.
	o, due := b.start(store.CountAll, store.NewOperation{
		Filter: store.Filter{Until: time.Now().Add(1000 * time.Hour)}})
	assert.Equal(t, store.OperationRunning, o.State)
	b.submit(newTask(`"too late"`))
	step := b.step(due)
	assert.Zero(t, step.Done, "it changes nothing")
	require.False(t, step.Next.IsZero())
	half := b.operation(due)
	assert.Positive(t, half.Done)
	assert.GreaterOrEqual(t, half.Total, half.Done+half.Skipped)
	o = b.finish(due)
	// Tasks of the future are none that were there when it began.
	before := b.count(`SELECT count(*) FROM tenant_acme.task_1 WHERE created_at < '` +
		o.CreatedAt.UTC().Format(time.RFC3339Nano) + `'`)
	assert.Equal(t, []any{store.OperationDone, int64(history + 12 + 1), int64(before),
		int64(history + 12 + 1 - before)}, figures(o))

	for name, f := range map[string]store.Filter{
		"failed":           {Status: asyncflow.StatusFailed},
		"failed in second": {Status: asyncflow.StatusFailed, Stage: "second"},
		"running":          {Status: asyncflow.StatusRunning},
		"pending":          {Status: asyncflow.StatusPending},
		"an error":         {Error: "timeout"},
		"none":             {Error: "nothing has this"},
	} {
		o, due := b.start(store.CountAll, store.NewOperation{Filter: f})
		f.Type, f.Limit, f.Until = pipe.Name, 100_000, o.CreatedAt
		list, err := b.Tasks(t.Context(), tenant, f)
		require.NoError(t, err)
		o = b.finish(due)
		assert.Equal(t, []any{store.OperationDone, int64(len(list))}, []any{o.State, o.Done}, name)
		assert.Equal(t, o.Total, o.Done+o.Skipped, name)
	}
}

// A step of a count that searches errors looks at fewer tasks: such a search may be slow.
func TestCountAllOfErrors(t *testing.T) {
	b, _ := behindHistory(t, 20_000)
	_, due := b.start(store.CountAll, store.NewOperation{Filter: store.Filter{Error: "error"}})
	b.step(due)
	o := b.operation(due)
	assert.EqualValues(t, 1000, o.Done+o.Skipped)
	assert.Equal(t, store.OperationDone, b.finish(due).State)
}

// The total of a count is known about when it begins, and a stopped one takes no step.
func TestCountAllIsStopped(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.failMany(pipe, 30)
	b.submitMany(20)
	total := func(status asyncflow.Status) int64 {
		o, due := b.start(store.CountAll, store.NewOperation{Filter: store.Filter{Status: status}})
		_, err := b.StopOperation(t.Context(), tenant, due.ID)
		require.NoError(t, err)
		return o.Total
	}
	assert.EqualValues(t, 50, total(""))
	assert.EqualValues(t, 50, total(asyncflow.StatusSucceeded), "no table has only those")
	assert.EqualValues(t, 20, total(asyncflow.StatusPending))
	assert.EqualValues(t, 30, total(asyncflow.StatusFailed))
	assert.Zero(t, total(asyncflow.StatusRunning))
	_, due := b.start(store.CountAll, store.NewOperation{})
	_, err := b.StopOperation(t.Context(), tenant, due.ID)
	require.NoError(t, err)
	assert.Equal(t, store.Step{}, b.step(due))
	assert.Equal(t, []any{store.OperationStopped, int64(50), int64(0), int64(0)},
		figures(b.operation(due)))
}

// A tenant's counts are few at once, however many of its calls begin some together. One that is
// over makes room for another.
func TestFewCountsRunAtOnce(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submitMany(5)
	begin := func() (store.Operation, error) {
		return b.StartOperation(t.Context(), tenant,
			store.NewOperation{Kind: store.CountAll, Filter: store.Filter{Type: "pipe"}})
	}
	var calls sync.WaitGroup
	var begun atomic.Int32
	for range 20 {
		calls.Go(func() {
			_, err := begin()
			if err == nil {
				begun.Add(1)
				return
			}
			assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
		})
	}
	waitAll(t, &calls)
	assert.EqualValues(t, store.MaxRunningCounts, begun.Load())
	due, err := b.DueOperations(t.Context(), []string{tenant}, b.Clock.Now())
	require.NoError(t, err)
	b.finish(due[0])
	_, err = begin()
	require.NoError(t, err)
}
