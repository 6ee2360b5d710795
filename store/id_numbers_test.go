package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A type that is created again uses other ids: an id, and its completion tokens, never name another
// task.
func TestIDsNeverComeBack(t *testing.T) {
	b := setup(t)
	far := open(t, b.url, "node-2")
	seen := map[asyncflow.TaskID]bool{}
	for range 3 {
		pipe := b.put(twoStages())
		require.NoError(t, far.Catalog.Refresh(t.Context()))
		for _, node := range []*bundle{b, far} {
			r := node.submit(newTask(`1`))[0]
			assert.False(t, seen[r.ID], "%s was another task", r.ID)
			seen[r.ID] = true
			task, err := b.Task(t.Context(), tenant, r.ID)
			require.NoError(t, err)
			assert.Equal(t, asyncflow.StatusPending, task.Status)
			list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
			require.NoError(t, err)
			assert.NotEmpty(t, list)
		}
		settled := 0
		eventually(t, "both are due: the nodes' offsets to the clock may differ by some "+
			"microseconds",
			func() bool {
				for _, l := range b.lease(pipe, 10) {
					b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
					settled++
				}
				return settled == 2
			})
		require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	}
	for id := range seen {
		_, err := b.Task(t.Context(), tenant, id)
		assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
}

// A delete must see a task that is moving from ready to lease.
func TestDeleteWhileLeasing(t *testing.T) {
	b := setup(t)
	far := open(t, b.url, "node-2")
	for range longform.Size(5, 60) {
		b.put(twoStages())
		require.NoError(t, far.Catalog.Refresh(t.Context()))
		pipe, err := far.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		id := b.submit(newTask(`1`))[0].ID
		leased := make(chan []asyncflow.Lease, 1)
		go func() {
			// it may wait for a lock, but must not lose the task
			leases, _, _ := far.Lease(context.Background(), pipe, 5)
			leased <- leases
		}()
		err = b.DeleteTaskType(t.Context(), tenant, "pipe", false)
		require.Contains(t, []asyncflow.Code{asyncflow.CodeConflict, asyncflow.CodeUnavailable},
			asyncflow.CodeOf(err), "%v", err)
		leases := receive(t, leased)
		eventually(t, "it is due", func() bool {
			if len(leases) == 0 {
				leases = b.lease(pipe, 5)
			}
			return len(leases) == 1
		})
		require.Equal(t, id, leases[0].ID)
		b.settle(pipe, leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	}
}

// After a crash of Postgres between the allotment of a number and the insert, no other node
// gets the same number: both tasks are kept.
func TestNumbersSurviveACrash(t *testing.T) {
	t.Parallel()
	pg := pgtest.Server(t, devpg.Config{Durable: true})
	require.NoError(t, pg.EnsureDatabase(t.Context(), "asyncflow"))
	url := pg.URL("asyncflow")
	require.NoError(t, prepare(t.Context(), url))
	b, far := open(t, url, "node-1"), open(t, url, "node-2")
	b.put(twoStages())
	require.NoError(t, far.Catalog.Refresh(t.Context()))
	for range 3 {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `BEGIN; LOCK TABLE tenant_acme.task_1 IN SHARE MODE`)
		require.NoError(t, err)
		var before, now int64
		next := func(n *int64) { // the allotted numbers
			require.NoError(t,
				conn.QueryRow(t.Context(), `SELECT next_number FROM tenant_acme.rolls`).Scan(n))
		}
		next(&before)
		waiting := make(chan []store.Submitted, 1)
		go func() {
			waiting <- b.Submit(context.Background(), tenant,
				[]asyncflow.NewTask{newTask(`"waiting"`)})
		}()
		eventually(t, "the number is taken, and the insert waits",
			func() bool { next(&now); return now > before })
		require.NoError(t, pg.Kill())
		pg = pgtest.Server(t, pg.Config())
		var other store.Submitted
		eventually(t, "the other node goes on", func() bool {
			other = far.Submit(context.Background(), tenant,
				[]asyncflow.NewTask{newTask(`"other"`)})[0]
			return other.Err == nil
		})
		for want, r := range map[string]store.Submitted{`"waiting"`: (<-waiting)[0],
			`"other"`: other} {
			if r.Err != nil {
				continue // not acknowledged
			}
			var task store.Task
			eventually(t, "connections of before the crash are gone", func() bool {
				var err error
				task, err = far.Task(context.Background(), tenant, r.ID)
				return err == nil
			})
			assert.Equal(t, want, string(task.Context), "%s", r.ID)
		}
		far.expireBlock(b)
	}
}

// expireBlock makes all nodes take new blocks of numbers.
func (b *bundle) expireBlock(others ...*bundle) {
	for _, node := range append(others, b) {
		node.ForgetNumbers()
	}
}
