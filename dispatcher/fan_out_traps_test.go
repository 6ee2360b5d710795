package dispatcher_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// byHand keeps the node from following up. It returns a function that does so once.
func (f *family) byHand() (step func()) {
	f.StopFollowUps()
	return func() {
		f.t.Helper()
		_, err := f.FollowUp(f.t.Context(), tenant)
		require.NoError(f.t, err)
	}
}

// waits waits until a task fans out.
func (f *family) waits(id asyncflow.TaskID) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		task, err := f.Task(f.t.Context(), tenant, id)
		return err == nil && task.WaitsFor == asyncflow.WaitChildren
	}, patience, 20*time.Millisecond)
}

// Children that end in transactions that don't see each other are all counted, also the last two:
// several nodes follow up at once.
func TestTwoLastChildren(t *testing.T) {
	const trees, shards = 5, 200
	f := startFamily(t, asyncflow.FanOut{Shards: shards}, echo)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				_, err := f.FollowUp(ctx, tenant)
				assert.True(t, err == nil || ctx.Err() != nil, err)
			}
		})
	}
	defer others.Wait()
	defer stop()
	var ids []asyncflow.TaskID
	for range trees {
		ids = append(ids, f.submitOne(`1`))
	}
	for _, id := range ids {
		task := f.ended(id)
		assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
		assert.Equal(t, &asyncflow.Children{Total: shards, Succeeded: shards}, task.Children)
	}
	assert.Len(t, f.joined, trees)
}

// A parent goes on whatever happens to its children: one is retried, one is cancelled while it
// waits, one while it runs, and one is cancelled and redriven. The parent itself is submitted
// twice.
func TestEachEndOfAChildCounts(t *testing.T) {
	begun := make(chan int, 9)
	end, open := gate()
	f := startFamily(t, asyncflow.FanOut{Shards: 5,
		OnChildFailure: asyncflow.ChildFailure{Policy: asyncflow.AllSettled}},
		func(ctx context.Context,
			d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.Options.Child.Index != 4 && d.Lease.Attempt == 1 && d.Lease.Seq == 1 {
				begun <- d.Lease.Options.Child.Index
				<-end
			}
			if d.Lease.Options.Child.Index == 0 && d.Lease.Attempt == 1 {
				return asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500, Error: "again"}
			}
			return echo(ctx, d)
		})
	t.Cleanup(open)
	twice := []asyncflow.NewTask{{Type: "pipe", Context: json.RawMessage(`1`),
		Options: asyncflow.Options{Key: "k"}}}
	first, second := f.Submit(t.Context(), tenant, twice)[0],
		f.Submit(t.Context(), tenant, twice)[0]
	require.NoError(t, first.Err)
	require.NoError(t, second.Err)
	require.Equal(t, first.ID, second.ID)
	for range 4 {
		<-begun
	}
	children, err := f.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: first.ID, Limit: 9})
	require.NoError(t, err)
	byIndex := map[int]asyncflow.TaskID{}
	for _, c := range children {
		byIndex[c.Options.Child.Index] = c.ID
	}
	for _, index := range []int{2, 3} {
		_, err = f.Cancel(t.Context(), tenant, byIndex[index], "")
		require.NoError(t, err)
	}
	_, err = f.Redrive(t.Context(), tenant, byIndex[3], store.Redrive{})
	require.NoError(t, err)
	open()
	task := f.ended(first.ID)
	assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
	assert.Equal(t, &asyncflow.Children{Total: 5, Succeeded: 4, Cancelled: 1}, task.Children)
	assert.Equal(t, []string{
		`{"count":5,"succeeded":4,"failed":0,"cancelled":1,"results":[1,1,null,1,1]}`}, f.joined)
}

// A tree is cancelled after the first of its chunks: the others are never made.
func TestCancelWhileItSpawns(t *testing.T) {
	begun := make(chan struct{}, 2500)
	end, open := gate()
	f := startFamily(t, asyncflow.FanOut{Shards: 2500}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		begun <- struct{}{}
		<-end
		return done
	})
	t.Cleanup(open)
	step := f.byHand()
	id := f.submitOne(`1`)
	f.waits(id)
	step()
	<-begun
	_, err := f.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	open()
	f.children(id, func(c asyncflow.Children) bool {
		step()
		return resting(c) && c.Cancelled+c.Succeeded == 2500
	})
	made, err := f.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id, Limit: 2500})
	require.NoError(t, err)
	assert.Len(t, made, 1000)
	assert.Empty(t, f.joined)
}

// The roll is sealed between two chunks: the other children are in the next roll.
func TestRollBetweenChunks(t *testing.T) {
	f := startFamily(t, asyncflow.FanOut{Shards: 2500}, echo)
	step := f.byHand()
	id := f.submitOne(`7`)
	f.waits(id)
	step()
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	opened, err := f.OpenRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, opened)
	f.children(id, func(c asyncflow.Children) bool {
		step()
		return c.Succeeded == 2500
	})
	require.Equal(t, asyncflow.StatusSucceeded, f.ended(id).Status)
	children, err := f.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: id, Limit: 2500})
	require.NoError(t, err)
	inRoll, indexes := map[int]int{}, map[int]bool{}
	for _, c := range children {
		inRoll[c.ID.Position()]++
		indexes[c.Options.Child.Index] = true
	}
	assert.Equal(t, map[int]int{pipe.End: 1000, pipe.End + 1: 1500}, inRoll)
	assert.Len(t, indexes, 2500)
	require.Len(t, f.joined, 1)
	assert.NotContains(t, f.joined[0], "null")
	results, _, err := f.ChildResults(t.Context(), tenant, id, 2, 999, 2)
	require.NoError(t, err)
	assert.Equal(t, "7", string(results[1].Output))
}
