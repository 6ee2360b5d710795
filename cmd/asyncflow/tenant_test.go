package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// tenants runs a command about tenants on a database.
func tenants(t *testing.T, url string, args ...string) ran {
	t.Helper()
	return runCLI(t, map[string]string{"DATABASE_URL": url},
		append([]string{"tenants"}, args...)...)
}

func TestTenantsCommands(t *testing.T) {
	t.Parallel()
	tenantsCommands(t, amongStrangers(t))
}

func tenantsCommands(t *testing.T, url string) {
	r := tenants(t, url, "create", "globex")
	assert.Equal(t,
		ran{0, "tenant globex created; asyncflow token create --tenant globex makes a token for " +
			"it\n",
			""}, r)
	assert.Equal(t, ran{0, "tenant globex exists already\n", ""},
		tenants(t, url, "create", "globex"))
	r = tenants(t, url, "set-quota", "globex", "pending_tasks=100", "submits_per_second=none", "-o",
		"json")
	require.Zero(t, r.code, r.stderr)
	var doc api.Tenant
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &doc))
	assert.Equal(t, asyncflow.Quotas{PendingTasks: 100, SubmitsPerSecond: -1}, doc.Quotas)
	r = tenants(t, url, "set-quota", "globex", "submits_per_second=default")
	assert.Contains(t, r.stdout, "own quotas  pending_tasks=100\n")
	r = tenants(t, url, "set-quota", "globex", "tasks=3")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "quotas.tasks is not a quota")
	r = runCLI(t, map[string]string{"DATABASE_URL": url,
		"ASYNCFLOW_DEFAULT_QUOTAS": "task_types=9,concurrency=5"}, "tenants", "get", "globex")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `task_types +9 +0 +default`, r.stdout)
	assert.Regexp(t, `pending_tasks +100 +0 +own`, r.stdout)
	assert.Regexp(t, `context_bytes +none +- +default`, r.stdout)

	assert.Contains(t, tenants(t, url, "suspend", "globex", "--reason", "unpaid").stdout, "unpaid")
	assert.Regexp(t, `(?m)^globex +suspended .* unpaid$`, tenants(t, url, "list").stdout)
	assert.Regexp(t, `state +active`, tenants(t, url, "resume", "globex").stdout)
	r = tenants(t, url, "delete", "globex", "--grace", "48h")
	assert.Regexp(t, `state +deleted`, r.stdout)
	assert.Equal(t, exitFailed, tenants(t, url, "create", "globex").code)
	assert.Equal(t, exitFailed, tenants(t, url, "suspend", "globex").code)
	assert.Regexp(t, `state +active`, tenants(t, url, "restore", "globex").stdout)
	assert.Equal(t, exitUsage, tenants(t, url, "delete", "globex", "--grace", "-1h").code)
	assert.Equal(t, exitNotFound, tenants(t, url, "get", "nobody").code)
	assert.Zero(t, tenants(t, url, "delete", "globex", "--now").code)
	r = runCLI(t, map[string]string{"DATABASE_URL": url}, "governance", "run", "drop-tenants")
	require.Zero(t, r.code, r.stderr)
	var list struct{ Data []api.Tenant }
	require.NoError(t, json.Unmarshal([]byte(tenants(t, url, "list", "-o", "json").stdout), &list))
	require.Len(t, list.Data, 1)
	assert.Equal(t, testTenant, list.Data[0].Slug)
}

// The tenants in trouble are listed by the command and by the client.
func TestTenantsInTrouble(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := startNode(t, url)
	require.Zero(t, tenants(t, url, "create", "globex").code)
	_, err := p.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `INSERT INTO tenant_acme.tallies (type, at, failed)
		VALUES ('pipe', now() - interval '5 min', 1730)`)
	require.NoError(t, err)
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_SECRET": testSecret}
	r := runCLI(t, env, "governance", "run", "history")
	require.Zero(t, r.code, r.stderr)
	r = tenants(t, url, "list", "--trouble")
	assert.Regexp(t, `^TENANT +ALERTS +DUE +OLDEST_DUE +FAILED_LAST_HOUR\n`+
		testTenant+` +0 +0 +- +1730\n$`, r.stdout, r.stderr)
	worst, err := adminClient(t, p.url).TroubledTenants(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, worst.Data, 1)
	assert.Equal(t, client.TenantHealth{FailedLastHour: 1730}, worst.Data[0].Health)
	var list client.TenantList
	r = tenants(t, url, "list", "--trouble", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	assert.Equal(t, worst, list)
}

func TestDefaultQuotasFlag(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"tasks=1", "pending_tasks=x", "pending_tasks"} {
		t.Run(bad, func(t *testing.T) {
			r := runCLI(t, map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x",
				"ASYNCFLOW_SECRET": testSecret, "ASYNCFLOW_JWT_SECRET": testJWTSecret},
				"serve", "--default-quotas", bad)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, "--default-quotas")
		})
	}
}

// adminClient returns a client for administration at a URL.
func adminClient(t *testing.T, url string) *client.Client {
	t.Helper()
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(testJWTSecret)
	issuer, err := auth.NewIssuer(cfg)
	require.NoError(t, err)
	token, err := issuer.IssueAdmin("operator", time.Hour, time.Now())
	require.NoError(t, err)
	c, err := client.New(url, token)
	require.NoError(t, err)
	return c
}

var adminLine = regexp.MustCompile(`administration is served" listen=(\S+)`)

// The client uses the administration at its separate address, on two nodes.
func TestAdminListen(t *testing.T) {
	t.Parallel()
	url := database(t)
	a, b := startNode(t, url, "--admin-listen=127.0.0.1:0",
		"--default-quotas=task_types=3"), startNode(t, url)
	m := adminLine.FindStringSubmatch(a.said())
	require.NotNil(t, m, a.said())
	admin := adminClient(t, "http://"+m[1])
	_, err := adminClient(t, a.url).Tenant(t.Context(), testTenant)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "not at the public address")
	for _, address := range []string{a.url, "http://" + m[1]} { // the console is at both
		resp, err := http.Get(address + "/console")
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
	}

	made, err := admin.CreateTenant(t.Context(), "globex", client.Quotas{Concurrency: 4})
	require.NoError(t, err)
	assert.EqualValues(t, 4, made.Quotas.Concurrency)
	page, err := admin.Tenants(t.Context(), 1, "")
	require.NoError(t, err)
	require.NotEmpty(t, page.NextCursor)
	page, err = admin.Tenants(t.Context(), 1, page.NextCursor)
	require.NoError(t, err)
	assert.Equal(t, "globex", page.Data[0].Slug)
	c, err := client.New(b.url, tokenOf(t, "globex"))
	require.NoError(t, err)
	_, err = c.TaskTypes(t.Context())
	require.NoError(t, err, "the other node has it too")
	quotas, err := c.Quota(t.Context())
	require.NoError(t, err)
	require.Len(t, quotas, 10)

	_, err = admin.SuspendTenant(t.Context(), "globex", "unpaid")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.TaskTypes(t.Context())
		return err != nil && asyncflow.CodeOf(err) == asyncflow.CodeSuspended
	}, patience, 10*time.Millisecond, "within about a second")
	_, err = admin.ResumeTenant(t.Context(), "globex")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.TaskTypes(t.Context())
		return err == nil
	}, patience, 10*time.Millisecond)
	deleted, err := admin.DeleteTenant(t.Context(), "globex", 48*time.Hour)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(48*time.Hour), deleted.DropAt, time.Minute)
	deleted, err = admin.DeleteTenant(t.Context(), "globex", -1)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(48*time.Hour), deleted.DropAt, time.Minute)
	restored, err := admin.RestoreTenant(t.Context(), "globex")
	require.NoError(t, err)
	assert.Equal(t, asyncflow.TenantActive, restored.State)
}

// A node is killed (kill -9) while it drops a tenant with 200 task types with tables of their own;
// another node continues, and the tenant can be created again.
func TestKilledWhileDropping(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "setup",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	defer s.Close()
	const types = 100
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < types; i += 4 {
				_, _, err := s.PutTaskType(t.Context(), testTenant,
					asyncflow.TaskType{Name: fmt.Sprint("t", i),
						RollRows: 2 * asyncflow.DefaultRollRows,
						Stages:   []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(t.Context())
	left := func() (n int) {
		require.NoError(t, db.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_tables WHERE schemaname = 'tenant_`+testTenant+`'`).Scan(&n))
		return n
	}
	all := left()
	require.Greater(t, all, 3*types)
	_, err = s.DeleteTenant(t.Context(), testTenant, new(time.Duration))
	require.NoError(t, err)
	startDropping := func() *process {
		return startNode(t, url, "--roles=governance", "--public-url=http://127.0.0.1:1",
			"--job=drop-tenants=@every 1s")
	}
	for n := all; n > all/2; n = left() {
		release := reads(t, url, all/4)
		p := startDropping()
		require.Eventually(t, func() (waits bool) {
			require.NoError(t, db.QueryRow(t.Context(),
				`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype =
					'relation')`).Scan(&waits))
			return waits
		}, patience, 20*time.Millisecond, "it is in the middle of it")
		p.kill()
		require.Less(t, left(), n)
		r := tenants(t, url, "create", testTenant)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "is being dropped")
		release()
	}
	startDropping()
	require.Eventually(t,
		func() bool {
			return strings.Contains(tenants(t, url, "create", testTenant).stdout,
				"created")
		},
		patience, 50*time.Millisecond)
}

// reads locks a table some tables further on, by name, so that the drop waits there.
func reads(t *testing.T, url string, further int) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	var table string
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
		WHERE schemaname = 'tenant_`+testTenant+`' ORDER BY tablename OFFSET $1 LIMIT 1`,
		further).Scan(&table))
	_, err = conn.Exec(t.Context(), `BEGIN; LOCK TABLE `+table+` IN ACCESS SHARE MODE`)
	require.NoError(t, err)
	return func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }
}

// A database role gets the right to submit by SQL, and loses it again; both are in the audit.
func TestTenantsGrantSubmit(t *testing.T) {
	t.Parallel()
	url := database(t)
	require.Zero(t, tenants(t, url, "create", "globex").code)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var role string
	require.NoError(t, conn.QueryRow(t.Context(),
		`SELECT current_database() || '-shop'`).Scan(&role))
	_, err = conn.Exec(t.Context(), `CREATE ROLE "`+role+`"`)
	require.NoError(t, err)
	defer func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()),
			`DROP OWNED BY "`+role+`"; DROP ROLE "`+role+`"`)
		assert.NoError(t, err)
	}()
	may := func() (granted bool) {
		err := conn.QueryRow(t.Context(),
			`SELECT has_schema_privilege($1, 'tenant_globex', 'USAGE') AND has_function_privilege($1,
				oid, 'EXECUTE')
			FROM pg_proc WHERE pronamespace = 'tenant_globex'::regnamespace AND proname = 'submit_task'`,
			role).Scan(&granted)
		require.NoError(t, err)
		return granted
	}
	require.False(t, may())
	assert.Equal(t, ran{0, "role " + role + " may submit tasks of tenant globex by SQL\n", ""},
		tenants(t, url, "grant-submit", "globex", role))
	assert.True(t, may())
	assert.Equal(t, ran{0, "role " + role +
		" may not submit tasks of tenant globex by SQL any more\n",
		""}, tenants(t, url, "revoke-submit", "globex", role))
	assert.False(t, may())
	r := tenants(t, url, "grant-submit", "globex", "nobody-there")
	assert.Equal(t, exitFailed, r.code, r.stderr)
	assert.Contains(t, r.stderr, "nobody-there")
	assert.Equal(t, exitNotFound, tenants(t, url, "grant-submit", "nobody", role).code)
	rows, err := conn.Query(t.Context(),
		`SELECT action || ' ' || object || ' ' || outcome || ' ' || (detail ->> 'role') FROM
			asyncflow.audit WHERE action LIKE 'tenant.%_submit' ORDER BY at, id`)
	require.NoError(t, err)
	entries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Equal(t, []string{"tenant.grant_submit globex done " + role,
		"tenant.revoke_submit globex done " + role,
		"tenant.grant_submit globex refused nobody-there", "tenant.grant_submit nobody refused " +
			role},
		entries)
}
