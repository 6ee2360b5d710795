package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// hotBundle is a store that does nothing by itself, with some hot connections.
type hotBundle struct {
	*store.Store
	t  *testing.T
	db *pgxpool.Pool
}

func setupHot(t *testing.T, size int) *hotBundle {
	t.Helper()
	t.Parallel()
	url := pgtest.Database(t, prepare)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "hot", Pool: 2, HotPool: size})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &hotBundle{s, t, db}
}

// hotKey returns the key of one of many types.
func hotKey(n int) store.TypeKey {
	return store.TypeKey{Tenant: tenant, Type: fmt.Sprintf("type-%d", n)}
}

// take takes a connection for a type, and returns the process that serves it.
func (b *hotBundle) take(ctx context.Context, key store.TypeKey) (pid int, release func(), err error) {
	conn, err := b.Hot(key).Acquire(ctx)
	if err != nil {
		return 0, nil, err
	}
	rows, err := conn.Query(ctx, `SELECT pg_backend_pid()`)
	if err == nil {
		pid, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	}
	if err != nil {
		conn.Release()
		return 0, nil, err
	}
	return pid, conn.Release, nil
}

// hold is take without errors.
func (b *hotBundle) hold(key store.TypeKey) (pid int, release func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	pid, release, err := b.take(ctx, key)
	require.NoError(b.t, err)
	return pid, release
}

// touch takes a connection for a type and gives it back.
func (b *hotBundle) touch(key store.TypeKey) (pid int) {
	b.t.Helper()
	pid, release := b.hold(key)
	release()
	return pid
}

// homes returns the homes of so many types that they are all connections.
func (b *hotBundle) homes() map[store.TypeKey]int {
	b.t.Helper()
	homes := map[store.TypeKey]int{}
	pids := map[int]bool{}
	for n := 0; len(pids) < b.stat().Most; n++ {
		require.Less(b.t, n, 1000)
		homes[hotKey(n)] = b.touch(hotKey(n))
		pids[homes[hotKey(n)]] = true
	}
	return homes
}

func (b *hotBundle) stat() store.PoolStat { return b.PoolStats()[1] }

// A type has the same connection each time, whoever had it and others in between.
func TestHotHomeIsTakenWhenFree(t *testing.T) {
	b := setupHot(t, 4)
	homes := b.homes()
	for _, key := range slices.SortedFunc(maps.Keys(homes), func(x, y store.TypeKey) int { return strings.Compare(y.Type, x.Type) }) {
		assert.Equal(t, homes[key], b.touch(key), key)
	}
	assert.Equal(t, 4, b.stat().Idle)
	assert.Zero(t, b.stat().InUse)
}

// While its home is in use a type has the connection that was used last, and no more are
// opened than are used at once.
func TestHotHomeInUse(t *testing.T) {
	b := setupHot(t, 8)
	home, release := b.hold(hotKey(1))
	second, releaseSecond := b.hold(hotKey(1))
	assert.NotEqual(t, home, second)
	third := b.touch(hotKey(1))
	for range 5 {
		assert.Equal(t, third, b.touch(hotKey(1)))
	}
	releaseSecond()
	for range 5 {
		assert.Equal(t, second, b.touch(hotKey(1)), "it was used last")
	}
	release()
	assert.Equal(t, home, b.touch(hotKey(1)))
	assert.Equal(t, 3, b.stat().Idle)
}

// Who finds no connection free waits in turn, or until its context ends.
func TestHotTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := store.NewHotTurns(1)
		require.NoError(t, turns.Wait(t.Context()))
		var got []int
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 4 {
			go func() {
				if n == 1 {
					assert.ErrorIs(t, turns.Wait(ctx), context.Canceled)
				} else if assert.NoError(t, turns.Wait(t.Context())) {
					got = append(got, n)
				}
			}()
			synctest.Wait()
		}
		cancel()
		time.Sleep(time.Second)
		require.Empty(t, got)
		for _, want := range [][]int{{0}, {0, 2}, {0, 2, 3}} {
			turns.End()
			synctest.Wait()
			require.Equal(t, want, got)
		}
		turns.End()
		require.NoError(t, turns.Wait(t.Context()))
		assert.Equal(t, int64(3), turns.Stat().Waits)
		assert.InDelta(t, 3, turns.Stat().WaitSeconds, 1e-6)
	})
}

// An acquire that ends with its context leaves the pool as it was.
func TestHotAcquireEndsWithItsContext(t *testing.T) {
	b := setupHot(t, 2)
	_, releaseOne := b.hold(hotKey(1))
	_, releaseTwo := b.hold(hotKey(1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := b.take(ctx, hotKey(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	releaseOne()
	releaseTwo()
	_, _, err = b.take(ctx, hotKey(1))
	require.ErrorIs(t, err, context.DeadlineExceeded, "though one is free")
	for range 2 {
		_, release := b.hold(hotKey(1))
		defer release()
	}
}

// A connection that the server ended is replaced, in use or not, and stays the home.
func TestHotConnectionIsReplaced(t *testing.T) {
	b := setupHot(t, 2)
	homes := b.homes()
	known := slices.Collect(maps.Values(homes))
	key := hotKey(0)
	_, release := b.hold(key)
	b.kill(homes[key])
	release() // as it was in use
	replaced := b.replacement(key, known)
	b.kill(replaced) // as it is idle
	replaced = b.replacement(key, append(known, replaced))
	for other, pid := range homes {
		if pid == homes[key] {
			pid = replaced
		}
		assert.Equal(t, pid, b.touch(other), other)
	}
}

// kill ends the process that serves a connection.
func (b *hotBundle) kill(pid int) {
	b.t.Helper()
	var ended bool
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT pg_terminate_backend($1, $2)`, pid, patience.Milliseconds()).Scan(&ended))
	require.True(b.t, ended)
}

// replacement returns the process that serves a type whose home was killed, other than
// those that are known. Who has the broken connection first gets an error.
func (b *hotBundle) replacement(key store.TypeKey, known []int) (pid int) {
	b.t.Helper()
	eventually(b.t, "a new connection", func() bool {
		var release func()
		var err error
		if pid, release, err = b.take(b.t.Context(), key); err != nil {
			return false
		}
		release()
		return !slices.Contains(known, pid)
	})
	return pid
}

// However the work of a tenant ends, its connection comes back.
func TestHotConnectionComesBack(t *testing.T) {
	b := setupHot(t, 1)
	db := b.Hot(hotKey(1))
	ctx := t.Context()
	bad := &pgx.Batch{}
	bad.Queue(`SELECT nothing`)
	for name, do := range map[string]func() error{
		"rows": func() error {
			rows, err := db.Query(ctx, `SELECT * FROM generate_series(1, 3)`)
			if err == nil {
				rows.Close()
				rows.Close()
			}
			return err
		},
		"row":        func() error { return db.QueryRow(ctx, `SELECT 1`).Scan(new(int)) },
		"unprepared": func() error { return db.QueryRow(ctx, `SELECT 1`, pgx.QueryExecModeExec).Scan(new(int)) },
		"batch":      func() error { return db.Send(ctx, &pgx.Batch{}) },
		"transaction": func() error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, `SELECT 1`).Scan(new(int)) })
		},
		"exec": func() error { _, err := db.Exec(ctx, `SELECT 1`); return err },
	} {
		require.NoError(t, do(), name)
		b.touch(hotKey(1))
	}
	for name, do := range map[string]func() error{
		"query":      func() error { _, err := db.Query(ctx, `SELECT nothing`); return err },
		"no row":     func() error { return db.QueryRow(ctx, `SELECT 1 WHERE false`).Scan(new(int)) },
		"unscanned":  func() error { return db.QueryRow(ctx, `SELECT 'x'`).Scan(new(int)) },
		"unprepared": func() error { return db.QueryRow(ctx, `SELECT nothing`, pgx.QueryExecModeExec).Scan(new(int)) },
		"late": func() error {
			return db.QueryRow(ctx, `SELECT 1 / (n - 2) FROM generate_series(2, 3) n`).Scan(new(int))
		},
		"batch": func() error { return db.Send(ctx, bad) },
		"transaction": func() error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, `SELECT nothing`); return err })
		},
		"exec": func() error { _, err := db.Exec(ctx, `SELECT nothing`); return err },
	} {
		require.Error(t, do(), name)
		b.touch(hotKey(1))
	}
	assert.Zero(t, b.stat().InUse)
}

// Many at once never share a connection, and none is lost, whatever their contexts do.
func TestHotManyAtOnce(t *testing.T) {
	b := setupHot(t, 3)
	var using sync.Map
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			for i := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if i%5 == 4 {
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Microsecond)
				}
				pid, release, err := b.take(ctx, hotKey((n*i)%7))
				if err == nil {
					_, doubly := using.LoadOrStore(pid, true)
					assert.False(t, doubly)
					using.Delete(pid)
					release()
				} else {
					assert.Error(t, ctx.Err())
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for n := range 3 {
		_, release := b.hold(hotKey(n))
		defer release()
	}
	assert.Equal(t, 3, b.stat().InUse)
}
