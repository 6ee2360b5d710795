package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// waiting is a stage that waits for a signal.
func waiting(name string) asyncflow.Stage {
	return asyncflow.Stage{Name: name, Mode: asyncflow.ModeWait, Wait: &asyncflow.Wait{
		Signal: "approved", Timeout: asyncflow.NewDuration(time.Hour)}}
}

// The first, a middle and the last stage may wait for a signal.
func TestStagesThatWait(t *testing.T) {
	b := setup(t)
	contexts := make(chan string, 1)
	n := b.start("a", dispatcher.Config{}, func(_ context.Context,
		d asyncflow.Delivery) asyncflow.Outcome {
		contexts <- string(d.Lease.Context)
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200,
			Output: json.RawMessage(`"worker"`)}
	})
	n.put(t, func(pipe *asyncflow.TaskType) {
		pipe.Stages = []asyncflow.Stage{waiting("one"), pipe.Stages[0], waiting("two"),
			pipe.Stages[1], waiting("three")}
	})
	id := n.submit(t, 1)[0].ID
	for i, stage := range []string{"one", "two", "three"} {
		require.Eventually(t, func() bool {
			task, err := n.Task(t.Context(), tenant, id)
			require.NoError(t, err)
			return task.WaitsFor == asyncflow.WaitSignal && task.Stage == stage
		}, patience, time.Millisecond)
		_, err := n.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
			Task: id.String(), Data: json.RawMessage(fmt.Sprint(i))})
		require.NoError(t, err)
		if i < 2 {
			require.Equal(t, fmt.Sprint(i), <-contexts)
		}
	}
	task, err := n.AwaitFinal(t.Context(), tenant, id, patience)
	require.NoError(t, err)
	require.Equal(t, []string{"succeeded", "2"}, []string{string(task.Status), string(task.Result)})
}

// A wait under limits: it needs neither capacity at an endpoint nor an endpoint.
func TestALimitedTypeWaits(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(context.Context,
		asyncflow.Delivery) asyncflow.Outcome {
		return done
	})
	n.put(t, func(pipe *asyncflow.TaskType) {
		pipe.Stages = append([]asyncflow.Stage{waiting("one")}, pipe.Stages...)
		pipe.MaxInFlight = 1
	})
	tasks := n.submit(t, 3)
	for _, r := range tasks {
		n.waitsFor(t, r.ID, asyncflow.WaitSignal)
	}
	for _, r := range tasks {
		_, err := n.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
			Task: r.ID.String()})
		require.NoError(t, err)
	}
	n.await(t, tasks, asyncflow.StatusSucceeded)
}

// Signals come before, while and after their tasks wait, from nodes that die after their commit, or
// don't hear of it and send the signal again. None is lost, none counts twice, and each task gets
// its two in order.
func TestSignalsMeetWaits(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done }
	n := b.start("a", dispatcher.Config{}, send)
	mortal := b.start("b", dispatcher.Config{}, send)
	n.put(t, func(pipe *asyncflow.TaskType) {
		pipe.Stages = []asyncflow.Stage{waiting("one"), waiting("two")}
	}, mortal)
	dead := b.open(store.Config{Node: "dead"}) // it commits, and follows nothing up
	dead.Committer.Close()
	stop := make(chan struct{})
	var sweeping, sending sync.WaitGroup
	sweeping.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _, err := n.SweepFollowUps(context.Background(), tenant)
				if asyncflow.CodeOf(err) != asyncflow.CodeUnavailable { // the next one sweeps again
					assert.NoError(t, err)
				}
			}
		}
	})
	began := time.Now()
	count := longform.Size(400, 100_000) / 2
	ids := make([]asyncflow.TaskID, count)
	slots := make(chan struct{}, 16)
	for i := range count {
		if i == count/2 {
			mortal.stop()
		}
		slots <- struct{}{}
		sending.Go(func() {
			defer func() { <-slots }()
			ids[i] = raceOne(t, n, dead, i)
		})
	}
	sending.Wait()
	lost, doubled := 0, 0
	for i, id := range ids {
		task, err := n.AwaitFinal(t.Context(), tenant, id, patience)
		require.NoError(t, err)
		attempts, err := n.Attempts(t.Context(), tenant, id)
		require.NoError(t, err)
		var got []string
		for _, a := range attempts {
			if a.Outcome == asyncflow.OutcomeSignalled {
				got = append(got, string(a.Output))
			}
		}
		switch {
		case task.Status != asyncflow.StatusSucceeded:
			lost++
		case fmt.Sprint(got) != fmt.Sprintf(`["%d.0" "%d.1"]`, i, i):
			doubled++
			t.Log(id, got)
		}
	}
	close(stop)
	sweeping.Wait()
	t.Logf("%d signals met their waits in %s: %d lost, %d doubled", 2*count,
		time.Since(began).Round(time.Second), lost, doubled)
	require.Equal(t, []int{0, 0}, []int{lost, doubled}, "lost and doubled of %d", count)
}

// raceOne submits a task and sends it two signals, at any time, in order.
func raceOne(t *testing.T, n, dead *node, i int) (id asyncflow.TaskID) {
	key := fmt.Sprint("k", i)
	submit := func() {
		task := asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(`0`),
			Options: asyncflow.Options{Key: key}}
		for { // its key makes it one task, however often a busy database doesn't answer
			r := n.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
			code := asyncflow.CodeOf(r.Err)
			if code == asyncflow.CodeUnavailable || code == asyncflow.CodeUncertain {
				continue
			}
			assert.NoError(t, r.Err)
			id = r.ID
			return
		}
	}
	at := rand.IntN(3) // before, between or beside the signals
	if at == 0 {
		submit()
	}
	var beside sync.WaitGroup
	for k := range 2 {
		if at == 1 && k == 1 || at == 2 && k == 0 {
			beside.Go(submit)
		}
		signal := asyncflow.Signal{Name: "approved", Type: "pipe", Key: key,
			Data:           json.RawMessage(fmt.Sprintf(`"%d.%d"`, i, k)),
			IdempotencyKey: fmt.Sprint(key, ".", k)}
		from := n
		if rand.IntN(2) == 0 {
			from = dead
		}
		for sent := false; !sent; {
			ctx := t.Context()
			cancel := func() {}
			if rand.IntN(4) == 0 { // its caller may not hear the answer
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(3_000_000)))
			}
			_, err := from.SendSignal(ctx, tenant, signal)
			cancel()
			sent = err == nil
		}
	}
	beside.Wait()
	return id
}
