package dispatcher_test

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Moves of tenants whose servers fail.
func TestMovesOnFailingCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestMoveUndoesInOrder", "TestMoveAfterALostCommand",
		"TestMoveOfASilentProcess", "TestMoveSurvivesKilledServers")
}

// at connects to a server of Citus.
func (m *movable) at(s store.Server) *pgx.Conn {
	m.t.Helper()
	cfg, err := pgx.ParseConfig(m.url)
	require.NoError(m.t, err)
	cfg.Host, cfg.Port = s.Host, s.Port
	conn, err := pgx.ConnectConfig(m.t.Context(), cfg)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// begin begins a move, and returns its end. told is called with its progress.
func (m *movable) begin(ctx context.Context, told func(store.MoveProgress)) <-chan error {
	ended := make(chan error, 1)
	to := m.other
	go func() {
		_, err := store.MoveTenant(ctx, m.url, store.Move{Tenant: tenant, To: to,
			MaxPause: patience}, told)
		ended <- err
	}()
	return ended
}

// onSwitching returns a channel that is closed when a move blocks writes.
func onSwitching() (<-chan struct{}, func(store.MoveProgress)) {
	switching := make(chan struct{})
	end := sync.OnceFunc(func() { close(switching) })
	return switching, func(p store.MoveProgress) {
		if p.Phase == store.MoveSwitching {
			end()
		}
	}
}

func done200(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done }

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// awaitRow waits until a query has a row.
func awaitRow(t *testing.T, conn *pgx.Conn, query string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var yes bool
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT EXISTS (`+query+`)`, args...).
			Scan(&yes))
		return yes
	}, patience, 10*time.Millisecond, query)
}

// A move that is given up takes the identities of the tables away only when Citus publishes them no
// more: published tables without one refuse to delete rows, so nothing could be leased.
func TestMoveUndoesInOrder(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	unlock := m.lockPlacements()
	switching, told := onSwitching()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := m.begin(ctx, told)
	receive(t, switching)
	source, looks := m.at(m.place), m.at(m.place)
	exec(t, source, `BEGIN`, `LOCK TABLE pg_publication IN SHARE MODE`)
	cancel()
	awaitRow(t, looks, `SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE 'DROP PUBLICATION%' AND wait_event_type = 'Lock'`)
	unlock()
	for range 3 { // longer than a try of Citus, which waits for a second
		n.awaitAll(t, n.submitSome(t, 10))
		awaitRow(t, looks, `SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'DROP PUBLICATION%' AND wait_event_type = 'Lock'
			AND query_start > $1`, time.Now())
	}
	assert.NotEmpty(t, m.names(`relname LIKE '%\_move'`))
	require.Empty(t, ended)
	exec(t, source, `ROLLBACK`)
	require.ErrorIs(t, receive(t, ended), context.Canceled)
	m.noLeftovers()
	m.nothingAtServers()
	n.awaitAll(t, n.submitSome(t, 10))
}

// nothingAtServers checks that Citus keeps nothing of a move, for a moment longer than the move.
func (m *movable) nothingAtServers() {
	m.t.Helper()
	m.quietly(`CALL citus_cleanup_orphaned_resources()`)
	workers := []store.Server{m.place, m.other}
	for _, w := range workers {
		conn := m.at(w)
		for _, left := range []string{`pg_publication`, `pg_subscription WHERE subdbid =
			(SELECT oid FROM pg_database WHERE datname = current_database())`,
			`pg_replication_slots WHERE database = current_database()`, `pg_prepared_xacts
			WHERE database = current_database()`} {
			var n int
			require.NoError(m.t, conn.QueryRow(m.t.Context(), `SELECT count(*) FROM `+left).
				Scan(&n))
			assert.Zero(m.t, n, "%s on %s", left, w)
		}
	}
	assert.Zero(m.t, m.count(`pg_dist_cleanup`))
}

func (m *movable) coordinator() store.Server {
	m.t.Helper()
	cfg, err := pgx.ParseConfig(m.url)
	require.NoError(m.t, err)
	return store.Server{Host: cfg.Host, Port: cfg.Port}
}

// A command that is killed leaves its process at the coordinator, and what it has made. The next
// move ends the first, and removes the rest, but for what somebody else made.
func TestMoveAfterALostCommand(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	keyless := m.names(`relkind = 'r' AND relname NOT LIKE 'ready\_%' AND NOT EXISTS (
		SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`)
	m.quietly(`COMMENT ON TABLE tenant_acme.` + keyless[0] + ` IS 'it''s ours'`)
	unlock := m.lockPlacements()
	switching, told := onSwitching()
	ended := m.begin(t.Context(), told)
	receive(t, switching)
	// Its connections are lost, all but that of the move, of which nobody hears any more.
	m.quietly(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query LIKE 'LOCK TABLE asyncflow.%' AND datname = current_database()`)
	second := make(chan error, 1)
	go func() {
		_, err := m.move(patience, func(store.MoveProgress) {})
		second <- err
	}()
	require.Error(t, receive(t, ended), "the second move ends it")
	unlock()
	require.NoError(t, receive(t, second))
	require.Equal(t, m.place, m.placed())
	n.awaitAll(t, n.submitSome(t, 10))
	m.noLeftovers()
	m.nothingAtServers()
	assert.Equal(t, 1, m.count(`pg_description WHERE description = 'it''s ours'`))
	assert.Zero(t, m.count(`pg_description WHERE description LIKE '%asyncflow%'`))
}

// A process of the coordinator that stops in the middle of a move doesn't keep the command for
// ever, nor the tenant's writes at the workers. The next move goes on.
func TestMoveOfASilentProcess(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	unlock := m.lockPlacements()
	var pid int
	ended := make(chan error, 1)
	go func() {
		_, err := m.move(time.Millisecond, func(p store.MoveProgress) {
			if p.Phase != store.MoveSwitching {
				return
			}
			conn := m.at(m.coordinator())
			assert.NoError(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
				WHERE query LIKE 'SELECT citus_schema_move(%' AND state = 'active'
				  AND datname = current_database()`).Scan(&pid))
			assert.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		})
		ended <- err
	}()
	err := receive(t, ended)
	require.Error(t, err)
	assert.Equal(t, asyncflow.CodeUncertain, asyncflow.CodeOf(err), "%v", err)
	// The process is still stopped.
	n.awaitAll(t, n.submitSome(t, 10))
	unlock()
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.Equal(t, m.place, m.placed())
	_, err = m.move(patience, func(store.MoveProgress) {})
	require.NoError(t, err)
	n.awaitAll(t, n.submitSome(t, 10))
	m.noLeftovers()
	m.nothingAtServers()
}

// failing is a database on servers of its own, to be killed.
type failing struct {
	*movable

	parent  *testing.T
	servers []*devpg.Server // the coordinator first
}

// server returns the index of the server at an address.
func (f *failing) server(at store.Server) int {
	return slices.IndexFunc(f.servers, func(s *devpg.Server) bool {
		return s.Config().Port == int(at.Port)
	})
}

// holds stop a move somewhere. A server is 0, the coordinator, 1, the source, or 2, the target.
var holds = []struct {
	name       string
	at         int
	statements []string // in a transaction that holds the move
	seenAt     int
	reached    string // then the move waits
}{
	{"indexing", 1, []string{`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`,
		`SELECT FROM pg_class LIMIT 1`}, 1, `query LIKE '%CREATE UNIQUE INDEX%CONCURRENTLY%'`},
	{"published", 1, []string{`SELECT txid_current()`}, 1, `query LIKE '%CREATE_REPLICATION_SLOT%'`},
	{"subscribing", 2, []string{`LOCK TABLE pg_subscription IN SHARE MODE`}, 2,
		`query LIKE '%SUBSCRIPTION%'`},
	{"switching", 0, []string{`LOCK TABLE pg_dist_placement IN SHARE MODE`}, 0,
		`query LIKE 'SELECT citus_schema_move(%'`},
	{"identifying", 0, []string{`LOCK TABLE pg_dist_transaction IN SHARE MODE`}, 0,
		`query ILIKE 'commit%'`},
}

// A server that is killed in the middle of a move loses and doubles nothing. The tenant then works,
// the next move succeeds, and nothing is left of the first.
func TestMoveSurvivesKilledServers(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestMovesOnFailingCitus runs it")
	}
	t.Parallel()
	servers, url := pgtest.Citus(t)
	require.NoError(t, prepare(t.Context(), url))
	f := &failing{&movable{bundle: &bundle{t, url}}, t, servers}
	workers, err := pgtest.WorkersOf(t.Context(), url)
	require.NoError(t, err)
	f.place = f.placed()
	for _, worker := range workers {
		cfg, err := pgx.ParseConfig(worker)
		require.NoError(t, err)
		if at := (store.Server{Host: cfg.Host, Port: cfg.Port}); at != f.place {
			f.other = at
		}
	}
	seen := &deliveries{all: map[string]int{}}
	n := f.start("a", dispatcher.Config{}, func(_ context.Context, d asyncflow.Delivery,
	) asyncflow.Outcome {
		seen.add(d.Lease)
		return done
	})
	f.rescue(n)
	for i, h := range holds {
		for victim, name := range []string{"coordinator", "source", "target"} {
			if !longform.Asked() && victim != i%3 && h.name != "switching" {
				continue
			}
			t.Run(h.name+" "+name, func(t *testing.T) {
				f.t = t
				f.survives(n, i, victim)
			})
		}
	}
	f.t = t
	assert.Empty(t, seen.repeated(), "no delivery came twice")
	assert.Zero(t, f.count("tenant_acme.lease"))
}

// survives begins a move, kills a server where a hold stops it, and checks what is then.
func (f *failing) survives(n *node, held, victim int) {
	t := f.t
	ctx := t.Context()
	h := holds[held]
	at := func() []store.Server { return []store.Server{f.coordinator(), f.place, f.other} }
	load, stop := context.WithCancel(ctx)
	var submitting sync.WaitGroup
	submitting.Go(func() {
		for load.Err() == nil {
			n.awaitAll(t, n.acknowledged(t, 5))
		}
	})
	defer submitting.Wait()
	defer stop()
	holder, looks := f.at(at()[h.at]), f.at(at()[h.seenAt])
	exec(t, holder, append([]string{`BEGIN`}, h.statements...)...)
	ended := f.begin(ctx, func(p store.MoveProgress) { t.Logf("%+v", p) })
	awaitRow(t, looks, `SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid() AND state = 'active' AND wait_event_type = 'Lock'
		AND `+h.reached)
	i := f.server(at()[victim])
	require.NoError(t, f.servers[i].Kill())
	_ = holder.Close(ctx)
	f.servers[i] = pgtest.Server(f.parent, f.servers[i].Config())
	err := receive(t, ended)
	t.Logf("the move: %v", err)
	if f.placed() == f.other { // the commit went through
		f.place, f.other = f.other, f.place
	} else {
		assert.Error(t, err)
	}
	n.awaitAll(t, n.submitPatiently(t, 5))
	_, err = f.move(patience, func(store.MoveProgress) {})
	require.NoError(t, err)
	stop()
	submitting.Wait()
	f.noLeftovers()
	f.nothingAtServers()
	assert.Zero(t, f.count(`pg_description WHERE description LIKE '%asyncflow%'`))
}

// acknowledged submits tasks, and returns those that were taken. Servers may be away.
func (n *node) acknowledged(t *testing.T, count int) (taken []store.Submitted) {
	tasks := make([]asyncflow.NewTask, count)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
	}
	for _, r := range n.Submit(context.WithoutCancel(t.Context()), tenant, tasks) {
		if r.Err == nil {
			taken = append(taken, r)
			continue
		}
		assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeUncertain},
			asyncflow.CodeOf(r.Err), "%v", r.Err)
	}
	return taken
}

// submitPatiently submits until tasks are taken: connections may still be broken.
func (n *node) submitPatiently(t *testing.T, count int) (taken []store.Submitted) {
	require.Eventually(t, func() bool {
		taken = n.acknowledged(t, count)
		return len(taken) == count
	}, patience, 20*time.Millisecond)
	return taken
}

// rescue has leases rescued until the test ends: one whose commit wasn't answered is nobody's until
// it runs out.
func (f *failing) rescue(n *node) {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	f.t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for ctx.Err() == nil {
			if pipe, err := n.Catalog.Type(tenant, "pipe"); err == nil {
				_, _ = n.Rescue(ctx, pipe) // it fails while a server is away
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
}
