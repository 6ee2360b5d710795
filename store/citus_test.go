package store_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// The tests of this package that also run on a coordinator of Citus with two workers.
func TestStoreOnCitus(t *testing.T) {
	t.Parallel()
	pgtest.OnCitusToo(t, "TestTenantsAreOnWorkers", "TestConcurrentSubmits",
		"TestSubmitsAreCounted", "TestFence", "TestTaskPassesItsStages", "TestPutTaskType",
		"TestDeleteTaskType", "TestRollsLife", "TestOtherIncarnationOpensOneRoll", "TestSQLSubmit",
		"TestSignalsBySQL", "TestASignalMovesATaskOn", "TestADependentWaitsForATask", "TestSpawn",
		"TestSpawnWithHeldKeys",
		"TestJoinNested", "TestClaimersOfOneTransactionWithRules", "TestOperationFilters",
		"TestEraseOrRedrive", "TestPutSchedule", "TestStatsByTypeAndTenant",
		"TestTenantsStayWhereTheyWere", "TestTenantsWithRolesStayOnTheCoordinator",
		"TestConfirmIsAtTheWorker", "TestPlansWithoutDistributedTenants",
		"TestHotStatementsNameTheTablesOfTheWorker", "TestMoveWaitsForHotTransactions",
		"TestTasksWhileATenantMoves", "TestRenumberAcrossASealedRoll",
		"TestLockedTablesStopHotTransactions", "TestDeleteWaitsForHotTransactions",
		"TestBatchesThroughTheCoordinatorAreTransactions", "TestSubmitAfterAMove",
		"TestHotStatementsWithoutTheLock", "TestRowsAreNumberedAtTheWorker",
		"TestFollowUpsGoStraightToTheWorker", "TestSubmitsGetNumbersBesideAFollowUp",
		"TestTenantsWithAnotherOwner", "TestWorkersThatAreNotTold", "TestCitusTakesStatementsByIDs",
		"TestFunctionsOfCitusAreClosed", "TestExamineWorkers", "TestExamineWaitsBrieflyForWorkers",
		"TestDeadRowsAreCountedOnWorkers")
}

// Where there is Citus, each tenant is on a worker, and the rest is on the coordinator. Numbers of
// tasks begin at 1 in the history of the worker, and tables show a size.
func TestTenantsAreOnWorkers(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setupTwo(t)
	pipe := b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 100)
	for i := range tasks {
		tasks[i] = newTask(fmt.Sprint(i))
	}
	ids := b.submit(tasks...)
	assert.Less(t, ids[0].ID.Sequence(), int64(1000))
	for _, l := range b.lease(pipe, len(tasks)) {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	b.checkTokens("pipe")
	assert.Positive(t, b.connectionsToWorkers(), "submits go straight to the worker")

	assert.Equal(t, []string{"tenant_acme", "tenant_other"}, b.distributed())
	var here, size int64
	require.NoError(t, b.db.QueryRow(t.Context(), b.at(1, `SELECT pg_relation_size('{task}'),
		tenant_acme.table_size('{task}')`)).Scan(&here, &size))
	assert.Zero(t, here)
	assert.Positive(t, size)
}

// A tenant that is on the coordinator stays there when it is made again.
func TestTenantsStayWhereTheyWere(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setupTwo(t)
	noRoles := store.WithoutRoles(true)
	made, err := store.CreateTenant(t.Context(), b.url, "here", noRoles, store.NotDistributed(true))
	require.NoError(t, err)
	require.True(t, made)
	made, err = store.CreateTenant(t.Context(), b.url, "here", noRoles)
	require.NoError(t, err)
	require.False(t, made)
	_, err = b.CreateTenant(t.Context(), "here", asyncflow.Quotas{})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	assert.Equal(t, []string{"tenant_acme", "tenant_other"}, b.distributed())

	b.exec(`CREATE SCHEMA tenant_begun`) // on a worker, as the server's default says
	b.exec(`SELECT citus_schema_undistribute('tenant_begun')`)
	made, err = store.CreateTenant(t.Context(), b.url, "begun", noRoles)
	require.NoError(t, err)
	require.True(t, made)
	assert.Equal(t, []string{"tenant_acme", "tenant_begun", "tenant_other"}, b.distributed())
}

// A tenant with a role that is on the coordinator stays there when it is made again. A later one is
// on a worker.
func TestTenantsWithRolesStayOnTheCoordinator(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	t.Parallel()
	url := pgtest.Database(t, nil)
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	made, err := store.CreateTenant(t.Context(), url, "here", store.NotDistributed(true))
	require.NoError(t, err)
	require.True(t, made)
	made, err = store.CreateTenant(t.Context(), url, "here")
	require.NoError(t, err)
	require.False(t, made)

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	var logins int
	const loginsSQL = `SELECT count(*) FROM pg_roles, asyncflow.fence
		WHERE starts_with(rolname, prefix) AND rolcanlogin`
	require.NoError(t, conn.QueryRow(t.Context(), loginsSQL).Scan(&logins))
	assert.Zero(t, logins, "without a distributed tenant no role may log in")

	made, err = store.CreateTenant(t.Context(), url, "new")
	require.NoError(t, err)
	require.True(t, made)
	var schemas string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT
		string_agg(schemaid::regnamespace::text, ' ') FROM pg_dist_schema`).Scan(&schemas))
	assert.Equal(t, "tenant_new", schemas)
	require.NoError(t, conn.QueryRow(t.Context(), loginsSQL).Scan(&logins))
	assert.Equal(t, 2, logins, "the base role and the new tenant's")
}

// A commit is confirmed by a lock in the tenant; its worker then waits for its own standby.
func TestConfirmIsAtTheWorker(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	b.put(twoStages())
	workers, err := pgtest.WorkersOf(t.Context(), b.url)
	require.NoError(t, err)
	locks := func() (all string) {
		for _, url := range workers {
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			var table, xmax string
			err = conn.QueryRow(t.Context(), `SELECT coalesce(max(s.logicalrelid::regclass || '_' ||
				s.shardid), '') FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)
				JOIN pg_dist_node n USING (groupid)
				WHERE s.logicalrelid = 'tenant_acme.numbering'::regclass
				AND n.nodeport = inet_server_port()`).Scan(&table)
			require.NoError(t, err)
			if table != "" {
				require.NoError(t, conn.QueryRow(t.Context(), `SELECT xmax::text FROM `+table).
					Scan(&xmax))
				all += table + " " + xmax
			}
			require.NoError(t, conn.Close(t.Context()))
		}
		return all
	}
	before := locks()
	require.NotEmpty(t, before)
	for _, hot := range []bool{true, false} {
		require.NoError(t, b.Confirm(t.Context(), tenant, hot))
		after := locks()
		assert.NotEqual(t, before, after, "hot: %v", hot)
		before = after
	}
}

// With Citus, but without distributed tenants, statements are planned as on plain Postgres.
func TestPlansWithoutDistributedTenants(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	t.Parallel()
	url := pgtest.Database(t, nil)
	noRoles := store.WithoutRoles(true)
	_, err := store.Migrate(t.Context(), url, noRoles)
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), url, "here", noRoles, store.NotDistributed(true))
	require.NoError(t, err)
	modes := func() string {
		s, err := store.Open(t.Context(), store.Config{URL: url, Node: "node-1", NoRoles: true,
			NotDistributed: true})
		require.NoError(t, err)
		defer s.Close()
		hot, pinned, err := s.PlanModes(t.Context(), "here")
		require.NoError(t, err)
		return hot + " " + pinned
	}
	assert.Equal(t, "force_generic_plan force_generic_plan", modes())
	_, err = store.CreateTenant(t.Context(), url, "there", noRoles)
	require.NoError(t, err)
	assert.Equal(t, "auto auto", modes(), "another tenant is on a worker")
}

// The doctor looks at the workers, too: servers for tests are found by what they don't keep.
func TestExamineWorkers(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	all, err := store.Examine(t.Context(), b.url, "", true, unread)
	require.NoError(t, err)
	var lines string
	for _, f := range all {
		lines += f.Check + ": " + f.Text + "\n"
	}
	workers, err := pgtest.WorkersOf(t.Context(), b.url)
	require.NoError(t, err)
	for _, worker := range workers {
		u, err := url.Parse(worker)
		require.NoError(t, err)
		assert.Contains(t, lines, "server: worker "+u.Host+": fsync is off")
	}
	assert.Contains(t, lines, "server: fsync is off", "of the coordinator")
	assert.NotContains(t, lines, "could not be checked")
}

// A dry run of vacuum counts the rows where they are.
func TestDeadRowsAreCountedOnWorkers(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`), newTask(`2`))
	for _, l := range b.lease(pipe, 2) {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	eventually(t, "the worker has counted", func() bool {
		n, err := b.DryRunVacuum(t.Context(), pipe.Set())
		return assert.NoError(t, err) && n > 0
	})
}

// A later migration reaches the worker of a tenant: columns, tables, indexes, rows and functions.
func TestDistributedTenantsAreMigrated(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	pipe := b.put(twoStages())
	_, err := store.MigrateSchema(t.Context(), b.url, "tenant_acme", withSecond(t, `
ALTER TABLE task_types ADD COLUMN news text;
CREATE TABLE papers (id int PRIMARY KEY, news text);
CREATE INDEX papers_news ON papers (news);
INSERT INTO papers (id, news) SELECT number, name FROM task_types;
UPDATE task_types SET news = 'none' WHERE news IS NULL;
-- +goose StatementBegin
CREATE FUNCTION papers_now() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT count(*) FROM papers);
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION papers_now() FROM PUBLIC;`))
	require.NoError(t, err)
	assert.Equal(t, 1, b.count(`SELECT tenant_acme.papers_now()`))
	assert.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.task_types WHERE news = 'none'`))
	assert.Equal(t, 1, b.count(`SELECT count(*) FROM pg_dist_partition
		WHERE logicalrelid = 'tenant_acme.papers'::regclass`))
	workers, err := pgtest.WorkersOf(t.Context(), b.url)
	require.NoError(t, err)
	for _, worker := range workers {
		conn, err := pgx.Connect(t.Context(), worker)
		require.NoError(t, err)
		var papers int
		assert.NoError(t, conn.QueryRow(t.Context(), `SELECT tenant_acme.papers_now()`).
			Scan(&papers))
		assert.Equal(t, 1, papers)
		require.NoError(t, conn.Close(t.Context()))
	}
	b.submit(newTask(`1`))
	require.Len(t, b.lease(pipe, 1), 1)
}

// Citus takes each statement that finds rows by ids, also through the coordinator.
func TestCitusTakesStatementsByIDs(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	spec := twoStages()
	spec.Searchable = []string{"user"} // its rolls come with a table of what is found by it
	pipe := b.put(spec)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for name, c := range store.ByIDSQL {
		_, err := conn.Exec(t.Context(), fill(pipe, 1, `DEALLOCATE ALL; PREPARE one AS `+c.SQL))
		require.NoError(t, err, name)
		_, err = conn.Exec(t.Context(), fill(pipe, 1, `EXECUTE one (`+byIDArgs(c.Args)+`)`))
		assert.NoError(t, err, name)
	}
}

// distributed returns the schemas that are on workers.
func (b *bundle) distributed() []string {
	b.t.Helper()
	rows, _ := b.db.Query(b.t.Context(), `SELECT schemaid::regnamespace::text
		FROM pg_dist_schema ORDER BY 1`)
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return schemas
}

// connectionsToWorkers returns the number of connections of nodes to the workers.
func (b *bundle) connectionsToWorkers() (n int) {
	b.t.Helper()
	workers, err := pgtest.WorkersOf(b.t.Context(), b.url)
	require.NoError(b.t, err)
	require.Len(b.t, workers, 2)
	for _, url := range workers {
		conn, err := pgx.Connect(b.t.Context(), url)
		require.NoError(b.t, err)
		var here int
		require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE application_name = 'asyncflow' AND datname = current_database()`).Scan(&here))
		require.NoError(b.t, conn.Close(b.t.Context()))
		n += here
	}
	return n
}

// The doctor waits for a table that is locked on a worker for a second, and says so.
func TestExamineWaitsBrieflyForWorkers(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	b.put(twoStages())
	pgtest.Hold(t, b.url, b.at(0, `LOCK TABLE {types} IN ACCESS EXCLUSIVE MODE`))
	all, err := store.Examine(t.Context(), b.url, "", true, unread)
	require.NoError(t, err)
	var lines string
	for _, f := range all {
		lines += f.Check + ": " + f.Text + "\n"
	}
	assert.Contains(t, lines, "canceling statement due to lock timeout")
}
