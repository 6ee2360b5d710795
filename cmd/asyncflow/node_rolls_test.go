package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// rollsFor is how long TestRollsUnderLoad submits in the long form, at full speed.
const rollsFor = time.Minute

// rollsBacklog is the number of waiting tasks at which submitters pause.
const rollsBacklog = 1000

// acknowledged are the ids of tasks after the answer to their submit.
type acknowledged struct {
	mu   sync.Mutex
	ids  map[string]bool
	took []time.Duration // by each call
}

// count returns how many there are.
func (a *acknowledged) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ids)
}

// percentile returns the time within which a share of the calls ended.
func (a *acknowledged) percentile(share float64) time.Duration {
	slices.Sort(a.took)
	return a.took[min(len(a.took)-1, int(share*float64(len(a.took))))]
}

// broadcast wakes all that wait for an event.
type broadcast struct {
	mu    sync.Mutex
	event chan struct{}
}

// next returns a channel that is closed at the next event.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.event == nil {
		b.event = make(chan struct{})
	}
	return b.event
}

// send is the event.
func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.event != nil {
		close(b.event)
		b.event = nil
	}
}

// submitUntil submits batches to a node until enough returns true, and records the answers. It
// ends when the node is gone. While plenty returns true it waits for the next delivery: the backlog
// at the end takes longer than all the rest.
func (a *acknowledged) submitUntil(
	ctx context.Context, c *client.Client, enough, plenty func() bool, deliveries *broadcast,
) {
	for !enough() {
		delivered := deliveries.next()
		if plenty() {
			<-delivered
			continue
		}
		tasks := make([]client.NewTask, 100)
		for i := range tasks {
			tasks[i] = client.NewTask{Type: "pipe", Context: fmt.Append(nil, i)}
			if i%10 == 0 {
				tasks[i].Delay = client.NewDuration(time.Second)
			}
		}
		start := time.Now()
		results, err := c.SubmitMany(ctx, tasks)
		if err != nil {
			return
		}
		a.mu.Lock()
		a.took = append(a.took, time.Since(start))
		for _, r := range results {
			if r.Err == nil {
				a.ids[r.Task.ID] = true
			}
		}
		a.mu.Unlock()
	}
}

// A type moves from shared tables to its own, which roll every 2,000 tasks, while two nodes
// dispatch at full speed and always get tasks (in the long form, they submit at full speed as
// well), and one of them is killed: no acknowledged task is lost, each is final, and nothing is
// left in an old roll.
func TestRollsUnderLoad(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	often := "--job=roll=@every 1s"
	a, b := startNode(t, url, often), startNode(t, url, often)
	var deliveries broadcast
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) { deliveries.send() })
	spec := briefStage()
	w.pipe(t, b.client(), spec)
	acked := &acknowledged{ids: map[string]bool{}}
	stats := func() client.Stats {
		all, err := b.client().Stats(t.Context(), "pipe")
		if !assert.NoError(t, err) {
			return client.Stats{}
		}
		return all[0]
	}
	begun := time.Now()
	past := func(share float64) bool { // of all that is submitted
		if longform.Asked() {
			return time.Since(begun).Seconds() >= share*rollsFor.Seconds()
		}
		return float64(stats().Rolls) >= share*3
	}
	var submitting sync.WaitGroup
	var moving, half sync.Once
	move := func() { // it asks for tables of its own
		spec.RollRows = 2000
		_, err := b.client().PutTaskType(t.Context(), "pipe", spec)
		assert.NoError(t, err)
	}
	for _, node := range []*process{a, b} {
		submitting.Go(func() {
			acked.submitUntil(t.Context(), node.client(), func() bool {
				if acked.count() >= 500 {
					moving.Do(move)
				}
				if past(0.5) {
					half.Do(a.kill)
				}
				return past(1)
			}, func() bool { return !longform.Asked() && stats().Pending > rollsBacklog },
				&deliveries)
		})
	}
	submitting.Wait()
	require.Eventually(t, func() bool {
		s := stats()
		return s.Waiting+s.Pending+s.Running == 0
	}, patience, 200*time.Millisecond, "everything drains")
	final := stats()
	assert.GreaterOrEqual(t, final.Rolls, 2, "it has rolled")
	assert.GreaterOrEqual(t, final.Succeeded, int64(len(acked.ids)))
	assert.Zero(t, final.Failed+final.Cancelled)
	delivered := map[string]bool{}
	for _, d := range w.deliveries() {
		delivered[d.ID] = true
	}
	for id := range acked.ids {
		assert.True(t, delivered[id], "%s was acknowledged and never delivered", id)
	}
	assert.EqualValues(t, final.Succeeded, len(delivered),
		"final and never acknowledged: what was on its way when its node was killed")
	requireOldRollsEmpty(t, url)
	t.Logf("%d tasks, %d acknowledged, %d rolls; submits of 100: p50 %v, p99 %v, at most %v",
		final.Succeeded, len(acked.ids), final.Rolls,
		acked.percentile(0.5), acked.percentile(0.99), acked.percentile(1))
}

// requireOldRollsEmpty checks that no rows are left in sealed tables.
func requireOldRollsEmpty(t *testing.T, url string) {
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(),
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid
			= c.relnamespace
		WHERE c.relname LIKE 'ready_pipe_%' AND c.relkind = 'r'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	assert.LessOrEqual(t, len(tables), 3, "earlier ones are dropped, but for one on its way")
	for _, table := range tables {
		var n int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
		assert.Zero(t, n, table)
	}
}
