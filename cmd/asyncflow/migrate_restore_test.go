package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

func prepareWithoutRoles(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(true)); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, testTenant, store.WithoutRoles(true))
	return err
}

// A restore into a cluster without the roles loses them and all grants. Until they are back,
// migrate status fails and says what is missing. migrate up brings back all that there was, also
// the grants of roles that submit by SQL, once these roles exist.
func TestRightsComeBackAfterARestore(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(context.Context, string) error
		roles   string
		restore []string
	}{
		{"bare", prepareDatabase, "on", []string{"--no-owner", "--no-privileges"}},
		{"as dumped", prepareDatabase, "on", nil},
		{"without database roles", prepareWithoutRoles, "off",
			[]string{"--no-owner", "--no-privileges"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from := pgtest.Database(t, c.prepare)
			env := map[string]string{"DATABASE_URL": from, "ASYNCFLOW_DATABASE_ROLES": c.roles}
			p := startNode(t, from, "--roles=api", "--database-roles="+c.roles)
			_, err := p.client().PutTaskType(t.Context(), "pipe", client.TaskTypeSpec{
				Stages: []client.Stage{{Name: "first"}}})
			require.NoError(t, err)
			app := appRole(t, from)
			execSQL(t, from, `CREATE ROLE `+app)
			t.Cleanup(func() {
				dropRole(t, from, app)
			})
			require.Zero(t, runCLI(t, env, "tenants", "grant-submit", testTenant,
				strings.Trim(app, `"`)).code)
			r := runCLI(t, env, "migrate", "status")
			require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
			want := rightsIn(t, from)

			server := pgtest.Server(t, devpg.Config{})
			to := server.URL("postgres")
			copyDatabase(t, from, to, c.restore...)
			env = maps.Clone(env)
			env["DATABASE_URL"] = to
			r = runCLI(t, env, "migrate", "status")
			require.Equal(t, exitFailed, r.code, r.stdout)
			assert.Contains(t, r.stderr, "roles or grants are missing")
			gone := "missing: acme: the role " + strings.Trim(app, `"`) +
				", which may submit by SQL, is gone\n"
			assert.Contains(t, r.stdout, gone)
			if c.roles == "on" {
				assert.Regexp(t, `missing: acme: the tenant's database role \S+_acme is gone\n  `+
					`Do: asyncflow migrate up\n`, r.stdout)
				assert.Regexp(t, `missing: the role \S+ of the nodes is gone\n`, r.stdout)
			}

			r = runCLI(t, env, "migrate", "up")
			require.Zero(t, r.code, r.stderr)
			assert.Equal(t, 1, strings.Count(r.stdout, "missing: "), r.stdout)
			assert.Contains(t, r.stdout, gone)
			execSQL(t, to, `CREATE ROLE `+app)
			r = runCLI(t, env, "migrate", "status")
			require.Equal(t, exitFailed, r.code, r.stdout)
			name := strings.Trim(app, `"`)
			unknown := "missing: acme: the role " + name + " may submit by SQL, but may be " +
				"another one of that name: it was made anew, or the database came from another " +
				"cluster\n  Do: asyncflow tenants grant-submit acme " + name
			assert.Contains(t, r.stdout, unknown)
			r = runCLI(t, env, "migrate", "up")
			require.Zero(t, r.code)
			assert.Contains(t, r.stdout, unknown, "only the operator knows who it is")
			require.Zero(t, runCLI(t, env, "tenants", "grant-submit", testTenant, name).code)
			execSQL(t, to, `REVOKE USAGE ON SCHEMA tenant_acme FROM `+app)
			r = runCLI(t, env, "migrate", "status")
			assert.Contains(t, r.stdout, "acme: roles that submit by SQL lack 1 grants")
			r = runCLI(t, env, "migrate", "up")
			require.Zero(t, r.code)
			grant := "GRANT USAGE ON SCHEMA tenant_acme TO " + app
			assert.Contains(t, r.stdout, "tenant_acme lacked: "+grant+"\n")
			require.True(t, ask[bool](t, to, `SELECT detail::jsonb -> 'statements' ? '`+grant+`'
				FROM asyncflow.audit WHERE action = 'schema.migrate' ORDER BY id DESC LIMIT 1`))
			r = runCLI(t, env, "migrate", "status")
			require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
			assert.NotContains(t, r.stdout, "missing")
			got := rightsIn(t, to)
			assert.Empty(t, without(got, want), "nobody may do more")
			assert.Empty(t, without(want, got), "nobody may do less")
			startNode(t, to, "--database-roles="+c.roles)
			submitAs(t, to, app)

			require.Zero(t, runCLI(t, env, "tenants", "revoke-submit", testTenant,
				strings.Trim(app, `"`)).code)
			execSQL(t, to, `DROP OWNED BY `+app+`; DROP ROLE `+app)
			require.Zero(t, runCLI(t, env, "migrate", "status").code, "nothing is to come back")
		})
	}
}

// What migrate up gave back before it failed is printed, and in the audit.
func TestRightsThatCameBackBeforeAFailure(t *testing.T) {
	t.Parallel()
	url := database(t)
	require.Zero(t, tenants(t, url, "create", "zeta").code)
	app := appRole(t, url)
	execSQL(t, url, `CREATE ROLE `+app)
	t.Cleanup(func() { dropRole(t, url, app) })
	require.Zero(t, tenants(t, url, "grant-submit", testTenant, strings.Trim(app, `"`)).code)
	execSQL(t, url, `REVOKE USAGE ON SCHEMA tenant_acme FROM `+app)
	execSQL(t, url, `ALTER SCHEMA tenant_zeta RENAME TO hidden`)
	env := map[string]string{"DATABASE_URL": url}
	r := runCLI(t, env, "migrate", "up")
	require.NotZero(t, r.code)
	assert.Contains(t, r.stderr, "tenant_zeta")
	grant := "GRANT USAGE ON SCHEMA tenant_acme TO " + app
	assert.Contains(t, r.stdout, "tenant_acme lacked: "+grant+"\n")
	require.True(t, ask[bool](t, url, `SELECT detail::jsonb -> 'statements' ? '`+grant+`'
		AND outcome = 'failed' FROM asyncflow.audit
		WHERE action = 'schema.migrate' ORDER BY id DESC LIMIT 1`))
	execSQL(t, url, `ALTER SCHEMA hidden RENAME TO tenant_zeta`)
	require.Zero(t, runCLI(t, env, "migrate", "up").code)
}

// A hot standby is looked at like its primary.
func TestMigrateStatusOnAStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t, devpg.Config{})
	require.NoError(t, prepareDatabase(t.Context(), primary.URL("postgres")))
	execSQL(t, primary.URL("postgres"), `CREATE ROLE app`)
	require.Zero(t, tenants(t, primary.URL("postgres"), "grant-submit", testTenant, "app").code)
	standby := pgtest.Standby(t, primary)
	env := map[string]string{"DATABASE_URL": standby.URL("postgres")}
	r := runCLI(t, env, "migrate", "status")
	require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
	r = runCLI(t, env, "doctor", "--all")
	assert.Contains(t, r.stdout, "all database roles are there")
}

// The doctor takes the database roles for what the nodes do.
func TestDoctorWithoutRolesAfterThem(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": database(t), "ASYNCFLOW_DATABASE_ROLES": "off"}
	r := runCLI(t, env, "doctor", "--all")
	assert.Contains(t, r.stdout, "database roles are off")
}

// A user for monitoring is told which right it lacks.
func TestMonitoringUserMayNotLook(t *testing.T) {
	t.Parallel()
	own := database(t)
	u, err := url.Parse(own)
	require.NoError(t, err)
	user := fmt.Sprintf("monitor_%d", rand.Int64())
	execSQL(t, own, `CREATE ROLE `+user+` LOGIN PASSWORD 'secret' IN ROLE pg_monitor`)
	t.Cleanup(func() { dropRole(t, own, user) })
	u.User = url.UserPassword(user, "secret")
	env := map[string]string{"DATABASE_URL": u.String()}
	r := runCLI(t, env, "migrate", "status")
	require.NotZero(t, r.code)
	assert.Contains(t, r.stderr, "this user may not look at the schemas: use that of the nodes")
	assert.Contains(t, r.stderr, "permission denied for schema asyncflow")
	r = runCLI(t, env, "doctor", "--all")
	assert.Contains(t, r.stdout, "run the doctor as the user of the nodes")
	assert.NotContains(t, r.stdout, "could not be checked")
}

// A role that somebody makes anew under the name of a submitter isn't given its rights.
func TestRightsOfARoleThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	url := database(t)
	app := appRole(t, url)
	name := strings.Trim(app, `"`)
	execSQL(t, url, `CREATE ROLE `+app)
	t.Cleanup(func() { dropRole(t, url, app) })
	require.Zero(t, tenants(t, url, "grant-submit", testTenant, name).code)
	execSQL(t, url, `REVOKE USAGE ON SCHEMA tenant_acme FROM `+app)
	env := map[string]string{"DATABASE_URL": url}
	may := func() bool {
		t.Helper()
		require.Zero(t, runCLI(t, env, "migrate", "up").code)
		return ask[bool](t, url,
			`SELECT has_schema_privilege('`+name+`', 'tenant_acme', 'USAGE')`)
	}
	require.True(t, may())
	dropRole(t, url, app)
	execSQL(t, url, `CREATE ROLE `+app)
	require.False(t, may())
	r := runCLI(t, env, "migrate", "status")
	require.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, "may be another one of that name")
	require.Zero(t, tenants(t, url, "grant-submit", testTenant, name).code)
	require.Zero(t, runCLI(t, env, "migrate", "status").code)
}

// A role that is gone can be forgotten.
func TestRevokeSubmitOfARoleThatIsGone(t *testing.T) {
	t.Parallel()
	url := database(t)
	app := appRole(t, url)
	name := strings.Trim(app, `"`)
	execSQL(t, url, `CREATE ROLE `+app)
	require.Zero(t, tenants(t, url, "grant-submit", testTenant, name).code)
	dropRole(t, url, app)
	env := map[string]string{"DATABASE_URL": url}
	require.Equal(t, exitFailed, runCLI(t, env, "migrate", "status").code)
	require.Zero(t, tenants(t, url, "revoke-submit", testTenant, name).code)
	require.Zero(t, runCLI(t, env, "migrate", "status").code)
	r := tenants(t, url, "revoke-submit", testTenant, name)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "no role of this Postgres")
}

// submitAs submits a task as a role. After a restore, a node makes other tables first.
func submitAs(t *testing.T, url, role string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `SET ROLE `+role)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := conn.Exec(t.Context(), `SELECT tenant_acme.submit_task('pipe', '1')`)
		assert.NoError(c, err)
	}, patience, 100*time.Millisecond)
}

// without returns the lines that are not in others.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return slices.Contains(others, line)
	})
}

// appRole returns the quoted name of a role for an application of a database.
func appRole(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	return pgx.Identifier{config.Database + "-app"}.Sanitize()
}

func dropRole(t *testing.T, url, role string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
	require.NoError(t, err)
}

// copyDatabase dumps a database and restores it into another one. A restore of grants to roles that
// don't exist goes on without them.
func copyDatabase(t *testing.T, from, to string, options ...string) {
	t.Helper()
	dump, err := exec.LookPath("pg_dump")
	if err != nil {
		t.Skip("pg_dump is missing")
	}
	file := filepath.Join(t.TempDir(), "dump")
	out, err := exec.CommandContext(t.Context(), dump, "-Fc", "-f", file, from).CombinedOutput()
	if strings.Contains(string(out), "server version mismatch") {
		t.Skip("pg_dump is older than the server")
	}
	require.NoError(t, err, "%s", out)
	args := append(options, "-d", to, file)
	out, err = exec.CommandContext(t.Context(), "pg_restore", args...).CombinedOutput()
	if len(options) > 0 {
		require.NoError(t, err, "%s", out)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, "ERROR:") {
			require.Regexp(t, `role ".*" does not exist`, line)
		}
	}
}

// rightsIn returns who may do what in the schemas of a database.
func rightsIn(t *testing.T, url string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `
		WITH n AS (SELECT * FROM pg_namespace WHERE nspname IN ('asyncflow', 'tenant_acme')),
		  c AS (SELECT c.* FROM pg_class c JOIN n ON relnamespace = n.oid
		    WHERE relkind IN ('r', 'p', 'v', 'S'))
		SELECT concat_ws(' ', what, CASE WHEN a.grantee = 0 THEN 'PUBLIC'
		    ELSE a.grantee::regrole::text END, a.privilege_type)
		FROM (SELECT nspname::text, coalesce(nspacl, acldefault('n', nspowner)) FROM n
		  UNION ALL SELECT oid::regclass::text,
		    coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char",
		      relowner)) FROM c
		  UNION ALL SELECT c.oid::regclass || '.' || attname, attacl
		    FROM c JOIN pg_attribute ON attrelid = c.oid
		  UNION ALL SELECT p.oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
		    FROM pg_proc p JOIN n ON pronamespace = n.oid) AS s (what, acl), aclexplode(acl) a
		ORDER BY 1`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(all), 200)
	return all
}
