package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

func TestSplitJobs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"rescue=@every 5s":               {"rescue=@every 5s"},
		"rescue=@every 5s,forget=off":    {"rescue=@every 5s", "forget=off"},
		"fold=0,30 3 * * 1,2,forget=off": {"fold=0,30 3 * * 1,2", "forget=off"},
		"fold=CRON_TZ=Asia/Tokyo 5 3 * * *,rescue=off": {"fold=CRON_TZ=Asia/Tokyo 5 3 * * *",
			"rescue=off"},
	} {
		t.Run(text, func(t *testing.T) {
			assert.Equal(t, want, splitJobs(text))
		})
	}
	timetable, err := jobFlags{Job: []string{"rescue = @every 5s,forget=off",
		"fold=0,30 3 * * *"}}.timetable()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"rescue": "@every 5s", "forget": "off",
		"fold": "0,30 3 * * *"}, timetable)
}

// An invalid timetable of a job is named at the start.
func TestBadSchedules(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none",
		"ASYNCFLOW_SECRET": testSecret, "ASYNCFLOW_JWT_SECRET": testJWTSecret}
	for jobs, want := range map[string]string{
		"nope=@every 5s":          `asyncflow: --job job is "nope"; the jobs are rescue, promote,`,
		"rescue=often":            `--job job rescue has the times "often"; it must be like @every 5s`,
		"rescue":                  `asyncflow: --job has "rescue"; it must be NAME=SPEC`,
		"fold=off,fold=@every 5s": `--job has "fold=@every 5s"; it must be NAME=SPEC, each job once`,
	} {
		t.Run(jobs, func(t *testing.T) {
			env["ASYNCFLOW_JOBS"] = jobs
			r := runCLI(t, env, "serve")
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, want)
			delete(env, "ASYNCFLOW_JOBS")
			r = runCLI(t, env, "dev", "--job="+jobs)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, want)
		})
	}
}

// execSQL changes the database directly.
func execSQL(t *testing.T, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestGovernanceFromTheCommandLine(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	p := startNode(t, url, "--roles=api,governance", "--job=rescue=off,fold=30 3 * * *")
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), oneStage())
	submitMany(t, p.client(), 5)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "leaser",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	defer s.Close()
	pipe, err := s.Catalog.Type(testTenant, "pipe")
	require.NoError(t, err)
	leaseAll(t, s, pipe, 5)
	execSQL(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	execSQL(t, url,
		`INSERT INTO asyncflow.nodes VALUES ('dead', 'dispatcher', 'v0',
		now() - interval '1 h', now() - interval '1 min')`)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_URL": closedURL(t)}

	r := runCLI(t, env, "governance", "run", "rescue", "--dry-run")
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "acme    pipe  5\n")
	assert.Contains(t, r.stdout, "rescue would move 5 rows; nothing was changed\n")
	r = runCLI(t, env, "governance", "run", "rescue", "--dry-run", "-o", "json")
	assert.JSONEq(t,
		`{"job":"rescue","dry_run":true,"rows":5,"data":[{"tenant":"acme","type":"pipe","rows":5}]}`,
		r.stdout)
	r = runCLI(t, env, "governance", "run", "rescue")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `^rescue moved 5 rows in \S+\n$`, r.stdout)
	for _, job := range []string{"promote", "vacuum", "operations", "children", "expire-keys",
		"fold", "forget", "erase"} {
		t.Run(job, func(t *testing.T) {
			require.Zero(t, runCLI(t, env, "governance", "run", job).code)
			require.Zero(t, runCLI(t, env, "governance", "run", job, "--dry-run").code)
		})
	}
	r = runCLI(t, env, "governance", "run", "nope")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, `job is "nope"; the jobs are rescue`)

	var status client.Governance
	require.Eventually(t, func() bool { // the node registers itself some time after its start
		r = runCLI(t, env, "governance", "status", "-o", "json")
		require.Zero(t, r.code, r.stderr)
		status = client.Governance{}
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &status))
		return len(status.Nodes) > 1 && status.Nodes[1].State == "alive"
	}, patience, 20*time.Millisecond)
	rescue := status.Jobs[0]
	assert.Equal(t, []any{"rescue", "off", "ok", int64(5)},
		[]any{rescue.Name, rescue.Schedule, string(rescue.Outcome), rescue.Rows})
	assert.True(t, rescue.NextAt.IsZero())
	i := slices.IndexFunc(status.Jobs, func(j client.Job) bool { return j.Name == "fold" })
	assert.Equal(t, "30 3 * * *", status.Jobs[i].Schedule, "a run by hand doesn't change it")
	assert.Equal(t, 3, status.Jobs[i].NextAt.UTC().Hour())
	require.Len(t, status.Nodes, 2, "a command is no node")
	assert.Equal(t, []any{"dead", "gone"}, []any{status.Nodes[0].ID, string(status.Nodes[0].State)})
	assert.Equal(t, []any{[]string{"api", "governance"}, "alive"},
		[]any{status.Nodes[1].Roles, string(status.Nodes[1].State)})
	r = runCLI(t, env, "governance", "status")
	assert.Regexp(t, `(?m)^dead +dispatcher +v0 .* gone$`, r.stdout)
	assert.Regexp(t, `(?m)^rescue +off +\S+Z +\S+ +\S+ +5 +0 +- +ok$`, r.stdout)
}

// A node that is killed or stopped in the middle of a job blocks nothing: its transaction ends,
// and another node does the job.
func TestAnotherNodeTakesOver(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL,
		"stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			a := startNode(t, url, "--roles=api,governance", "--job=rescue=@every 1s")
			w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
			w.pipe(t, a.client(), oneStage())
			ids := submitMany(t, a.client(), 3)
			s, err := store.Open(t.Context(), store.Config{URL: url, Node: "leaser",
				NoRoles: pgtest.NoRoles()})
			require.NoError(t, err)
			defer s.Close()
			pipe, err := s.Catalog.Type(testTenant, "pipe")
			require.NoError(t, err)
			leaseAll(t, s, pipe, len(ids))

			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			barrier, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = barrier.Exec(t.Context(), `LOCK TABLE tenant_acme.journal_1 IN SHARE MODE`)
			require.NoError(t, err)
			execSQL(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
			// The job holds its lock and waits for the journal, until the barrier is gone.
			inTheMiddle := func() (waits bool) {
				err := conn.QueryRow(t.Context(), `
					SELECT EXISTS (SELECT FROM pg_locks a JOIN pg_locks w USING (pid)
					WHERE a.locktype = 'transactionid' AND a.granted AND NOT w.granted
					AND w.relation = 'tenant_acme.journal_1'::regclass
					AND w.database = (SELECT oid FROM pg_database
						WHERE datname = current_database()))`).Scan(&waits)
				require.NoError(t, err)
				return waits
			}
			require.Eventually(t, inTheMiddle, patience, 20*time.Millisecond)
			a.halt(end)
			require.NoError(t, barrier.Rollback(t.Context()))

			b := startNode(t, url, "--roles=api,governance", "--job=rescue=@every 1s")
			for _, id := range ids {
				require.Eventually(t, func() bool {
					attempts, err := b.client().Attempts(t.Context(), id)
					return err == nil && len(attempts) == 1 && attempts[0].Outcome == "lost"
				}, patience, 20*time.Millisecond)
				task, err := b.client().Get(t.Context(), id)
				require.NoError(t, err)
				assert.Equal(t, asyncflow.StatusPending, task.Status)
				assert.Equal(t, 2, task.Attempt)
			}
			assert.NotContains(t, a.said(), "level=INFO msg=job job=rescue")
			const done = "level=INFO msg=job job=rescue rows=3 "
			require.Eventually(t, func() bool { return strings.Contains(b.said(), done) },
				patience, 20*time.Millisecond)
			require.Eventually(t, func() bool { return rescuer(t, url) == b.node(t) },
				patience, 20*time.Millisecond, "the last run is of the node that is left")
		})
	}
}

// leaseAll leases n tasks. It tries again, since the clock of the store may be behind that of
// the node that took them.
func leaseAll(t *testing.T, s *store.Store, pipe *store.Type, n int) {
	t.Helper()
	leased := 0
	require.Eventually(t, func() bool {
		leases, _, err := s.Lease(t.Context(), pipe, n)
		require.NoError(t, err)
		leased += len(leases)
		return leased == n
	}, patience, 10*time.Millisecond)
}

// rescuer returns the node of the last run of the job rescue that was recorded.
func rescuer(t *testing.T, database string) (node string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	err = conn.QueryRow(t.Context(),
		`SELECT coalesce(node, '') FROM asyncflow.jobs WHERE name = 'rescue'`).Scan(&node)
	require.NoError(t, err)
	return node
}
