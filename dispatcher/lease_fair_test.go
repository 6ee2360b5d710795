package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
)

const (
	sharedKeys  = 1000
	sharedTurns = 10 // so that one turn is a tenth of a share
	heavyKeys   = 10 // with many more tasks than the others, and submitted first
	goldenKey   = 700
)

func sharedKey(i int) string { return fmt.Sprintf("key-%04d", i) }

// Of 1,000 keys with due tasks, some with many more than others, each got its share after ten
// turns, give or take a turn, on one node and on three that deliver at once.
func TestFairSharesOfNodes(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			if nodes > 1 {
				longform.Costly(t)
			}
			fairSharesOfNodes(t, nodes)
		})
	}
}

func fairSharesOfNodes(t *testing.T, nodes int) {
	b := setup(t)
	end, open := gate()
	defer open() // before the nodes are stopped
	var sent atomic.Int64
	enough := make(chan struct{})
	reached := sync.OnceFunc(func() { close(enough) })
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		if sent.Add(1) > sharedKeys*sharedTurns { // so that no key uses up its tasks
			reached()
			<-end
		}
		return done
	}
	var all []*node
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		all = append(all, b.start(name, dispatcher.Config{Concurrency: 100}, send))
	}
	one := all[0]
	one.put(t, func(t *asyncflow.TaskType) {
		t.Stages = t.Stages[:1]
		t.Flow = &asyncflow.Flow{Fair: asyncflow.FairKeyFirst,
			Weights: map[string]int{sharedKey(goldenKey): 3}}
	}, all...)
	one.Pause(t, "pipe")
	for _, n := range all {
		require.Eventually(t, func() bool {
			pipe, err := n.Catalog.Type(tenant, "pipe")
			return err == nil && pipe.Paused()
		}, patience, 20*time.Millisecond)
	}
	had := submitShared(t, one)
	_, err := one.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	select {
	case <-enough:
	case <-time.After(patience):
		require.Fail(t, "the tasks are not delivered", "%d are", sent.Load())
	}
	sharesAreFair(t, b.url, had)
}

// submitShared submits tasks of all keys. It returns the number of each key's.
func submitShared(t *testing.T, n *node) map[string]int {
	t.Helper()
	had := map[string]int{}
	var tasks []asyncflow.NewTask
	add := func(i, count int) {
		had[sharedKey(i)] += count
		for range count {
			tasks = append(tasks, asyncflow.NewTask{Type: "pipe", Context: []byte(`1`),
				Options: asyncflow.Options{FlowKey: sharedKey(i)}})
		}
	}
	for i := range heavyKeys {
		add(i, 300)
	}
	for i := range sharedKeys {
		add(i, sharedTurns+5)
	}
	add(goldenKey, 2*(sharedTurns+5))
	for len(tasks) > 0 {
		batch := tasks[:min(1000, len(tasks))]
		tasks = tasks[len(batch):]
		for _, r := range n.Submit(t.Context(), tenant, batch) {
			require.NoError(t, r.Err)
		}
	}
	return had
}

// sharesAreFair compares how many tasks of each key were leased at one moment.
func sharesAreFair(t *testing.T, url string, had map[string]int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	// Nodes without capacity file tasks.
	rows, err := conn.Query(t.Context(), `SELECT key, count(*) FROM (SELECT key FROM `+ready+`
		UNION ALL SELECT key FROM tenant_acme.wait) due GROUP BY key`)
	require.NoError(t, err)
	least, most, sum := 1<<30, 0, 0
	var key string
	var left int
	n := 0
	count := map[int]int{} // of keys by their turns
	_, err = pgx.ForEachRow(rows, []any{&key, &left}, func() error {
		n++
		turns := had[key] - left
		sum += turns
		if key == sharedKey(goldenKey) {
			turns = (turns + 2) / 3
		}
		least, most = min(least, turns), max(most, turns)
		count[turns]++
		return nil
	})
	require.NoError(t, err)
	t.Log("turns:", least, "to", most, "leased:", sum, "keys:", count)
	require.Equal(t, sharedKeys, n, "each key has tasks left")
	require.GreaterOrEqual(t, least, sharedTurns-1)
	require.LessOrEqual(t, most-least, 1)
}
