package dispatcher_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Moves of tenants that meet other work.
func TestMovesOnBusyCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestMoveWaitsUntilCitusIsReady", "TestMoveMeetsOtherChanges",
		"TestMoveOfADroppedTenant")
}

// Citus refuses a move at once while it makes a table of the tenant, or can't drop what an earlier
// move has left. That passes, and the move waits for it.
func TestMoveWaitsUntilCitusIsReady(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	n.awaitAll(t, n.submitSome(t, 10))
	looks, old := m.at(m.coordinator()), m.at(m.place)
	triesAgain := func() {
		t.Helper()
		awaitRow(t, looks, `SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'asyncflow' AND query LIKE 'CALL citus_cleanup%'`)
	}
	// With identities at hand the move comes to Citus at once; the table that is being made keeps
	// other tables from getting one.
	keyless := m.names(`relkind = 'r' AND NOT EXISTS (
		SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)`)
	identify := func(identity string) {
		for _, table := range keyless {
			m.quietly(`ALTER TABLE tenant_acme.` + table + ` REPLICA IDENTITY ` + identity)
		}
	}
	identify("FULL")
	making := m.at(m.coordinator())
	exec(t, making, `BEGIN`, `CREATE TABLE tenant_acme.papers (id int)`)
	var shard string
	require.NoError(t, looks.QueryRow(t.Context(), `SELECT shard_name(logicalrelid, shardid)
		FROM pg_dist_shard WHERE logicalrelid = 'tenant_acme.numbering'::regclass`).Scan(&shard))
	exec(t, old, `BEGIN`, `SELECT count(*) FROM `+shard)

	move := func() <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := m.move(patience, func(p store.MoveProgress) { t.Logf("%+v", p) })
			t.Logf("moved: %v", err)
			ended <- err
		}()
		return ended
	}
	ended := move()
	triesAgain()
	assert.Empty(t, ended)
	exec(t, making, `COMMIT`) // a table without an identity: it gets one
	require.NoError(t, receive(t, ended))

	ended = move() // back to where the old table can't be dropped yet
	triesAgain()
	assert.Empty(t, ended)
	exec(t, old, `ROLLBACK`)
	require.NoError(t, receive(t, ended))
	identify("DEFAULT")
	m.noLeftovers()
	m.nothingAtServers()
	n.awaitAll(t, n.submitSome(t, 10))
}

// While a tenant moves, no other tenant does, whoever asks. Types are made, deleted and emptied
// before the move ends, or are refused as unavailable. A tenant is suspended at once.
func TestMoveMeetsOtherChanges(t *testing.T) {
	m := setupMovable(t)
	_, err := store.CreateTenant(t.Context(), m.url, "other", store.WithoutRoles(true))
	require.NoError(t, err)
	n := m.start("a", dispatcher.Config{}, done200)
	tasks := n.submitSome(t, 10)
	n.awaitAll(t, tasks)
	m.quietly(`INSERT INTO tenant_acme.tallies (type, at, submitted)
		SELECT 'pipe', '2026-11-01 00:00:01Z'::timestamptz, 1 FROM tenant_acme.numbering,
		generate_series(1, 10)`)
	unlock := m.lockPlacements()
	switching, told := onSwitching()
	ended := m.begin(t.Context(), told)
	receive(t, switching)

	began := time.Now()
	folded, err := n.Fold(t.Context(), tenant)
	require.NoError(t, err)
	require.Zero(t, folded, "each row would be looked for in all of the table")
	require.Less(t, time.Since(began), patience/12, "it doesn't wait for the move")
	for _, name := range []string{tenant, "other"} {
		for _, to := range []store.Server{m.place, m.other} {
			_, err := store.MoveTenant(t.Context(), m.url, store.Move{Tenant: name, To: to,
				MaxPause: patience}, func(store.MoveProgress) {})
			require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		}
	}
	changes := map[string]func() error{
		"make a type": func() error { return n.putType(t, "made", 0) },
		"make a type with tables of its own": func() error {
			return n.putType(t, "owner", 12345)
		},
		"delete a type": func() error {
			return n.DeleteTaskType(t.Context(), tenant, "pipe", true)
		},
		"erase": func() error {
			_, err := n.Erase(t.Context(), tenant, tasks[0].ID, "a test")
			return err
		},
	}
	results := map[string]chan error{}
	for name, change := range changes {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- change() }()
	}
	n.suspend(t, true)
	unlock()
	require.NoError(t, receive(t, ended))
	m.place, m.other = m.other, m.place
	require.Equal(t, m.place, m.placed())
	folded, err = n.Fold(t.Context(), tenant)
	require.NoError(t, err)
	require.Positive(t, folded)
	for name, result := range results {
		err := receive(t, result)
		t.Logf("%s: %v", name, err)
		if err != nil {
			assert.Contains(t, []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeConflict},
				asyncflow.CodeOf(err), "%s: %v", name, err)
		}
	}
	n.suspend(t, false)
	for name, change := range changes {
		require.Eventually(t, func() bool {
			err := change()
			t.Logf("%s: %v", name, err)
			return err == nil || asyncflow.CodeOf(err) == asyncflow.CodeNotFound
		}, patience, 20*time.Millisecond, name)
	}
	_, err = m.move(patience, func(store.MoveProgress) {})
	require.NoError(t, err)
	m.noLeftovers()
	m.nothingAtServers()
}

// putType makes a type, or changes one that is there. rollRows asks for tables of its own.
func (n *node) putType(t *testing.T, name string, rollRows int) error {
	spec := asyncflow.TaskType{Name: name, Stages: []asyncflow.Stage{{Name: "only"}},
		RollRows: rollRows}
	_, _, err := n.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	return err
}

// A tenant that is deleted while it moves is dropped after the move. One that is being dropped
// can't move.
func TestMoveOfADroppedTenant(t *testing.T) {
	m := setupMovable(t)
	n := m.start("a", dispatcher.Config{}, done200)
	n.awaitAll(t, n.submitSome(t, 10))
	unlock := m.lockPlacements()
	switching, told := onSwitching()
	ended := m.begin(t.Context(), told)
	receive(t, switching)
	atOnce := time.Duration(0)
	_, err := n.DeleteTenant(t.Context(), tenant, &atOnce)
	require.NoError(t, err)
	since, err := n.BeginDrop(t.Context(), tenant)
	require.NoError(t, err)
	require.NotZero(t, since)
	out, err := n.DropStep(t.Context(), tenant) // it doesn't wait for a move for long
	require.NoError(t, err)
	require.Zero(t, out.Tables)
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		for m.count(`pg_namespace WHERE nspname = 'tenant_acme'`) > 0 {
			_, err := n.DropStep(t.Context(), tenant)
			if code := asyncflow.CodeOf(err); code != asyncflow.CodeUnavailable {
				assert.NoError(t, err)
			}
		}
	}()
	unlock()
	require.NoError(t, receive(t, ended))
	_, err = store.MoveTenant(t.Context(), m.url, store.Move{Tenant: tenant, To: m.place,
		MaxPause: patience}, func(store.MoveProgress) {})
	require.Contains(t, []asyncflow.Code{asyncflow.CodeConflict, asyncflow.CodeNotFound},
		asyncflow.CodeOf(err), "%v", err)
	receive(t, dropped)
	m.nothingAtServers()
}
