package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// onWorker waits until hot statements name the tables of the worker.
func (b *bundle) onWorker() {
	b.t.Helper()
	eventually(b.t, "the node knows the worker", func() bool {
		return !strings.Contains(b.hotPlan(`SELECT 1 FROM "tenant_acme".rolls`), "Citus")
	})
}

// A lock of tables stops the transactions at the worker, which don't name the tables that Citus
// locks, until it is given back; and it waits for those that are under way.
func TestLockedTablesStopHotTransactions(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	pipe := b.put(twoStages())
	b.onWorker()
	insert := b.at(1, `INSERT INTO {locks} (name, number) VALUES ('test', $1)`)
	hot, err := b.DBOf(tenant, true).Begin(ctx)
	require.NoError(t, err)
	_, err = hot.Exec(ctx, insert, 1)
	require.NoError(t, err)

	tx, err := b.DBOf(tenant, false).Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	lock := func() error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '100ms'`)
			require.NoError(t, err)
			return store.LockTables(ctx, tx, pipe, 1)
		})
	}
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(lock()), "a hot transaction is under way")
	require.NoError(t, hot.Commit(ctx))
	require.NoError(t, lock())
	_, err = b.DBOf(tenant, true).Exec(ctx, insert, 2)
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(err), "%v", err)
	require.NoError(t, tx.Rollback(ctx))
	_, err = b.DBOf(tenant, true).Exec(ctx, insert, 2)
	require.NoError(t, err)
}

// A type isn't deleted while a transaction at the worker may be adding tasks to it.
func TestDeleteWaitsForHotTransactions(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	b.put(twoStages())
	b.onWorker()
	hot, err := b.DBOf(tenant, true).Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = hot.Rollback(ctx) }()
	_, err = hot.Exec(ctx, b.at(1, `INSERT INTO {ready} (type, order_time, id, seq, stage, attempt)
		SELECT {number}, now(), (1::bigint << 40) + 500000, 1, 'first', 1`))
	require.NoError(t, err)
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeleteTaskType(ctx, tenant, "pipe", false) }()
	eventually(t, "the delete gives up", func() bool {
		_, err := hot.Exec(ctx, `SELECT 1`) // so that it isn't idle for too long
		require.NoError(t, err)
		return len(deleted) > 0
	})
	err = <-deleted
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	require.NoError(t, hot.Commit(ctx))
	err = b.DeleteTaskType(ctx, tenant, "pipe", false)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
}

// A batch that the coordinator hands on is one transaction: where a later statement is refused,
// nothing of the earlier ones stands. It doesn't wait for locks at the worker for long, either.
func TestBatchesThroughTheCoordinatorAreTransactions(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	ctx := t.Context()
	b.put(twoStages())
	count := b.at(0, `SELECT count(*) FROM {locks} WHERE name = 'test'`)
	insert := b.at(0, `INSERT INTO {locks} (name, number) VALUES ('test', $1)`)
	for _, db := range b.DBsOfCoordinator(tenant) {
		batch := &pgx.Batch{}
		batch.Queue(insert, 1)
		batch.Queue(b.at(0, `INSERT INTO {locks} (name, number) VALUES (NULL, $1)`), 2)
		err := db.Send(ctx, batch)
		assert.Equal(t, pgerrcode.NotNullViolation, sqlState(err), "%v", err)
		assert.Zero(t, b.count(count))
	}
	for i, db := range b.DBsOfCoordinator(tenant) {
		batch := &pgx.Batch{}
		batch.Queue(insert, 2*i)
		batch.Queue(insert, 2*i+1)
		require.NoError(t, db.Send(ctx, batch))
		assert.Equal(t, 2*i+2, b.count(count))
	}
	tx, err := b.DBOf(tenant, false).Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, insert, 9)
	require.NoError(t, err)
	for _, begin := range []bool{false, true} {
		batch := &pgx.Batch{}
		if begin {
			batch.Queue("BEGIN")
		}
		batch.Queue(insert, 8)
		batch.Queue(insert, 9)
		if begin {
			batch.Queue("COMMIT")
		}
		err = b.DBsOfCoordinator(tenant)[0].Send(ctx, batch)
		assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(err), "begin: %v: %v", begin, err)
	}
	hot := b.DBsOfCoordinator(tenant)[0]
	single := &pgx.Batch{}
	single.Queue(insert, 9)
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(hot.Send(ctx, single)))
	_, err = hot.Exec(ctx, insert, 9)
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(err), "%v", err)
	var n int32
	err = hot.QueryRow(ctx, insert+` RETURNING number`, 9).Scan(&n)
	assert.Equal(t, pgerrcode.LockNotAvailable, sqlState(err), "%v", err)
	require.NoError(t, hot.QueryRow(ctx, insert+` RETURNING number`, 10).Scan(&n))
	assert.Equal(t, int32(10), n)
	require.NoError(t, tx.Rollback(ctx))
	tag, err := hot.Exec(ctx, insert, 9)
	require.NoError(t, err)
	assert.EqualValues(t, 1, tag.RowsAffected())
}

// A submit whose first statement finds that the tenant has left the worker isn't told that there
// is no such type.
func TestSubmitAfterAMove(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	b.put(twoStages())
	b.onWorker()
	require.NoError(t, b.moveSchema(t.Context(), tenant))
	eventually(t, "a task is submitted", func() bool {
		r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0]
		if r.Err != nil {
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err), "%v", r.Err)
		}
		return r.Err == nil
	})
}

// Where the lock of the tenant can't be taken, statements name the tables that Citus shows, until
// it can.
func TestHotStatementsWithoutTheLock(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	b.put(twoStages())
	here, _ := b.place(tenant)
	worker, err := pgx.Connect(t.Context(), here)
	require.NoError(t, err)
	defer worker.Close(t.Context())
	for _, sql := range []string{`SET citus.enable_ddl_propagation = off`,
		`ALTER FUNCTION pg_catalog.lock_shard_metadata(int, bigint[]) RENAME TO missing`} {
		_, err = worker.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	later := open(t, b.url, "node-2")
	r := later.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(t, r.Err)
	plan := later.hotPlan(`SELECT 1 FROM "tenant_acme".rolls`)
	require.Contains(t, plan, "Citus")
	_, err = worker.Exec(t.Context(),
		`ALTER FUNCTION pg_catalog.missing(int, bigint[]) RENAME TO lock_shard_metadata`)
	require.NoError(t, err)
	later.onWorker()
}
