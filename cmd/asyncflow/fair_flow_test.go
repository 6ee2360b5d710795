package main

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// fairDeliveries are the flow keys of tasks, in the order in which they were delivered first: the
// context of each task is its key.
func (w *worker) fairDeliveries() (keys []string) {
	seen := map[string]bool{}
	for _, d := range w.deliveries() {
		if !seen[d.ID] {
			keys = append(keys, strings.Trim(string(d.Context), `"`))
		}
		seen[d.ID] = true
	}
	return keys
}

// The turns of flow keys outlast the only node, which is killed amid them: the next one goes on
// with them, and no key waits for longer than its turn. Until then the commands say which key is
// next in turn, and which keys come with the most tasks.
func TestTurnsSurviveAKill(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	const most = 40 // tasks of a key with the weight 1
	url := database(t)
	first := startNode(t, url)
	c := first.client()
	begin, amid := make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	w := startWorker(t, func(rw http.ResponseWriter, r *http.Request, _ delivery) {
		<-begin
		if sent.Add(1) == 2*most { // its node is killed now
			close(amid)
			<-r.Context().Done()
			return
		}
		answer(rw, 200, map[string]any{})
	})
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "only",
		Timeout: asyncflow.NewDuration(2 * time.Second)}}, MaxInFlight: 1,
		Flow: &asyncflow.Flow{Fair: asyncflow.FairKeyFirst, Weights: map[string]int{"gold": 3}}})
	_, err := c.PauseTaskType(t.Context(), "pipe", "")
	require.NoError(t, err)
	var last string
	for _, key := range []string{"big", "gold", "small"} {
		tasks := make([]client.NewTask, most)
		if key == "gold" {
			tasks = make([]client.NewTask, 3*most)
		}
		for i := range tasks {
			tasks[i] = client.NewTask{Type: "pipe", Context: client.JSON(`"` + key + `"`),
				FlowKey: key}
		}
		results, err := c.SubmitMany(t.Context(), tasks)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
			last = r.Task.ID
		}
	}
	_, err = c.ResumeTaskType(t.Context(), "pipe", 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(w.deliveries()) == 1 }, patience,
		20*time.Millisecond)
	env := map[string]string{"ASYNCFLOW_URL": first.url, "ASYNCFLOW_TOKEN": testToken(t)}
	r := runCLI(t, env, "stats", "--type", "pipe")
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "pipe: flow key gold: 120 due\n")
	assert.Contains(t, r.stdout, "pipe: flow key small: 40 due\n")
	task, err := c.Get(t.Context(), last)
	require.NoError(t, err)
	assert.Equal(t, `It is the turn of the flow key "gold"; then it is that of its own.`,
		task.WaitsBecause, "it waits for %s", task.WaitsFor)

	close(begin)
	select {
	case <-amid:
	case <-time.After(patience):
		require.Fail(t, "the tasks are not delivered")
	}
	first.kill()
	second := startNode(t, url).client()
	require.Eventually(t, func() bool {
		stats, err := second.Stats(t.Context(), "pipe")
		return err == nil && stats[0].Succeeded == 5*most
	}, patience, 20*time.Millisecond)
	keys := w.fairDeliveries()
	require.Len(t, keys, 5*most)
	count := map[string]int{}
	for i, key := range keys {
		count[key]++
		turns := []int{count["big"], (count["gold"] + 2) / 3, count["small"]}
		// The task that the killed node had may have been delivered by neither, or late.
		require.LessOrEqual(t, max(turns[0], turns[1], turns[2])-min(turns[0], turns[1], turns[2]),
			2, "after %d of %v", i+1, keys)
	}
}
