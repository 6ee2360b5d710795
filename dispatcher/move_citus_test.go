package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
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

// Moves of tenants between workers of Citus.
func TestMovesOnCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestTenantMovesUnderLoad", "TestMoveIsGivenUp", "TestMoveIsRefused",
		"TestMoveKeepsOtherIdentities", "TestMoveWithoutItsWatch")
}

// One move, with a node that knows the old place, is the quick form of all tests of moves.
func TestMoveOnCitus(t *testing.T) {
	t.Parallel()
	pgtest.OnCitusToo(t, "TestStaleNodeIsRefusedDuringAMove")
}

// moving lets one database move tenants at a time: all are on the same servers, where Citus' names
// of replication slots would meet.
var moving sync.Mutex

// movable is a database with a tenant on a worker; place is where it is, other another worker.
type movable struct {
	*bundle

	place, other store.Server
}

func setupMovable(t *testing.T) *movable {
	t.Helper()
	if !pgtest.OnCitus() {
		t.Skip("TestMovesOnCitus runs it")
	}
	m := &movable{bundle: setup(t)}
	moving.Lock()
	t.Cleanup(moving.Unlock)
	m.place = m.placed()
	workers, err := pgtest.WorkersOf(t.Context(), m.url)
	require.NoError(t, err)
	for _, url := range workers {
		cfg, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		if at := (store.Server{Host: cfg.Host, Port: cfg.Port}); at != m.place {
			m.other = at
		}
	}
	return m
}

// placed returns where the tenant is.
func (m *movable) placed() store.Server {
	m.t.Helper()
	n := m.open(store.Config{Node: "looks"})
	defer n.stop()
	places, err := n.Placements(m.t.Context(), tenant)
	require.NoError(m.t, err)
	require.Contains(m.t, places, tenant)
	return places[tenant]
}

// move moves the tenant to the other worker.
func (m *movable) move(
	maxPause time.Duration, tell func(store.MoveProgress),
) (store.Moved, error) {
	moved, err := store.MoveTenant(m.t.Context(), m.url,
		store.Move{Tenant: tenant, To: m.other, MaxPause: maxPause}, tell)
	if err != nil {
		return moved, err
	}
	assert.Equal(m.t, m.place, moved.From)
	assert.Equal(m.t, m.other, moved.To)
	m.place, m.other = m.other, m.place
	return moved, nil
}

// deliveries counts deliveries by task, stage and attempt.
type deliveries struct {
	mu  sync.Mutex
	all map[string]int
}

func (d *deliveries) add(l asyncflow.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[fmt.Sprint(l.ID, " ", l.Stage)]++
}

// repeated returns the deliveries that came more than once.
func (d *deliveries) repeated() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, n := range d.all {
		if n > 1 {
			list = append(list, what+": "+strconv.Itoa(n))
		}
	}
	return list
}

// A tenant moves there and back while two nodes submit, deliver, start tasks that are awaited,
// and give tasks to workers that claim them. Each task ends once.
func TestTenantMovesUnderLoad(t *testing.T) {
	m := setupMovable(t)
	seen := &deliveries{all: map[string]int{}}
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		seen.add(d.Lease)
		o := done
		if d.Lease.Stage == "first" && string(d.Lease.Context) == "0" {
			o.Join = &asyncflow.Join{}
			for range 2 {
				o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: "leaf", Context: []byte(`1`)})
			}
		}
		return o
	}
	nodes := []*node{m.start("a", dispatcher.Config{}, send),
		m.start("b", dispatcher.Config{}, send)}
	m.growing(nodes[0])
	require.NoError(t, nodes[1].Catalog.RefreshTenant(t.Context(), tenant)) // else it pushes some

	load, stop := context.WithCancel(t.Context())
	claiming, stopClaims := context.WithCancel(t.Context())
	var submitters, claimers sync.WaitGroup
	var mu sync.Mutex
	var tasks []store.Submitted
	var longest atomic.Int64 // of a submit
	for i, n := range nodes {
		for range 2 {
			submitters.Go(func() {
				for load.Err() == nil {
					began := time.Now()
					got := n.submitSome(t, 10)
					took := int64(time.Since(began))
					for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); {
						old = longest.Load()
					}
					mu.Lock()
					tasks = append(tasks, got...)
					mu.Unlock()
					n.awaitAll(t, got)
				}
			})
		}
		claimers.Go(func() { n.claimAll(claiming, t, seen, "anna"+strconv.Itoa(i)) })
	}
	submitted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tasks)
	}
	moves := 2
	if longform.Asked() {
		moves = 6
	}
	for range moves {
		before := submitted()
		require.Eventually(t, func() bool { return submitted() > before+50 }, patience,
			20*time.Millisecond)
		moved, err := m.move(patience, func(p store.MoveProgress) { t.Logf("%+v", p) })
		require.NoError(t, err)
		t.Logf("moved %d tables in %v, writes blocked for %v; longest submit since the begin %v; "+
			"%d tasks", moved.Tables, moved.Took, moved.Pause, time.Duration(longest.Load()),
			submitted())
		require.Equal(t, m.place, m.placed())
	}
	before := submitted()
	require.Eventually(t, func() bool { return submitted() > before+50 }, patience,
		20*time.Millisecond)
	stop()
	submitters.Wait()
	stopClaims()
	claimers.Wait()
	ids := map[asyncflow.TaskID]bool{}
	for _, s := range tasks {
		ids[s.ID] = true
	}
	assert.Len(t, ids, len(tasks), "each submit has an id of its own")
	assert.Empty(t, seen.repeated(), "no delivery came twice")
	assert.Equal(t, 1, m.count("(SELECT DISTINCT position FROM tenant_acme.rolls) p"),
		"a move opens no roll")
	assert.Zero(t, m.count("tenant_acme.lease"))
	m.noLeftovers()
}

// growing gives the first stage tasks of a type leaf that it starts, and has the second claimed.
func (m *movable) growing(n *node) {
	m.t.Helper()
	leaf := asyncflow.TaskType{Name: "leaf", Stages: []asyncflow.Stage{{Name: "only"}}}
	_, _, err := n.PutTaskType(m.t.Context(), tenant, leaf.WithDefaults())
	require.NoError(m.t, err)
	_, err = n.CreateEndpoint(m.t.Context(), tenant, asyncflow.Endpoint{
		ID: "0190a6f0-0000-7000-8000-000000000009", Type: "leaf", Stage: "only",
		URL: "http://worker/leaf", Weight: 1})
	require.NoError(m.t, err)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(m.t, err)
	spec := pipe.TaskType
	spec.Stages = slices.Clone(spec.Stages)
	spec.Stages[0].Spawn = []string{"leaf"}
	spec.Stages[1].Mode = asyncflow.ModeClaim
	_, _, err = n.PutTaskType(m.t.Context(), tenant, spec)
	require.NoError(m.t, err)
}

// submitSome submits tasks whose contexts are 0, 1, 2 and so on.
func (n *node) submitSome(t *testing.T, count int) []store.Submitted {
	tasks := make([]asyncflow.NewTask, count)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(strconv.Itoa(i))}
	}
	results := n.Submit(context.WithoutCancel(t.Context()), tenant, tasks)
	for _, r := range results {
		assert.NoError(t, r.Err)
	}
	return results
}

// awaitAll waits until tasks have succeeded. A read that meets a lease on its way from table to
// table is tried again: through the coordinator of Citus, its statements see different times.
func (n *node) awaitAll(t *testing.T, tasks []store.Submitted) {
	for _, r := range tasks {
		for until := time.Now().Add(patience); ; {
			task, err := n.AwaitFinal(context.WithoutCancel(t.Context()), tenant, r.ID, patience)
			if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable && time.Now().Before(until) {
				continue
			}
			if assert.NoError(t, err) {
				assert.Equal(t, asyncflow.StatusSucceeded, task.Status)
			}
			break
		}
	}
}

// claimAll claims tasks of the second stage and completes them.
func (n *node) claimAll(ctx context.Context, t *testing.T, seen *deliveries, claimer string) {
	pipe, err := n.Catalog.Type(tenant, "pipe")
	assert.NoError(t, err)
	for ctx.Err() == nil {
		all, err := n.Claim(ctx, tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "second",
			Claimer: claimer, Max: 10, Wait: patience})
		if ctx.Err() != nil {
			return
		}
		if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable { // the tenant has just moved
			continue
		}
		assert.NoError(t, err)
		for _, d := range all {
			seen.add(d.Lease)
			settled := make(chan store.Settled, 1)
			n.Settle(tenant, asyncflow.Settlement{Lease: d.Lease, Outcome: done,
				Verdict: asyncflow.Decide(pipe.TaskType, d.Lease, done, n.Clock.Now())},
				func(r store.Settled) { settled <- r })
			r := <-settled
			assert.NoError(t, r.Err)
			assert.False(t, r.Stale)
		}
	}
}

// noLeftovers checks that nothing is left that only moves need.
func (m *movable) noLeftovers() {
	m.t.Helper()
	assert.Zero(m.t, m.count(`pg_class WHERE relnamespace = 'tenant_acme'::regnamespace
		AND (relname LIKE '%\_move' OR relkind = 'r' AND relreplident <> 'd')`))
}

// lockPlacements keeps moves from their end: their writes to Citus' tables of placements wait.
func (m *movable) lockPlacements() (unlock func()) {
	m.t.Helper()
	conn, err := pgx.Connect(m.t.Context(), m.url)
	require.NoError(m.t, err)
	unlock = sync.OnceFunc(func() { assert.NoError(m.t, conn.Close(context.Background())) })
	m.t.Cleanup(unlock)
	for _, statement := range []string{`BEGIN`, `LOCK TABLE pg_dist_placement IN SHARE MODE`} {
		_, err = conn.Exec(m.t.Context(), statement)
		require.NoError(m.t, err)
	}
	return unlock
}

// A node that knows only the old place of a tenant is refused there while the tenant's writes are
// blocked, tries again, and writes at the new place.
func TestStaleNodeIsRefusedDuringAMove(t *testing.T) {
	m := setupMovable(t)
	stale := m.open(store.Config{Node: "stale"}) // its store doesn't run, so it doesn't look again
	stale.submit(t, 1)                           // it has numbers for more at hand
	unlock := m.lockPlacements()
	switching := make(chan struct{})
	moved := make(chan error, 1)
	go func() {
		_, err := m.move(patience, func(p store.MoveProgress) {
			if p.Phase == store.MoveSwitching {
				close(switching)
			}
		})
		moved <- err
	}()
	receive(t, switching)
	submitted := make(chan []store.Submitted, 1)
	go func() { submitted <- stale.submitSome(t, 10) }()
	require.Eventually(t, func() bool { return stale.WritesApart() > 0 }, patience,
		5*time.Millisecond, "the write is refused")
	assert.Empty(t, submitted)
	unlock()
	require.NoError(t, receive(t, moved))
	results := receive(t, submitted)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	stale.submit(t, 10) // the old worker hands it on
	assert.Equal(t, 21, m.count("tenant_acme.ready_1"))
	assert.Equal(t, 21, m.count("tenant_acme.task_1"))
	require.Equal(t, m.place, m.placed())
	m.noLeftovers()
}

// A move whose pause gets too long is given up: the tenant stays where it was, and works.
func TestMoveIsGivenUp(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery,
	) asyncflow.Outcome {
		return done
	})
	unlock := m.lockPlacements()
	_, err := m.move(time.Millisecond, func(store.MoveProgress) {})
	require.ErrorContains(t, err, "given up")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
	unlock()
	require.Equal(t, m.place, m.placed())
	m.noLeftovers()
	n.awaitAll(t, n.submitSome(t, 10))

	ctx, cancel := context.WithCancel(t.Context())
	_, err = store.MoveTenant(ctx, m.url, store.Move{Tenant: tenant, To: m.other,
		MaxPause: patience}, func(p store.MoveProgress) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, m.place, m.placed())
	m.noLeftovers()
}

// A move is given up when its pause gets too long, although the connection that watches it went
// silent in the meantime.
func TestMoveWithoutItsWatch(t *testing.T) {
	m := setupMovable(t)
	unlock := m.lockPlacements()
	_, err := m.move(time.Millisecond, func(p store.MoveProgress) {
		if p.Phase != store.MoveSwitching {
			return
		}
		// The watch calls us, so its connection is idle.
		conn, err := pgx.Connect(t.Context(), m.url)
		require.NoError(t, err)
		defer conn.Close(context.WithoutCancel(t.Context()))
		var pid int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
			WHERE state = 'idle' AND datname = current_database()
				AND query LIKE '%pg_notify(''asyncflow_move''%'`).Scan(&pid))
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		t.Cleanup(func() { assert.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) })
	})
	require.ErrorContains(t, err, "given up")
	unlock()
	require.Equal(t, m.place, m.placed())
	m.noLeftovers()
}

// names returns the tenant's tables of a condition.
func (m *movable) names(condition string) (all []string) {
	m.t.Helper()
	conn, err := pgx.Connect(m.t.Context(), m.url)
	require.NoError(m.t, err)
	defer conn.Close(context.WithoutCancel(m.t.Context()))
	rows, _ := conn.Query(m.t.Context(), `SELECT c.relname FROM pg_class c
		WHERE relnamespace = 'tenant_acme'::regnamespace AND relkind IN ('r', 'i')
			AND `+condition+` ORDER BY 1`)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(m.t, err)
	return all
}

// A move removes what an earlier one has left, without waiting behind a reader of the table while
// others wait behind the move. Replica identities that somebody else chose stay. When the tenant
// has moved and tidying up fails, the move has not failed.
func TestMoveKeepsOtherIdentities(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery,
	) asyncflow.Outcome {
		return done
	})
	keyless := m.names(`relkind = 'r' AND relname NOT LIKE 'ready\_%' AND NOT EXISTS (
		SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`)
	require.GreaterOrEqual(t, len(keyless), 2)
	const index = `CREATE UNIQUE INDEX ready_1_move ON tenant_acme.ready_1 (type, order_time, id)`
	m.quietly(index, `ALTER TABLE tenant_acme.`+keyless[0]+` REPLICA IDENTITY FULL`,
		`ALTER TABLE tenant_acme.`+keyless[1]+` REPLICA IDENTITY NOTHING`)
	othersOnly := func() {
		t.Helper()
		assert.Empty(t, m.names(`relname LIKE '%\_move'`))
		assert.Equal(t, keyless[:1], m.names(`relkind = 'r' AND relreplident = 'f'`))
		assert.Equal(t, keyless[1:2], m.names(`relkind = 'r' AND relreplident = 'n'`))
		assert.Empty(t, m.names(`relkind = 'r' AND relreplident = 'i'`))
	}

	reader, err := pgx.Connect(t.Context(), m.url)
	require.NoError(t, err)
	defer reader.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{`BEGIN`, `SELECT count(*) FROM tenant_acme.ready_1`} {
		_, err = reader.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var moved store.Moved
	ended := make(chan error, 1)
	go func() {
		var err error
		moved, err = store.MoveTenant(ctx, m.url, store.Move{Tenant: tenant, To: m.other,
			MaxPause: patience}, func(p store.MoveProgress) {
			if p.Phase == "tidying up" {
				cancel()
			}
		})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return m.count(`pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'DROP INDEX%ready_1_move%'`) > 0
	}, patience, 5*time.Millisecond)
	n.awaitAll(t, n.submitSome(t, 10))
	assert.Empty(t, ended, "the move waits for the reader")
	require.NoError(t, reader.Close(t.Context()))

	require.NoError(t, receive(t, ended))
	require.ErrorIs(t, moved.TidyError, context.Canceled)
	m.place, m.other = m.other, m.place
	require.Equal(t, m.place, m.placed())
	othersOnly()

	m.quietly(index, `ALTER TABLE tenant_acme.ready_1 REPLICA IDENTITY USING INDEX ready_1_move`)
	moved, err = m.move(patience, func(store.MoveProgress) {})
	require.NoError(t, err)
	require.NoError(t, moved.TidyError)
	othersOnly()
}

// What can't move is refused, in words.
func TestMoveIsRefused(t *testing.T) {
	m := setupMovable(t)
	there := m.place
	for name, c := range map[string]struct {
		tenant string
		to     store.Server
		code   asyncflow.Code
		says   string
	}{
		"there already": {tenant, there, asyncflow.CodeConflict, "already"},
		"no such worker": {tenant, store.Server{Host: "nowhere"}, asyncflow.CodeInvalid,
			"no active worker; there are: 127.0.0.1:"},
		"no such port": {tenant, store.Server{Host: "127.0.0.1", Port: 1}, asyncflow.CodeInvalid,
			"no active worker"},
		"several": {tenant, store.Server{Host: "127.0.0.1"}, asyncflow.CodeInvalid,
			"name the port"},
		"no such tenant": {"nobody", m.other, asyncflow.CodeNotFound, "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.MoveTenant(t.Context(), m.url, store.Move{Tenant: c.tenant, To: c.to,
				MaxPause: patience}, func(store.MoveProgress) {})
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.code, asyncflow.CodeOf(err))
		})
	}
	t.Run("while it moves", func(t *testing.T) {
		unlock := m.lockPlacements()
		switching := make(chan struct{})
		moved := make(chan error, 1)
		go func() {
			_, err := m.move(patience, func(p store.MoveProgress) {
				if p.Phase == store.MoveSwitching {
					close(switching)
				}
			})
			moved <- err
		}()
		receive(t, switching)
		_, err := store.MoveTenant(t.Context(), m.url, store.Move{Tenant: tenant, To: m.other,
			MaxPause: patience}, func(store.MoveProgress) {})
		require.ErrorContains(t, err, "another move")
		unlock()
		require.NoError(t, receive(t, moved))
	})
}

// Without Citus, no tenant moves.
func TestMoveNeedsCitus(t *testing.T) {
	if pgtest.OnCitus() {
		t.Skip("there is Citus")
	}
	b := setup(t)
	_, err := store.MoveTenant(t.Context(), b.url, store.Move{Tenant: tenant,
		To: store.Server{Host: "elsewhere"}}, func(store.MoveProgress) {})
	require.ErrorContains(t, err, "no extension Citus")
	assert.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	_, err = store.PlanRebalance(t.Context(), b.url)
	require.ErrorContains(t, err, "no extension Citus")
}

// receive receives from a channel within patience.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		require.Fail(t, "nothing came")
	}
	return got
}
