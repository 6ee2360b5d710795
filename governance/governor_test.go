package governance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// patience bounds waits for events. It is long, because a slow machine is no fault, and costs
// nothing when the event comes.
const patience = 2 * time.Minute

const tenant = "acme"

// noRoles is for what makes tenants: on Citus they have no roles.
func noRoles() store.Option { return store.WithoutRoles(pgtest.NoRoles()) }

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, noRoles()); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant, noRoles())
	return err
}

// bundle is a node's store and governor.
type bundle struct {
	*store.Store
	*dispatcher.Committer
	jobs map[string]governance.Job
	gov  *governance.Governor
}

func setup(t *testing.T, url, node string, cfg governance.Config) *bundle {
	t.Helper()
	return setupOn(t, store.Config{URL: url, Node: node}, cfg)
}

func setupOn(t *testing.T, of store.Config, cfg governance.Config) *bundle {
	t.Helper()
	of.NoRoles = of.NoRoles || pgtest.NoRoles()
	s := pgtest.Insist(t, func() (*store.Store, error) { return store.Open(t.Context(), of) })
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	gov, err := governance.New(s, c, cfg)
	require.NoError(t, err)
	b := &bundle{Store: s, Committer: c, gov: gov, jobs: map[string]governance.Job{}}
	for _, j := range b.gov.Jobs() {
		b.jobs[j.Name] = j
	}
	return b
}

// pipe makes a task type with leases that can be made to run out.
func (b *bundle) pipe(t *testing.T, name string) *store.Type {
	t.Helper()
	return b.put(t, asyncflow.TaskType{Name: name})
}

// ownPipe is pipe with tables of its own.
func (b *bundle) ownPipe(t *testing.T, name string) *store.Type {
	t.Helper()
	return b.put(t, asyncflow.TaskType{Name: name, RollRows: 2 * asyncflow.DefaultRollRows})
}

func (b *bundle) put(t *testing.T, spec asyncflow.TaskType) *store.Type {
	t.Helper()
	spec.Stages = []asyncflow.Stage{{Name: "only",
		Retry: asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(-1)}}}
	_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	known, err := b.Catalog.Type(tenant, spec.Name)
	require.NoError(t, err)
	return known
}

func (b *bundle) submitAndLease(t *testing.T, pipe *store.Type, n int) []asyncflow.Lease {
	t.Helper()
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: pipe.Name, Context: json.RawMessage(fmt.Sprint(i))}
	}
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	leases, _, err := b.Lease(t.Context(), pipe, n)
	require.NoError(t, err)
	require.Len(t, leases, n)
	return leases
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = pgtest.Exec(t.Context(), conn, url, sql)
	require.NoError(t, err)
	report(t, conn)
}

// ofType is a condition for the rows of a task type.
func ofType(name string) string {
	return `type = (SELECT number FROM tenant_acme.task_types WHERE name = '` + name + `')`
}

// report makes a connection report what it counted now, not seconds later.
func report(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
	require.NoError(t, err)
}

// Another node's lock keeps a job from running. The lock ends with its transaction.
func TestOneNodeAtATime(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.submitAndLease(t, pipe, 1)
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO tenant_acme.locks VALUES ('rescue', 0)`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.locks WHERE name = 'rescue' FOR UPDATE`)
	require.NoError(t, err)
	n, err := b.jobs["rescue"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "another node does it")
	require.NoError(t, tx.Rollback(t.Context()))
	n, err = b.jobs["rescue"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// Cron runs the jobs.
func TestCron(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a",
		governance.Config{Timetable: map[string]string{"rescue": "@every 1s",
			"promote": "@every 1s"}})
	pipe := b.pipe(t, "pipe")
	id := b.submitAndLease(t, pipe, 1)[0].ID
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.gov.Run(ctx) }()
	require.Eventually(t, func() bool {
		task, err := b.Task(t.Context(), tenant, id)
		return err == nil && task.Status == asyncflow.StatusPending
	}, patience, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	_, err := governance.New(b.Store, b,
		governance.Config{Timetable: map[string]string{"rescue": "now and then"}})
	require.ErrorContains(t, err, "now and then")
}
