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
	"github.com/asyncflow/asyncflow/dispatcher"
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
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
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
	assert.Less(t, time.Since(began), patience/2, "a lease that runs out waits for it")
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
			ctx, cancel := context.WithTimeout(t.Context(), dispatcher.SubmitPatience)
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
				assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable,
					asyncflow.CodeUncertain}, code, name)
				assert.Less(t, time.Since(began), patience/2, name)
			}
		})
	}
	waitAll(t, &wg)
	network.Heal()
	eventually(t, "the store to come back", func() bool { return b.Ping(t.Context()) == nil })
	b.everythingWorks(pipe, nil)
}

// The processes of Postgres that serve a node are frozen and others aren't, as with a virtual
// machine that is moved or a disk that hangs. Durable writes succeed all the same.
func TestFrozenBackends(t *testing.T) {
	t.Parallel()
	// a server of our own, as its processes are stopped by their ids
	server := pgtest.PreparedServer(t, prepare)
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
