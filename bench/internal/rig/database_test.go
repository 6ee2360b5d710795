package rig

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// testDatabase returns a database after a script.
func testDatabase(t *testing.T, script string) *Database {
	t.Helper()
	d, err := openDatabase(t.Context(), pgtest.Database(t, func(context.Context, string) error {
		return nil
	}))
	require.NoError(t, err)
	t.Cleanup(d.close)
	_, err = d.Conn.Exec(t.Context(), `CREATE SCHEMA `+Schema+`; SET search_path TO `+Schema)
	require.NoError(t, err)
	_, err = d.Conn.Exec(t.Context(), script+`; RESET search_path`)
	require.NoError(t, err)
	return d
}

// A type's rows are in tables that it shares with others, in its own ones, or in both.
func TestRowsOfATypeInSharedTables(t *testing.T) {
	t.Parallel()
	ctx, start := t.Context(), time.Now().Add(-time.Minute)
	d := testDatabase(t, `
		CREATE TABLE task_types (name text, number int);
		INSERT INTO task_types VALUES ('a', 1), ('b', 2);
		CREATE TABLE task_1 (type int, id bigint, created_at timestamptz DEFAULT now());
		CREATE TABLE task_b_2 (LIKE task_1 INCLUDING DEFAULTS);
		CREATE TABLE ready_1 (type int, id bigint);
		CREATE TABLE ready_b_2 (LIKE ready_1);
		CREATE TABLE lease (LIKE ready_1);
		CREATE TABLE wait (LIKE ready_1);
		CREATE TABLE journal_1 (type int, id bigint, at timestamptz DEFAULT now() + interval '1 s',
		  final text);
		CREATE TABLE journal_b_2 (LIKE journal_1 INCLUDING DEFAULTS);
		INSERT INTO task_1 VALUES (1, 1), (2, 1), (2, 2);
		INSERT INTO task_b_2 VALUES (2, 3);
		INSERT INTO journal_1 (type, id, final) VALUES (1, 1, 'failed'), (2, 1, 'succeeded'),
		  (2, 2, NULL), (2, 2, 'succeeded');
		INSERT INTO journal_b_2 (type, id, final) VALUES (2, 3, 'failed');
		INSERT INTO lease VALUES (1, 2)`)
	tables, err := d.Tables(ctx, "task", "b")
	require.NoError(t, err)
	assert.Equal(t, []Table{{"tenant_bench.task_1", 2}, {"tenant_bench.task_b_2", 0}}, tables)
	for taskType, want := range map[string]struct {
		tasks, succeeded, otherwise int
		live                        bool
	}{
		"a": {1, 0, 1, true},
		"b": {3, 2, 1, false},
	} {
		t.Run(taskType, func(t *testing.T) {
			tasks, err := d.Count(ctx, "task", taskType)
			require.NoError(t, err)
			assert.Equal(t, want.tasks, tasks)
			live, err := d.Live(ctx, taskType)
			require.NoError(t, err)
			assert.Equal(t, want.live, live)
			succeeded, otherwise, err := d.finals(ctx, taskType, Range{})
			require.NoError(t, err)
			assert.Equal(t, want.succeeded, succeeded)
			assert.Equal(t, want.otherwise, otherwise)
			p50, _, err := d.settled(ctx, taskType, start)
			require.NoError(t, err)
			assert.InDelta(t, 1000, p50, 1000)
		})
	}
}

// There are none in revisions before shared tables, and no numbers of types.
func TestRowsOfATypeInItsOwnTables(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := testDatabase(t, `
		CREATE TABLE task_types (name text);
		CREATE TABLE ready_a_1 (id bigint);
		CREATE TABLE lease_a (id bigint);
		CREATE TABLE wait_a (id bigint);
		CREATE TABLE wait_b (id bigint);
		INSERT INTO wait_b VALUES (1)`)
	live, err := d.Live(ctx, "a")
	require.NoError(t, err)
	assert.False(t, live)
	_, err = d.Conn.Exec(ctx, `INSERT INTO `+Schema+`.ready_a_1 VALUES (1)`)
	require.NoError(t, err)
	live, err = d.Live(ctx, "a")
	require.NoError(t, err)
	assert.True(t, live)
	_, err = d.Tables(ctx, "wait", "c")
	assert.ErrorContains(t, err, "there is no table wait of c")
}
