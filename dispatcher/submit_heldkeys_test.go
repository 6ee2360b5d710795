package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// holdKeys locks keys by SQL, in an open transaction.
func (w *writer) holdKeys(n int) pgx.Tx {
	w.t.Helper()
	tx, err := w.db.Begin(w.t.Context())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	for i := range n {
		_, err := tx.Exec(w.t.Context(), `SELECT tenant_acme.submit_task('pipe', '1', key => $1)`,
			fmt.Sprintf("held-%d", i))
		require.NoError(w.t, err)
	}
	return tx
}

// holdCopies makes a transaction of holdKeys(1) hold the keys up to held-n, too. Citus writes wrong
// SQL for an INSERT that reads the table itself.
func (w *writer) holdCopies(tx pgx.Tx, n int) {
	w.t.Helper()
	var of string
	var id int64
	var hash []byte
	var expires time.Time
	require.NoError(w.t, tx.QueryRow(w.t.Context(), `SELECT type, id, hash, expires_at
		FROM tenant_acme.idempotency_keys`).Scan(&of, &id, &hash, &expires))
	_, err := tx.Exec(w.t.Context(), `INSERT INTO tenant_acme.idempotency_keys
			(type, key, id, hash, expires_at)
		SELECT $1::text, 'held-' || n, $2::bigint, $3::bytea, $4::timestamptz
		FROM generate_series(1, $5::int) n`, of, id, hash, expires, n)
	require.NoError(w.t, err)
}

func (w *writer) submitKey(key string) store.Submitted {
	return w.Submit(context.Background(), tenant, []asyncflow.NewTask{withKey(key, `1`)})[0]
}

// lockWaits returns how many of the node's statements are waiting for a lock for a while.
func (w *writer) lockWaits() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), `
		SELECT count(*) FROM `+pgtest.Activity()+` WHERE datname = current_database()
		AND application_name = 'asyncflow' AND wait_event_type = 'Lock'
		AND clock_timestamp() - query_start > interval '100 ms'`).Scan(&n))
	return n
}

// While callers repeat keys that an open transaction locks, no batch waits for them, so that
// submits with other keys don't wait either.
func TestHeldKeysStallNobody(t *testing.T) {
	longform.Costly(t)
	w := setupWriter(t)
	w.put(writerType())
	w.holdKeys(2)
	var refused atomic.Int64
	over := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 2 {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				assert.Equal(t, asyncflow.CodeUnavailable,
					asyncflow.CodeOf(w.submitKey(fmt.Sprintf("held-%d", i)).Err))
				refused.Add(1)
			}
		})
	}
	for refused.Load() == 0 { // as they are repeating by now
		require.NoError(t, w.submitKey("before").Err)
	}
	const others = 60
	waits := 0
	for i := range others {
		require.NoError(t, w.submitKey(fmt.Sprintf("other-%d", i)).Err)
		if w.lockWaits() > 0 {
			waits++
		}
	}
	assert.Less(t, waits, others/4, "much of the time a batch waited for a key")
	close(over)
	callers.Wait()
}

// Many locked keys in one batch with others wait apart, and are answered when they are free.
func TestHeldKeysAreAnsweredWhenFree(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	const held = 30 // three times as many as are claimed at once
	tx := w.holdKeys(held)
	var tasks []asyncflow.NewTask
	for i := range held {
		tasks = append(tasks, withKey(fmt.Sprintf("held-%d", i), `1`),
			withKey(fmt.Sprintf("free-%d", i), `1`))
	}
	free := make(chan []store.Submitted, 1)
	go func() {
		got := w.Submit(context.Background(), tenant, tasks)
		for i := 1; i < len(got); i += 2 {
			for got[i].Err != nil { // it took too long, on a busy machine
				got[i] = w.Submit(context.Background(), tenant, tasks[i:i+1])[0]
			}
		}
		free <- got
	}()
	eventually(t, "the others are written", func() bool {
		var n int
		require.NoError(t, w.db.QueryRow(t.Context(),
			`SELECT count(*) FROM tenant_acme.idempotency_keys WHERE key LIKE 'free-%'`).Scan(&n))
		return n == held
	})
	require.NoError(t, tx.Commit(t.Context()))
	for i, r := range <-free {
		if i%2 == 0 && r.Err != nil { // too late
			assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err))
			continue
		}
		assert.NoError(t, r.Err)
		if i%2 == 0 {
			assert.True(t, r.Existing)
		}
	}
	eventually(t, "nothing waits", func() bool { return w.HeldKeys() == 0 })
}

// An open transaction locks many keys. Tasks with other keys are submitted, in a few tries, and
// none of them is refused for these keys.
func TestFreeKeysAmongManyHeldOnes(t *testing.T) {
	w := setupWriter(t)
	w.SetHeldPatience(0)
	w.put(writerType())
	const held, free = 100, 30
	tx := w.holdKeys(1)
	w.holdCopies(tx, held-1)
	var tasks []asyncflow.NewTask
	for i := range held {
		tasks = append(tasks, withKey(fmt.Sprintf("held-%d", i), `1`))
	}
	for i := range free {
		tasks = append(tasks, withKey(fmt.Sprintf("free-%d", i), `1`))
	}
	for i, r := range w.Submit(context.Background(), tenant, tasks) {
		if i >= held {
			assert.NoError(t, r.Err, "task %d", i)
			continue
		}
		assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err))
	}
}

// A batch takes its keys in their order, whatever the order of its tasks: so of two batches with
// the same keys one waits for the other, and neither waits for a key of the one that waits.
func TestKeysAreTakenInOrder(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	tasks := tasksWithKeys(200)
	slices.Reverse(tasks)
	for _, r := range w.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	rows, err := w.db.Query(t.Context(), `
		SELECT array_agg(key ORDER BY ctid) FROM tenant_acme.idempotency_keys GROUP BY xmin::text`)
	require.NoError(t, err)
	batches, err := pgx.CollectRows(rows, pgx.RowTo[[]string]) // as they were inserted
	require.NoError(t, err)
	require.Less(t, len(batches), len(tasks))
	for _, keys := range batches {
		require.IsIncreasing(t, keys)
	}
}

// tasksWithKeys returns n tasks with the keys 000, 001 and so on, which come before those of
// holdKeys.
func tasksWithKeys(n int) []asyncflow.NewTask {
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = withKey(fmt.Sprintf("%03d", i), `1`)
	}
	return tasks
}

// Batches with the same keys in opposite orders, over two nodes, wait for each other: each key gets
// one task. No item is refused but those with keys in a stranger's open transaction, also on a
// machine that is so busy that the time to wait is over at once.
func TestBatchesOfTheSameKeys(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, c := range map[string]struct {
		held int // keys of the stranger
		busy bool
	}{"alone": {}, "on a busy machine": {busy: true}, "beside a stranger": {held: 5}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t, prepareWriter)
			nodes := []*writer{openWriter(t, url, "node-1"), openWriter(t, url, "node-2")}
			nodes[0].put(writerType())
			nodes[0].holdKeys(c.held)
			if c.busy {
				nodes[0].SetHeldPatience(0)
				nodes[1].SetHeldPatience(0)
			}
			batches, keys := longform.Size(16, 30), 200
			tasks := tasksWithKeys(keys)
			for i := range c.held {
				tasks = append(tasks, withKey(fmt.Sprintf("held-%d", i), `1`))
			}
			made, refused := submitBothWays(nodes, batches, tasks)
			assert.Len(t, made, keys)
			for key, ids := range made {
				assert.Len(t, ids, 1, key)
			}
			assert.Len(t, refused, c.held, "%v", refused)
			for key, n := range refused {
				assert.Contains(t, key, "held-")
				assert.Equal(t, batches, n, key)
			}
		})
	}
}

// submitBothWays submits the tasks in batches at once, every other batch in the opposite order and
// to the second node. It returns the ids of the tasks of each key, and how many items with the key
// were refused because another transaction holds it.
func submitBothWays(
	nodes []*writer, batches int, tasks []asyncflow.NewTask,
) (made map[string]map[asyncflow.TaskID]bool, refused map[string]int) {
	made, refused = map[string]map[asyncflow.TaskID]bool{}, map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range batches {
		batch := slices.Clone(tasks)
		if n%2 == 1 {
			slices.Reverse(batch)
		}
		all.Go(func() {
			results := nodes[n%2].Submit(context.Background(), tenant, batch)
			for i := range results {
				for began := time.Now(); isUnanswered(results[i].Err) &&
					time.Since(began) < patience; {
					results[i] = nodes[n%2].Submit(context.Background(), tenant, batch[i:i+1])[0]
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i, r := range results {
				key := batch[i].Options.Key
				switch {
				case r.Err != nil:
					refused[key]++
				case made[key] == nil:
					made[key] = map[asyncflow.TaskID]bool{r.ID: true}
				default:
					made[key][r.ID] = true
				}
			}
		})
	}
	all.Wait()
	return made, refused
}

// isUnanswered reports whether a submit failed because the machine was too busy to write it in
// time. A client tries again.
func isUnanswered(err error) bool {
	busy := []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeUncertain}
	return slices.Contains(busy, asyncflow.CodeOf(err)) &&
		!strings.Contains(err.Error(), "another submit with this key is under way")
}

// A submit is tried several times, with a pause before each, even if its time is over at once.
func TestHeldKeysAreTriedInAnyCase(t *testing.T) {
	w := setupWriter(t)
	w.SetHeldPatience(0)
	w.put(writerType())
	w.holdKeys(1)
	began := time.Now()
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(w.submitKey("held-0").Err))
	require.GreaterOrEqual(t, time.Since(began), dispatcher.LeastTries*dispatcher.HeldPause)
}

// Many batches with keys that one transaction locks for a moment wait for it.
func TestBatchesWaitForAMoment(t *testing.T) {
	longform.Costly(t)
	w := setupWriter(t)
	w.SetHeldPatience(patience)
	w.put(writerType())
	const batches, keys = 10, 100
	tx := w.holdKeys(keys)
	tasks := make([]asyncflow.NewTask, keys)
	for i := range tasks {
		tasks[i] = withKey(fmt.Sprintf("held-%d", i), `1`)
	}
	var all sync.WaitGroup
	for range batches {
		all.Go(func() {
			for _, r := range w.Submit(context.Background(), tenant, tasks) {
				assert.NoError(t, r.Err)
				assert.True(t, r.Existing)
			}
		})
	}
	eventually(t, "all wait", func() bool { return w.HeldKeys() == batches*keys })
	require.NoError(t, tx.Commit(t.Context()))
	all.Wait()
}

// The submits that wait for keys are bounded by number and by bytes. More are refused at once.
func TestHeldKeysAreBounded(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	tx := w.holdKeys(1)
	w.holdCopies(tx, 2*dispatcher.HeldMost-1)
	var most atomic.Int64
	var callers sync.WaitGroup
	for n := range 4 {
		callers.Go(func() {
			tasks := make([]asyncflow.NewTask, dispatcher.HeldMost/2)
			for i := range tasks {
				tasks[i] = withKey(fmt.Sprintf("held-%d", n*len(tasks)+i), `1`)
			}
			for _, r := range w.Submit(context.Background(), tenant, tasks) {
				// a busy machine may leave a batch that was tried without an answer
				assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable,
					asyncflow.CodeUncertain}, asyncflow.CodeOf(r.Err))
			}
			most.Store(max(most.Load(), int64(w.HeldKeys())))
		})
	}
	eventually(t, "some wait", func() bool { return w.HeldKeys() > 0 })
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for held := w.HeldKeys(); held > 0; held = w.HeldKeys() {
		require.LessOrEqual(t, held, dispatcher.HeldMost)
		<-pause.C
	}
	callers.Wait()
	assert.LessOrEqual(t, most.Load(), int64(dispatcher.HeldMost))
}

// Submits with locked keys are answered in time even if the database stops answering while they
// wait, and so are later submits with the same keys.
func TestHeldKeysOfASilentDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepareWriter)
	network, through := pgtest.Behind(t, url)
	w := openWriter(t, through, "node-1")
	w.put(writerType())
	direct := openWriter(t, url, "node-2")
	tx := direct.holdKeys(5)
	results := make(chan store.Submitted, 20)
	var late sync.WaitGroup
	submit := func(i int) {
		late.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), dispatcher.SubmitPatience)
			defer cancel()
			began := time.Now()
			results <- w.Submit(ctx, tenant, []asyncflow.NewTask{withKey("held-"+strconv.Itoa(i%5),
				`1`)})[0]
			assert.Less(t, time.Since(began), dispatcher.SubmitPatience+patience)
		})
	}
	for i := range 10 {
		submit(i)
	}
	eventually(t, "some wait", func() bool { return w.HeldKeys() > 0 })
	network.Silence()
	for i := range 10 {
		submit(i)
	}
	late.Wait()
	for range 20 {
		assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeUncertain},
			asyncflow.CodeOf((<-results).Err))
	}
	network.Heal()
	eventually(t, "nothing waits", func() bool { return w.HeldKeys() == 0 })
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, "the keys are answered", func() bool {
		for i := range 5 {
			r := w.submitKey("held-" + strconv.Itoa(i))
			if r.Err != nil {
				return false
			}
			assert.True(t, r.Existing)
		}
		return true
	})
	w.checkTokens()
}

// Of the submits of a call with one key the first one takes it, whichever batch is written first,
// and also if it was held for a while.
func TestKeysOfACallKeepTheirOrder(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	tx := w.holdKeys(1) // the batch with the first submit waits for it for a moment
	tasks := []asyncflow.NewTask{withKey("held-0", `0`), withKey("k", `1`)}
	for i := range 600 {
		tasks = append(tasks, withKey(fmt.Sprintf("n-%d", i), `1`))
	}
	tasks = append(tasks, withKey("k", `1`), withKey("k", `1`))
	got := w.Submit(context.Background(), tenant, tasks)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(got[0].Err))
	assert.False(t, got[1].Existing)
	for _, later := range got[602:] {
		require.NoError(t, later.Err)
		assert.Equal(t, []any{got[1].ID, true}, []any{later.ID, later.Existing})
	}

	require.NoError(t, tx.Rollback(t.Context()))
	w.SetHeldPatience(time.Minute)
	tx = w.holdKeys(2)
	both := make(chan []store.Submitted, 1)
	go func() {
		both <- w.Submit(context.Background(), tenant, []asyncflow.NewTask{
			withKey("held-1", `1`), withKey("held-1", `1`), withKey("held-1", `1`)})
	}()
	require.NoError(t, tx.Rollback(t.Context()))
	got = <-both
	for i, r := range got {
		require.NoError(t, r.Err)
		assert.Equal(t, []any{got[0].ID, i > 0}, []any{r.ID, r.Existing})
	}
}
