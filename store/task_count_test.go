package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// A count is that of the tasks on all pages of the list.
func TestTaskCount(t *testing.T) {
	b, pipe := behindHistory(t, 9000)
	b.SetCountTime(patience)
	keyed := newTask(`1`)
	keyed.Options.Key = "k"
	b.submit(keyed)
	counts := map[string]int64{}
	for name, f := range map[string]store.Filter{
		"all":              {},
		"pending":          {Status: asyncflow.StatusPending},
		"waiting":          {Status: asyncflow.StatusWaiting},
		"running":          {Status: asyncflow.StatusRunning},
		"succeeded":        {Status: asyncflow.StatusSucceeded},
		"failed":           {Status: asyncflow.StatusFailed},
		"failed in second": {Status: asyncflow.StatusFailed, Stage: "second"},
		"cancelled":        {Status: asyncflow.StatusCancelled},
		"in first":         {Stage: "first"},
		"an error":         {Error: "TIMEOUT"},
		"nothing":          {Error: "nothing has this"},
		"key":              {Key: "k"},
		"no such key":      {Key: "other"},
		"since":            {Since: b.Clock.Now().Add(time.Hour)},
		"until":            {Until: b.Clock.Now().Add(-time.Hour)},
		"between": {Since: b.Clock.Now().Add(-time.Hour),
			Until: b.Clock.Now().Add(time.Hour)},
	} {
		f.Type, f.Limit = pipe.Name, 100_000
		list, err := b.Tasks(t.Context(), tenant, f)
		require.NoError(t, err, name)
		n, err := b.TaskCount(t.Context(), tenant, f)
		require.NoError(t, err, name)
		assert.Equal(t, store.TaskCount{Tasks: int64(len(list)), Exact: true}, n, name)
		counts[name] = n.Tasks
	}
	assert.EqualValues(t, 9013, counts["all"])
	assert.EqualValues(t, 1, counts["key"])
	_, err := b.TaskCount(t.Context(), tenant, store.Filter{Type: "nope"})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// A task with a time of creation out of order, as after a change of the database's clock, is no end
// of a count, as it is none of the list.
func TestTaskCountWithTimesOutOfOrder(t *testing.T) {
	b, pipe := behindHistory(t, 9000)
	b.SetCountTime(patience)
	last, err := b.Tasks(t.Context(), tenant, store.Filter{Type: pipe.Name, Limit: 3})
	require.NoError(t, err)
	b.exec(b.at(1, `UPDATE {task} SET created_at = created_at - interval '5 h'
		WHERE type = {number} AND id = $1`), last[2].ID.Number)
	f := store.Filter{Type: pipe.Name, Since: b.Clock.Now().Add(-time.Hour), Limit: 100_000}
	list, err := b.Tasks(t.Context(), tenant, f)
	require.NoError(t, err)
	n, err := b.TaskCount(t.Context(), tenant, f)
	require.NoError(t, err)
	assert.Equal(t, store.TaskCount{Tasks: int64(len(list)), Exact: true}, n)
}

// A count ends at 10,000 tasks, and after looking at many that don't match.
func TestTaskCountEnds(t *testing.T) {
	b, pipe := behindHistory(t, 2*store.CountLook)
	b.SetCountTime(patience)
	begin := time.Now()
	n, err := b.TaskCount(t.Context(), tenant, store.Filter{Type: pipe.Name})
	require.NoError(t, err)
	t.Logf("counted %d in %v", n.Tasks, time.Since(begin))
	assert.Equal(t, []any{int64(store.MaxTaskCount), false}, []any{n.Tasks, n.Exact})
	assert.GreaterOrEqual(t, n.Searched.Tasks, store.MaxTaskCount)
	begin = time.Now()
	n, err = b.TaskCount(t.Context(), tenant, store.Filter{Type: pipe.Name, Stage: "none"})
	require.NoError(t, err)
	t.Logf("looked at %d in %v", store.CountLook, time.Since(begin))
	assert.Equal(t, []any{int64(0), false, store.CountLook},
		[]any{n.Tasks, n.Exact, n.Searched.Tasks})
	assert.False(t, n.Searched.From.IsZero())
	assert.Empty(t, n.EndedAt)
	n, err = b.TaskCount(t.Context(), tenant, store.Filter{Stage: "none"})
	require.NoError(t, err)
	assert.Equal(t, pipe.Name, n.EndedAt)
	n, err = b.TaskCount(t.Context(), tenant,
		store.Filter{Type: pipe.Name, Status: asyncflow.StatusCancelled})
	require.NoError(t, err)
	assert.Equal(t, store.TaskCount{Tasks: 2*store.CountLook/100 + 1, Exact: true}, n,
		"the others aren't looked at")
}

// A count among many tasks that failed takes little time, though its candidates may be in several
// tables: each of them is looked up, and no others.
func TestTaskCountOfFailures(t *testing.T) {
	b := setup(t)
	pipe := b.put(longSecond())
	b.past(pipe, 100_000, 100_000) // 10,000 of them failed
	_, err := b.db.Exec(t.Context(), b.at(1, `ANALYZE {task}; ANALYZE {journal}`))
	require.NoError(t, err)
	for name, f := range map[string]store.Filter{
		"failed":            {Status: asyncflow.StatusFailed},
		"failed with error": {Status: asyncflow.StatusFailed, Error: "error"},
		"any with error":    {Error: "error"},
	} {
		f.Type = pipe.Name
		n, err := b.TaskCount(t.Context(), tenant, f)
		require.NoError(t, err, name)
		assert.Equal(t, store.TaskCount{Tasks: 10_000, Exact: true}, n, name)
	}
}

// A count of a window that takes too long ends with what it counted.
func TestTaskCountEndsInTime(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(twoStages())
	b.submitMany(10)
	_, err := b.db.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE %[1]s.lease RENAME TO slow;
		CREATE VIEW %[1]s.lease WITH (security_invoker = off) AS
		  SELECT s.* FROM (SELECT pg_sleep(30)::text AS slept OFFSET 0) z,
		  LATERAL (SELECT * FROM %[1]s.slow WHERE z.slept IS NOT NULL OFFSET 0) s;
		GRANT SELECT ON %[1]s.lease TO PUBLIC`, "tenant_acme"))
	require.NoError(t, err)
	begin := time.Now()
	n, err := b.TaskCount(t.Context(), tenant, store.Filter{Type: "pipe"})
	require.NoError(t, err)
	assert.Equal(t, store.TaskCount{}, n)
	assert.Less(t, time.Since(begin), 20*time.Second)
}
