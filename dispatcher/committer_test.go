package dispatcher_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// writer is a node that writes but doesn't deliver: a store and its committer.
type writer struct {
	*store.Store
	*dispatcher.Committer
	t   *testing.T
	url string
	db  *pgxpool.Pool // for direct access to the database
}

// prepareWriter fills the template database.
func prepareWriter(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant, store.WithoutRoles(pgtest.NoRoles()))
	return err
}

func setupWriter(t *testing.T) *writer {
	t.Helper()
	t.Parallel()
	return openWriter(t, pgtest.Database(t, prepareWriter), "node-1")
}

func openWriter(t *testing.T, url, node string) *writer {
	t.Helper()
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: url, Node: node, Notify: true,
			NoRoles: pgtest.NoRoles(), Pool: 4, HotPool: 4})
	})
	c := dispatcher.NewCommitter(s, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		cancel()
		require.NoError(t, <-done)
		s.Close()
		db.Close()
	})
	return &writer{Store: s, Committer: c, t: t, url: url, db: db}
}

// deaf opens another node on the same database, which gets no wake-ups.
func (w *writer) deaf(node string) *writer {
	w.t.Helper()
	s, err := store.Open(w.t.Context(), store.Config{URL: w.url, Node: node, Pool: 2,
		HotPool: 2, NoRoles: pgtest.NoRoles()})
	require.NoError(w.t, err)
	c := dispatcher.NewCommitter(s, nil)
	w.t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return &writer{Store: s, Committer: c, t: w.t, url: w.url, db: w.db}
}

// writerType is a task type with quick retries.
func writerType() asyncflow.TaskType {
	retry := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-0.001)}
	return asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{
		{Name: "first", Retry: retry, Timeout: asyncflow.NewDuration(time.Second)},
		{Name: "second", Retry: retry, Timeout: asyncflow.NewDuration(time.Second)},
	}}.WithDefaults()
}

func (w *writer) put(t asyncflow.TaskType) *store.Type {
	w.t.Helper()
	_, _, err := w.PutTaskType(w.t.Context(), tenant, t)
	require.NoError(w.t, err)
	known, err := w.Catalog.Type(tenant, t.Name)
	require.NoError(w.t, err)
	return known
}

func newTask(context string) asyncflow.NewTask {
	return asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(context)}
}

func withKey(key, context string) asyncflow.NewTask {
	task := newTask(context)
	task.Options.Key = key
	return task
}

func (w *writer) submit(tasks ...asyncflow.NewTask) []store.Submitted {
	w.t.Helper()
	results := w.Submit(w.t.Context(), tenant, tasks)
	for i, r := range results {
		require.NoError(w.t, r.Err, "task %d", i)
	}
	return results
}

func (w *writer) lease(t *store.Type, n int) []asyncflow.Lease {
	w.t.Helper()
	leases, _, err := w.Lease(w.t.Context(), t, n)
	require.NoError(w.t, err)
	return leases
}

// settle settles a lease with an outcome and waits for the result.
func (w *writer) settle(t *store.Type, l asyncflow.Lease, o asyncflow.Outcome) store.Settled {
	w.t.Helper()
	done := make(chan store.Settled, 1)
	w.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, w.Clock.Now())},
		func(r store.Settled) { done <- r })
	return <-done
}

// checkTokens asserts that there is exactly one token row of each live task, and none of a final
// one.
func (w *writer) checkTokens() {
	w.t.Helper()
	var wrong int
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), `
		WITH tokens AS (
		  SELECT id FROM tenant_acme.ready_1 UNION ALL SELECT id FROM tenant_acme.lease
		  UNION ALL SELECT id FROM tenant_acme.wait)
		SELECT count(*) FROM tenant_acme.task_1 t
		WHERE (SELECT count(*) FROM tokens k WHERE k.id = t.id) <> CASE WHEN coalesce(
		  (SELECT j.final IS NOT NULL FROM tenant_acme.journal_1 j WHERE j.id = t.id
		   ORDER BY j.seq DESC LIMIT 1), false) THEN 0 ELSE 1 END`).Scan(&wrong))
	require.Zero(w.t, wrong, "tasks with a wrong number of token rows")
}

// eventually waits until done returns true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 20*time.Millisecond, what)
}
