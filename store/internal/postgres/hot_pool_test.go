package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// patience bounds a wait for something that happens by itself. It is long, as a slow machine
// is no failure.
const patience = 2 * time.Minute

const tenant = "acme"

// hotBundle is a hot pool with the roles of a database with a tenant.
type hotBundle struct {
	*postgres.HotPool
	t     *testing.T
	db    *pgxpool.Pool
	roles *postgres.Roles
}

// prepare fills the template database. It makes the tenant without package store: the tests of this
// package would have all of store compiled once more.
func prepare(ctx context.Context, url string) error {
	if _, err := schema.Migrate(ctx, url, false); err != nil {
		return err
	}
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		fence, err := schema.RoleFenceIn(ctx, tx)
		if err != nil {
			return err
		}
		return fence.Create(ctx, tx, tenant, false, func() error {
			_, err := tx.Exec(ctx, `
				INSERT INTO asyncflow.tenants (slug, schema_version, role) VALUES ($1, $2, $3)`,
				tenant, schema.LatestTenant(), fence.RoleOf(tenant))
			return err
		})
	})
}

func setupHot(t *testing.T, size int) *hotBundle {
	t.Helper()
	t.Parallel()
	url := pgtest.Database(t, prepare)
	pool, err := postgres.NewHotPool(t.Context(), postgres.PoolConfig{URL: url, Size: size})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	roles, err := postgres.NewRoles(t.Context(), db, false)
	require.NoError(t, err)
	return &hotBundle{pool, t, db, roles}
}

// guest returns the name of one of many tenants.
func guest(n int) string { return fmt.Sprintf("guest-%d", n) }

// of returns the tenant's database over connections that the pool takes for a guest's.
func (b *hotBundle) of(guest string) postgres.TenantDB {
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		return b.Acquire(ctx, guest)
	}
	return postgres.NewTenantDB(acquire, b.roles, tenant)
}

// take takes a connection for a guest, and returns the process that serves it.
func (b *hotBundle) take(
	ctx context.Context, guest string,
) (pid int, release func(), err error) {
	conn, err := b.of(guest).Acquire(ctx)
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
func (b *hotBundle) hold(guest string) (pid int, release func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	pid, release, err := b.take(ctx, guest)
	require.NoError(b.t, err)
	return pid, release
}

// touch takes a connection for a guest and gives it back.
func (b *hotBundle) touch(guest string) (pid int) {
	b.t.Helper()
	pid, release := b.hold(guest)
	release()
	return pid
}

// homes returns the homes of enough guests that every home is one.
func (b *hotBundle) homes() map[string]int {
	b.t.Helper()
	homes := map[string]int{}
	pids := map[int]bool{}
	for n := 0; len(pids) < b.Homes(); n++ {
		require.Less(b.t, n, 1000)
		homes[guest(n)] = b.touch(guest(n))
		pids[homes[guest(n)]] = true
	}
	return homes
}

// A tenant gets the same connection each time, also when others got it in between.
func TestHotHomeIsTakenWhenFree(t *testing.T) {
	b := setupHot(t, 8)
	homes := b.homes()
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(homes))) {
		assert.Equal(t, homes[key], b.touch(key), key)
	}
	assert.Equal(t, 4, b.Stat().Idle)
	assert.Zero(t, b.Stat().InUse)
}

// While its home is in use a tenant gets the connection that was used last. The pool opens no more
// connections than are used at once.
func TestHotHomeInUse(t *testing.T) {
	b := setupHot(t, 8)
	home, release := b.hold(guest(1))
	second, releaseSecond := b.hold(guest(1))
	assert.NotEqual(t, home, second)
	third := b.touch(guest(1))
	for range 5 {
		assert.Equal(t, third, b.touch(guest(1)))
	}
	releaseSecond()
	for range 5 {
		assert.Equal(t, second, b.touch(guest(1)), "it was used last")
	}
	release()
	assert.Equal(t, home, b.touch(guest(1)))
	assert.Equal(t, 3, b.Stat().Idle)
}

// An acquire that ends with its context leaves the pool as it was.
func TestHotAcquireEndsWithItsContext(t *testing.T) {
	b := setupHot(t, 2)
	_, releaseOne := b.hold(guest(1))
	_, releaseTwo := b.hold(guest(1))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := b.take(ctx, guest(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	releaseOne()
	releaseTwo()
	_, _, err = b.take(ctx, guest(1))
	require.ErrorIs(t, err, context.DeadlineExceeded, "though one is free")
	for range 2 {
		_, release := b.hold(guest(1))
		defer release()
	}
}

// A connection that the server ended is replaced, in use or not, and stays the home.
func TestHotConnectionIsReplaced(t *testing.T) {
	b := setupHot(t, 4)
	homes := b.homes()
	known := slices.Collect(maps.Values(homes))
	key := guest(0)
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
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT pg_terminate_backend($1, $2)`,
		pid, patience.Milliseconds()).Scan(&ended))
	require.True(b.t, ended)
}

// replacement returns the process that serves a guest with a killed home. It is not one of
// the known ones. The first caller to get the broken connection gets an error.
func (b *hotBundle) replacement(guest string, known []int) (pid int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var release func()
		var err error
		if pid, release, err = b.take(b.t.Context(), guest); err != nil {
			return false
		}
		release()
		return !slices.Contains(known, pid)
	}, patience, 20*time.Millisecond, "a new connection")
	return pid
}

// A connection comes back however the work of a tenant ends.
func TestHotConnectionComesBack(t *testing.T) {
	b := setupHot(t, 1)
	db := b.of(guest(1))
	ctx := t.Context()
	bad := &pgx.Batch{}
	bad.Queue(`SELECT nothing`)
	for name, do := range map[string]func() error{
		"rows": func() error {
			rows, err := db.Query(ctx, `SELECT * FROM generate_series(1, 3)`)
			if err != nil {
				return err
			}
			rows.Close()
			rows.Close()
			return nil
		},
		"row": func() error { return db.QueryRow(ctx, `SELECT 1`).Scan(new(int)) },
		"unprepared": func() error {
			return db.QueryRow(ctx, `SELECT 1`, pgx.QueryExecModeExec).Scan(new(int))
		},
		"batch": func() error { return db.Send(ctx, &pgx.Batch{}) },
		"transaction": func() error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, `SELECT 1`).Scan(new(int))
			})
		},
		"exec": func() error { _, err := db.Exec(ctx, `SELECT 1`); return err },
	} {
		require.NoError(t, do(), name)
		b.touch(guest(1))
	}
	for name, do := range map[string]func() error{
		"query": func() error { _, err := db.Query(ctx, `SELECT nothing`); return err },
		"no row": func() error {
			return db.QueryRow(ctx, `SELECT 1 WHERE false`).Scan(new(int))
		},
		"unscanned": func() error { return db.QueryRow(ctx, `SELECT 'x'`).Scan(new(int)) },
		"unprepared": func() error {
			return db.QueryRow(ctx, `SELECT nothing`, pgx.QueryExecModeExec).Scan(new(int))
		},
		"late": func() error {
			return db.QueryRow(ctx, `SELECT 1 / (n - 2) FROM generate_series(2, 3) n`).Scan(new(int))
		},
		"batch": func() error { return db.Send(ctx, bad) },
		"transaction": func() error {
			return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT nothing`)
				return err
			})
		},
		"exec": func() error { _, err := db.Exec(ctx, `SELECT nothing`); return err },
	} {
		require.Error(t, do(), name)
		b.touch(guest(1))
	}
	assert.Zero(t, b.Stat().InUse)
}

// Concurrent callers never share a connection, and none is lost, whatever their contexts do.
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
				pid, release, err := b.take(ctx, guest((n*i)%7))
				if err != nil {
					assert.Error(t, ctx.Err())
					cancel()
					continue
				}
				_, doubly := using.LoadOrStore(pid, true)
				assert.False(t, doubly)
				using.Delete(pid)
				release()
				cancel()
			}
		})
	}
	wg.Wait()
	for n := range 3 {
		_, release := b.hold(guest(n))
		defer release()
	}
	assert.Equal(t, 3, b.Stat().InUse)
}
