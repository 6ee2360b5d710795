package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// withKey returns a task with a key.
func withKey(key, context string) asyncflow.NewTask {
	task := newTask(context)
	task.Options.Key = key
	return task
}

// A key names one task, whichever way it was submitted.
func TestSQLKeys(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	bySQL, err := b.bySQL(app, `'pipe', '{"a": 1}', key => 'sql'`)
	require.NoError(t, err)
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{withKey("sql", `{"a":1}`),
		withKey("sql", `{"a":2}`), withKey("node", `[1]`)})
	require.NoError(t, r[0].Err)
	assert.Equal(t, bySQL, r[0].ID)
	assert.True(t, r[0].Existing)
	assert.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r[1].Err))
	require.NoError(t, r[2].Err)

	id, err := b.bySQL(app, `'pipe', '[1]', key => 'node'`)
	require.NoError(t, err)
	assert.Equal(t, r[2].ID, id)
	_, err = b.bySQL(app, `'pipe', '[2]', key => 'node'`)
	require.ErrorContains(t, err, "key stands for task "+id.String()+", which has another context")
	assert.Equal(t, pgerrcode.UniqueViolation, sqlState(err))
	id, err = b.bySQL(app, `'pipe', '{"a": 1}', key => 'sql'`)
	require.NoError(t, err)
	assert.Equal(t, bySQL, id)

	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.idempotency_keys SET expires_at = now()`)
	require.NoError(t, err)
	id, err = b.bySQL(app, `'pipe', '[2]', key => 'node'`)
	require.NoError(t, err)
	assert.NotEqual(t, r[2].ID, id, "its window is over")
	list, err := b.db.Query(t.Context(),
		`SELECT extract(epoch FROM expires_at - now())::int FROM tenant_acme.idempotency_keys
			WHERE expires_at > now()`)
	require.NoError(t, err)
	require.True(t, list.Next())
	var seconds int
	require.NoError(t, list.Scan(&seconds))
	list.Close()
	assert.InDelta(t, 24*3600, seconds, 60)
}

// A type's retention in weeks and days bounds the window of a key, as one in hours does.
func TestSQLKeysOfARetentionInDays(t *testing.T) {
	b := setup(t)
	app := b.app()
	for _, text := range []string{"8d12h", "204h", "1w1d12h", "1w36h", "8.5d"} {
		kept := twoStages()
		require.NoError(t, kept.Retention.UnmarshalText([]byte(text)))
		b.put(kept)
		_, err := b.bySQL(app, `'pipe', '1', key => '`+text+`', key_window => '205 hours'`)
		require.ErrorContains(t, err, "are kept for 204h0m0s", text)
		_, err = b.bySQL(app, `'pipe', '1', key => '`+text+`', key_window => '203 hours'`)
		require.NoError(t, err, text)
	}
}

// A concurrent submit with the same key waits for the other one, and gets its task if that is
// committed.
func TestSQLKeysAtOnce(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.app()
	second := b.app()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		_, err := first.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
		id, err := b.bySQL(first, `'pipe', '1', key => '`+end+`'`)
		require.NoError(t, err)
		var other asyncflow.TaskID
		done := make(chan error, 1)
		go func() {
			var err error
			other, err = b.bySQL(second, `'pipe', '1', key => '`+end+`'`)
			done <- err
		}()
		b.blocked(1)
		_, err = first.Exec(t.Context(), end)
		require.NoError(t, err)
		require.NoError(t, receive(t, done))
		assert.Equal(t, end == "COMMIT", other == id, end)
	}
}

// blocked waits until n connections wait for another's lock.
func (b *bundle) blocked(n int) {
	b.t.Helper()
	eventually(b.t, "someone waits", func() bool {
		var waiting int
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT count(*)
			FROM `+pgtest.Activity()+`
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting >= n
	})
}

// A key in an open transaction delays no other key that a node submits with it.
func TestSQLKeyHoldsUpNoOther(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	tx, err := b.app().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	taken, err := b.bySQL(tx, `'pipe', '1', key => 'taken'`)
	require.NoError(t, err)
	var tasks []asyncflow.NewTask
	for _, key := range []string{"a", "b", "taken", "y", "z"} {
		tasks = append(tasks, withKey(key, `1`))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, r := range b.Submit(t.Context(), tenant, tasks) {
			if tasks[i].Options.Key == "taken" {
				assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err))
			} else {
				assert.NoError(t, r.Err, tasks[i].Options.Key)
			}
		}
	})
	waitAll(t, &wg)
	require.NoError(t, tx.Commit(t.Context()))
	r := b.Submit(t.Context(), tenant, tasks)
	for i := range r {
		require.NoError(t, r[i].Err)
		assert.True(t, r[i].Existing)
	}
	assert.Equal(t, taken, r[2].ID)
}

// A transaction with a snapshot older than another's key can't see its task: it must be tried
// again, as with any unique key.
func TestSQLKeyBehindASnapshot(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	_, err := app.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class")
	require.NoError(t, err)
	b.Submit(t.Context(), tenant, []asyncflow.NewTask{withKey("k", `1`)})
	_, err = b.bySQL(app, `'pipe', '1', key => 'k'`)
	assert.Equal(t, pgerrcode.SerializationFailure, sqlState(err))
	_, err = app.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	_, err = b.bySQL(app, `'pipe', '1', key => 'k', key_window => '30 min'`)
	require.NoError(t, err)
}
