package store_test

import (
	"context"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// warm uses all connections, so that each is open and then idle, and returns leases.
func (b *bundle) warm(t *store.Type) []asyncflow.Lease {
	b.t.Helper()
	for i := range 20 {
		b.submit(newTask(strconv.Itoa(i)))
	}
	leases := b.lease(t, 20)
	require.Len(b.t, leases, 20)
	return leases
}

// everythingWorks checks that the store answers whatever happened to its connections: it
// repeats durable writes, so callers don't notice.
func (b *bundle) everythingWorks(t *store.Type, leases []asyncflow.Lease) {
	b.t.Helper()
	// A submit may take 10 s.
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	result := b.Submit(ctx, tenant, []asyncflow.NewTask{newTask(`"again"`)})[0]
	assert.NoError(b.t, result.Err)
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	for _, l := range leases {
		assert.NoError(b.t, b.settle(t, l, done).Err)
	}
	assert.NoError(b.t, b.Ping(b.t.Context()))
	b.checkTokens("pipe")
}

// A firewall forgets the connections of a node. Each would be silent until the system gives it
// up, which takes minutes or forever.
func TestForgottenConnections(t *testing.T) {
	t.Parallel()
	network, url := pgtest.Behind(t, pgtest.Database(t, prepare))
	b := open(t, url, "node-1")
	pipe := b.put(twoStages())
	leases := b.warm(pipe)
	network.Forget()
	began := time.Now()
	eventually(t, "a job", func() bool {
		_, err := b.Rescue(t.Context(), pipe)
		return err == nil
	})
	assert.Less(t, time.Since(began), 40*time.Second, "a lease that runs out waits for it")
	network.Forget() // in the middle of whatever is under way
	b.everythingWorks(pipe, leases)
}

// While the database is silent, callers get an error in time.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	network, through := pgtest.Behind(t, url)
	b := open(t, through, "node-1")
	pipe := b.put(twoStages())
	leases := b.warm(pipe)
	network.Silence()
	id := leases[0].ID
	calls := map[string]func() error{
		"read": func() error {
			_, err := b.Task(t.Context(), tenant, id)
			return err
		},
		"job": func() error {
			_, err := b.Rescue(t.Context(), pipe)
			return err
		},
		"lease": func() error {
			_, _, err := b.Lease(t.Context(), pipe, 1)
			return err
		},
		"ping":  func() error { return b.Ping(t.Context()) },
		"clock": func() error { return b.RefreshClock(t.Context()) },
		"submit": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), store.SubmitPatience)
			defer cancel()
			return b.Submit(ctx, tenant, []asyncflow.NewTask{newTask(`1`)})[0].Err
		},
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			for range 2 { // over a connection that was open, and over a new one
				began := time.Now()
				code := asyncflow.CodeOf(call())
				assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeUncertain}, code,
					name)
				assert.Less(t, time.Since(began), 25*time.Second, name)
			}
		})
	}
	wg.Wait()
	network.Heal()
	eventually(t, "the store to come back", func() bool { return b.Ping(t.Context()) == nil })
	b.everythingWorks(pipe, nil)
}

// The processes of Postgres that serve a node are frozen and others aren't, as with a virtual
// machine that is moved or a disk that hangs. Durable writes succeed all the same.
func TestFrozenBackends(t *testing.T) {
	t.Parallel()
	// a server of our own, as its processes are stopped by their ids
	server := pgtest.Server(t, devpg.Config{})
	require.NoError(t, prepare(t.Context(), server.URL("postgres")))
	b := open(t, server.URL("postgres"), "node-1")
	pipe := b.put(twoStages())
	leases := b.warm(pipe)
	rows, err := b.db.Query(t.Context(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'asyncflow' AND state = 'idle'`)
	require.NoError(t, err)
	var pids []int
	for rows.Next() {
		var pid int
		require.NoError(t, rows.Scan(&pid))
		pids = append(pids, pid)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	t.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	b.everythingWorks(pipe, leases)
}

// Submits whose keys open transactions have are answered in time, also when the database goes
// silent while they are set aside. So are later submits with the same keys.
func TestHeldKeysOfASilentDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	network, through := pgtest.Behind(t, url)
	b := open(t, through, "node-1")
	b.put(twoStages())
	direct := open(t, url, "node-2")
	tx := direct.holdKeys(5)
	results := make(chan store.Submitted, 20)
	var late sync.WaitGroup
	submit := func(i int) {
		late.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), store.SubmitPatience)
			defer cancel()
			began := time.Now()
			results <- b.Submit(ctx, tenant, []asyncflow.NewTask{withKey("held-"+strconv.Itoa(i%5), `1`)})[0]
			assert.Less(t, time.Since(began), store.SubmitPatience+5*time.Second)
		})
	}
	for i := range 10 {
		submit(i)
	}
	eventually(t, "some are aside", func() bool { return b.Aside() > 0 })
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
	eventually(t, "nothing is aside", func() bool { return b.Aside() == 0 })
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, "the keys are answered", func() bool {
		for i := range 5 {
			r := b.submitKey("held-" + strconv.Itoa(i))
			if r.Err != nil {
				return false
			}
			assert.True(t, r.Existing)
		}
		return true
	})
	b.checkTokens("pipe")
}

// A report whose worker no longer waits, as the database took too long with earlier ones, is
// refused and not kept until its turn. The worker may report again.
func TestReportsThatWaitedTooLong(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	lease := b.lease(pipe, 1)[0]
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	settlement := asyncflow.Settlement{Lease: lease, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, lease, o, b.Clock.Now())}
	settled := make(chan store.Settled, 1)
	store.SettleUntil(b.Store, time.Now().Add(-time.Second), tenant, settlement,
		func(s store.Settled) { settled <- s })
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf((<-settled).Err))
	again := b.settle(pipe, lease, o)
	require.NoError(t, again.Err)
	assert.Empty(t, again.Written, "the first report was not written")
}
