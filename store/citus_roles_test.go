package store_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// The tests of this package that also run on Citus with database roles.
func TestRolesOnCitus(t *testing.T) {
	t.Parallel()
	pgtest.OnCitusWithRoles(t, "TestTenantsAreOnWorkers", "TestSecondFence", "TestRolesMayLittle",
		"TestForgottenRole", "TestEveryStatementHasItsRole", "TestRoleOutsideOfATransaction",
		"TestSQLSubmit", "TestSQLSubmitRoleMayOnlySubmit", "TestGrantSubmit",
		"TestFunctionsOfCitusAreClosed",
		"TestRolesMayLittleOnWorkers", "TestSubmittersMayLittleOnWorkers",
		"TestRolesKeepNoConnections", "TestAuditIsFencedAfterAMove", "TestMigrateToRolesOnCitus",
		"TestTasksWhileATenantMoves", "TestHotStatementsNameTheTablesOfTheWorker",
		"TestRollsLife", "TestDropTenantRole", "TestDistributedTenantsAreMigrated")
}

// Workers that let nobody in: a test of its own, as all others need them.
func TestLoginsOnCitus(t *testing.T) {
	t.Parallel()
	pgtest.OnCitusWithRoles(t, "TestWorkersMustLetRolesLogIn")
}

func citusWithRoles(t *testing.T) {
	t.Helper()
	if !pgtest.OnCitus() || pgtest.NoRoles() {
		t.Skip("TestRolesOnCitus runs it")
	}
}

// login connects to a server as a role. The servers of tests trust everyone.
func (b *bundle) login(server, role string) *pgx.Conn {
	b.t.Helper()
	u, err := url.Parse(server)
	require.NoError(b.t, err)
	u.User = url.User(role)
	conn, err := pgx.Connect(b.t.Context(), u.String())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// servers returns the URLs of the coordinator and the workers.
func (b *bundle) servers() []string {
	b.t.Helper()
	workers, err := pgtest.WorkersOf(b.t.Context(), b.url)
	require.NoError(b.t, err)
	require.Len(b.t, workers, 2)
	return append([]string{b.url}, workers...)
}

// shard returns the name of a table of a tenant on its worker, and its number.
func (b *bundle) shard(tenant, table string) (name string, number int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT shard_name(logicalrelid, shardid),
		shardid FROM pg_dist_shard WHERE logicalrelid = $1::text::regclass`,
		"tenant_"+tenant+"."+table).Scan(&name, &number))
	return name, number
}

// contents returns all rows of the tables of a tenant, as its worker has them.
func (b *bundle) contents(tenant string) (text string) {
	b.t.Helper()
	here, _ := b.place(tenant)
	conn, err := pgx.Connect(b.t.Context(), here)
	require.NoError(b.t, err)
	defer conn.Close(context.Background())
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT string_agg(table_to_xml(
		shard_name(logicalrelid, shardid)::regclass, true, false, '')::text, '' ORDER BY shardid)
		FROM pg_dist_shard JOIN pg_class c ON c.oid = logicalrelid
		WHERE relnamespace = $1::text::regnamespace`, "tenant_"+tenant).Scan(&text))
	return text
}

// A role of a tenant that logs in at the coordinator or at a worker, and runs any SQL there, reads
// and changes nothing of another tenant, and not the audit of its own.
func TestRolesMayLittleOnWorkers(t *testing.T) {
	citusWithRoles(t)
	b := setupTwo(t)
	for _, name := range []string{tenant, "other"} {
		b.putOf(name, twoStages())
		for _, r := range b.Submit(t.Context(), name, []asyncflow.NewTask{newTask(`"secret"`)}) {
			require.NoError(t, r.Err)
		}
	}
	acme, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	other, err := b.RoleOf(t.Context(), "other")
	require.NoError(t, err)
	before := b.contents("other")
	require.Contains(t, before, "secret")
	for _, server := range b.servers() {
		conn := b.login(server, acme)
		for _, sql := range b.attacks(other) {
			_, err := conn.Exec(t.Context(), sql)
			assert.Error(t, err, "%s: %s", server, sql)
		}
		for _, sql := range []string{`SELECT count(*) FROM tenant_other.task_1`,
			`DELETE FROM tenant_other.ready_1`} {
			for _, run := range []string{`SELECT success, result FROM run_command_on_workers($1)`,
				`SELECT success, result FROM run_command_on_all_nodes($1)`} {
				rows, err := conn.Query(t.Context(), run, sql)
				require.NoError(t, err)
				var success bool
				var result string
				_, err = pgx.ForEachRow(rows, []any{&success, &result}, func() error {
					assert.False(t, success, "%s: %s: %s", server, sql, result)
					return nil
				})
				require.NoError(t, err)
			}
		}
	}
	assert.Equal(t, before, b.contents("other"))
	b.checkRoleOf(tenant)
}

// attacks are statements of another tenant's role that must fail on all servers.
func (b *bundle) attacks(other string) []string {
	name, number := b.shard("other", "task_1")
	audit, _ := b.shard(tenant, "audit")
	_, rolls := b.shard("other", "rolls")
	return []string{
		`SELECT FROM tenant_other.task_1`, `SELECT FROM ` + name, `DELETE FROM ` + name,
		`SELECT FROM tenant_other.task_types`, `UPDATE tenant_other.numbering SET first_number = 1`,
		`SET ROLE "` + other + `"`, `SET SESSION AUTHORIZATION "` + other + `"`,
		`SET ROLE "` + b.BaseRole() + `"`, `SET ROLE asyncflow`,
		`ALTER ROLE "` + other + `" PASSWORD 'mine'`,
		`ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'`,
		`GRANT "` + other + `" TO CURRENT_USER`,
		`SELECT * FROM pg_dist_authinfo`, `SELECT * FROM pg_authid`,
		fmt.Sprintf(`SELECT lock_shard_metadata(7, ARRAY[%d::bigint])`, rolls),
		fmt.Sprintf(`SELECT lock_shard_resources(7, ARRAY[%d::bigint])`, rolls),
		fmt.Sprintf(`SELECT worker_apply_shard_ddl_command(%d, 'tenant_other',
			'DROP TABLE tenant_other.task_1')`, number),
		`SELECT citus_schema_undistribute('tenant_other')`,
		`SELECT citus_schema_move('tenant_other', nodename, nodeport)
			FROM pg_dist_node WHERE groupid > 0`,
		fmt.Sprintf(`SELECT citus_move_shard_placement(%d, a.nodename, a.nodeport, b.nodename,
			b.nodeport) FROM pg_dist_node a, pg_dist_node b WHERE a.groupid > 0 AND b.groupid > 0`,
			number),
		fmt.Sprintf(`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.update_placement_metadata(%[1]d, a.groupid, b.groupid)
			FROM pg_dist_placement a, pg_dist_node b
			WHERE shardid = %[1]d AND b.groupid NOT IN (0, a.groupid)`, number),
		`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.delete_partition_metadata('tenant_other.task_1'::regclass)`,
		fmt.Sprintf(`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.delete_shard_metadata(%d)`, number),
		fmt.Sprintf(`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.add_placement_metadata(%d, 1, 1, 1000000000)`, number),
		`SELECT citus_internal.delete_tenant_schema('tenant_other'::regnamespace)`,
		`SELECT pg_catalog.citus_internal_delete_tenant_schema('tenant_other'::regnamespace)`,
		`SELECT citus_internal.add_tenant_schema('public'::regnamespace, 1)`,
		fmt.Sprintf(`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.delete_placement_metadata(placementid) FROM pg_dist_placement
			WHERE shardid = %d`, number),
		`SET application_name = 'citus_internal gpid=1';
			SELECT citus_internal.update_none_dist_table_metadata(logicalrelid, 's', 1, false)
			FROM pg_dist_partition`,
		`DELETE FROM pg_dist_shard`, `UPDATE pg_dist_placement SET groupid = 1`,
		`SELECT citus_add_node('127.0.0.1', 1)`, `SELECT citus_remove_node('127.0.0.1', 1)`,
		`CREATE TABLE public.x (i int)`, `CREATE SCHEMA x`,
		`CREATE TABLE tenant_other.x (i int)`,
		`DELETE FROM tenant_acme.audit`, `DELETE FROM ` + audit, `UPDATE ` + audit + ` SET at = at`,
		`TRUNCATE ` + audit,
		`SELECT tenant_other.submit_task('pipe', '1')`,
	}
}

// checkRoleOf checks what a tenant's role is on all servers.
func (b *bundle) checkRoleOf(tenant string) {
	b.t.Helper()
	role, err := b.RoleOf(b.t.Context(), tenant)
	require.NoError(b.t, err)
	for _, server := range b.servers() {
		conn, err := pgx.Connect(b.t.Context(), server)
		require.NoError(b.t, err)
		var memberOf []string
		var plain bool
		require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT NOT (rolsuper OR rolcreaterole
			OR rolcreatedb OR rolreplication OR rolbypassrls) AND rolcanlogin
			AND rolvaliduntil = '-infinity',
			(SELECT array_agg(g.rolname::text) FROM pg_roles g
			  WHERE g.oid <> r.oid AND pg_has_role(r.oid, g.oid, 'MEMBER'))
			FROM pg_roles r WHERE rolname = $1`, role).Scan(&plain, &memberOf))
		assert.True(b.t, plain, server)
		assert.Equal(b.t, []string{b.BaseRole() + "-logins"}, memberOf, server)
		var may int
		require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT
			(SELECT count(*) FROM pg_class c, aclexplode(relacl) a, pg_roles g
			  WHERE a.grantee = g.oid AND g.rolname = $1)
			+ (SELECT count(*) FROM pg_namespace n, aclexplode(nspacl) a, pg_roles g
			  WHERE a.grantee = g.oid AND g.rolname = $1)`, b.BaseRole()+"-logins").Scan(&may))
		assert.Zero(b.t, may, "the common role of logins has no right")
		require.NoError(b.t, conn.Close(b.t.Context()))
	}
}

// A role that submits by SQL may do nothing else, on a worker either.
func TestSubmittersMayLittleOnWorkers(t *testing.T) {
	citusWithRoles(t)
	b := setupTwo(t)
	b.put(twoStages())
	b.putOf("other", twoStages())
	b.submit(newTask(`1`))
	app := b.app()
	role := appRole(t, b)
	_, err := b.db.Exec(t.Context(), `ALTER ROLE `+role+` LOGIN`)
	require.NoError(t, err)
	require.NoError(t, app.Close(t.Context()))
	task, _ := b.shard(tenant, "task_1")
	for i, server := range b.servers() {
		conn := b.login(server, strings.Trim(role, `"`))
		_, err := b.bySQL(conn, `'pipe', '1'`)
		if i == 0 {
			require.NoError(t, err, server)
		}
		for _, sql := range []string{`SELECT FROM tenant_acme.task_1`, `SELECT FROM ` + task,
			`DELETE FROM ` + task, `SELECT tenant_acme.number_from(1)`,
			`SELECT tenant_acme.history(0)`, `SELECT tenant_acme.table_size('pg_class')`,
			`SELECT tenant_other.submit_task('pipe', '1')`,
			`CREATE TABLE tenant_acme.x (i int)`} {
			_, err := conn.Exec(t.Context(), sql)
			assert.Contains(t, []string{pgerrcode.InsufficientPrivilege,
				pgerrcode.UndefinedTable}, sqlState(err), "%s: %s: %v", server, sql, err)
		}
	}
}

// Functions of Citus that take another tenant's tables from its lists are closed to other roles on
// each server, without roles of tenants as well. Where they are open, the doctor says so, and a
// migration closes them.
func TestFunctionsOfCitusAreClosed(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestStoreOnCitus runs it")
	}
	b := setup(t)
	u, err := url.Parse(b.url)
	require.NoError(t, err)
	role := "stranger_" + strings.TrimPrefix(u.Path, "/")
	b.exec(`CREATE ROLE ` + role + ` LOGIN`)
	noRoles := store.WithoutRoles(pgtest.NoRoles())
	for _, server := range b.servers() {
		conn := b.login(server, role)
		for _, sql := range []string{
			`SELECT citus_internal.delete_tenant_schema('tenant_acme'::regnamespace)`,
			`SELECT pg_catalog.citus_internal_delete_tenant_schema('tenant_acme'::regnamespace)`,
			`SELECT citus_internal.add_tenant_schema('public'::regnamespace, 1)`,
			`SELECT citus_internal.delete_placement_metadata(placementid) FROM pg_dist_placement`,
		} {
			_, err := conn.Exec(t.Context(), sql)
			assert.ErrorContains(t, err, "permission denied for function", "%s: %s", server, sql)
		}
		admin, err := pgx.Connect(t.Context(), server)
		require.NoError(t, err)
		_, err = admin.Exec(t.Context(), `SET citus.enable_ddl_propagation = off; GRANT EXECUTE ON
			FUNCTION citus_internal.delete_tenant_schema TO PUBLIC`)
		require.NoError(t, err)
		require.NoError(t, admin.Close(t.Context()))
		gaps, err := store.Gaps(t.Context(), b.url, noRoles)
		require.NoError(t, err)
		require.Len(t, gaps, 1, server)
		assert.Contains(t, gaps[0].Text, "every role may change Citus' lists")
		assert.Contains(t, gaps[0].Do, "REVOKE ALL ON FUNCTION citus_internal.delete_tenant_schema")
		_, err = store.Migrate(t.Context(), b.url, noRoles)
		require.NoError(t, err)
		gaps, err = store.Gaps(t.Context(), b.url, noRoles)
		require.NoError(t, err)
		require.Empty(t, gaps, server)
	}
}

// A node's connections to the coordinator keep no connection to a worker for each role that they
// took.
func TestRolesKeepNoConnections(t *testing.T) {
	citusWithRoles(t)
	b := setupTwo(t)
	for range 3 {
		for _, name := range []string{tenant, "other"} {
			var n int
			require.NoError(t, b.DBOf(name, false).QueryRow(t.Context(),
				`SELECT count(*) FROM tenant_`+name+`.rolls`).Scan(&n))
			require.NoError(t, b.Outside(t.Context(), name, `ANALYZE tenant_`+name+`.rolls`))
		}
	}
	eventually(t, "no connection is kept", func() bool {
		n := 0
		for _, server := range b.servers()[1:] {
			conn, err := pgx.Connect(t.Context(), server)
			require.NoError(t, err)
			var here int
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE starts_with(usename, $1) AND datname = current_database()
				AND starts_with(application_name, 'citus_internal')`, b.BaseRole()+"_").Scan(&here))
			require.NoError(t, conn.Close(t.Context()))
			n += here
		}
		return n == 0
	})
}

// A move makes the tables anew. The tenant's role may not change the audit afterwards either, and
// the rolls go on.
func TestAuditIsFencedAfterAMove(t *testing.T) {
	citusWithRoles(t)
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	_, to := b.place(tenant)
	u, err := url.Parse(to)
	require.NoError(t, err)
	var port uint16
	_, err = fmt.Sscan(u.Port(), &port)
	require.NoError(t, err)
	moved, err := store.MoveTenant(t.Context(), b.url, store.Move{Tenant: tenant,
		To: store.Server{Host: u.Hostname(), Port: port}, MaxPause: patience},
		func(store.MoveProgress) {})
	require.NoError(t, err)
	require.NoError(t, moved.TidyError)
	here, _ := b.place(tenant)
	require.Equal(t, to, here)
	conn := b.login(here, role)
	audit, _ := b.shard(tenant, "audit")
	for _, sql := range []string{`DELETE FROM ` + audit, `UPDATE ` + audit + ` SET at = at`,
		`DELETE FROM tenant_acme.audit`} {
		_, err := conn.Exec(t.Context(), sql)
		assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err), "%s: %v", sql, err)
	}
	var rolls, lost int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (
		WHERE history <> tenant_acme.history(tableoid)) FROM tenant_acme.rolls`).
		Scan(&rolls, &lost))
	assert.Positive(t, rolls)
	assert.Zero(t, lost, "the rolls are in the incarnation of the new worker")
	gaps, err := store.Gaps(t.Context(), b.url)
	require.NoError(t, err)
	assert.Empty(t, gaps)
	eventually(t, "tasks are leased", func() bool {
		leases, _, err := b.Lease(t.Context(), pipe, 1)
		return err == nil && len(leases) == 1
	})
}

// Tenants that were made without roles get them by a migration, on their worker, too.
func TestMigrateToRolesOnCitus(t *testing.T) {
	citusWithRoles(t)
	t.Parallel()
	url := unfenced(t)
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	b := open(t, url, "node-1")
	require.Equal(t, []string{"tenant_acme", "tenant_other"}, b.distributed())
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	here, _ := b.place(tenant)
	conn := b.login(here, role)
	_, err = conn.Exec(t.Context(), `SET citus.override_table_visibility = off`)
	require.NoError(t, err)
	rows, _ := conn.Query(t.Context(), `SELECT c.oid::regclass::text FROM pg_class c
		WHERE relnamespace = 'tenant_acme'::regnamespace AND pg_get_userbyid(relowner) <> $1
		UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p
		WHERE pronamespace = 'tenant_acme'::regnamespace AND pg_get_userbyid(proowner) <> $1`, role)
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Empty(t, others, "everything on the worker is the tenant's own")
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	for _, l := range b.lease(pipe, 10) {
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	opened, err := b.OpenRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	assert.True(t, opened)
	gaps, err := store.Gaps(t.Context(), b.url)
	require.NoError(t, err)
	assert.Empty(t, gaps)
}

// setHBA writes the pg_hba.conf of a server of a test.
func setHBA(t *testing.T, server *devpg.Server, rules ...string) {
	t.Helper()
	path := filepath.Join(server.Config().DataDir, "hba.conf")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(rules, "\n")+"\n"), 0o644))
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `SELECT pg_reload_conf()`)
	require.NoError(t, err)
}

// While a worker doesn't let roles log in from the coordinator, no tenant is made there, and the
// error says what to write. Nobody else gets in: a password that a role gave itself counts for
// nothing.
func TestWorkersMustLetRolesLogIn(t *testing.T) {
	citusWithRoles(t)
	t.Parallel()
	servers, address := pgtest.Citus(t)
	u, err := url.Parse(address)
	require.NoError(t, err)
	own := []string{"host all " + u.User.Username() + " 127.0.0.1/32 trust",
		"host all all 127.0.0.1/32 scram-sha-256"}
	for _, server := range servers {
		setHBA(t, server, own...)
	}
	var rule string
	eventually(t, "a tenant is refused", func() bool {
		require.NoError(t, migrated(t, address))
		_, err = store.CreateTenant(t.Context(), address, tenant)
		for line := range strings.Lines(fmt.Sprint(err)) {
			if strings.HasPrefix(line, "  host ") {
				rule = strings.TrimSpace(line)
			}
		}
		return rule != ""
	})
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	for _, worker := range servers[1:] {
		require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1:%d", worker.Config().Port))
	}
	require.ErrorContains(t, err, "-logins 127.0.0.1/32 trust")
	for _, server := range servers {
		setHBA(t, server, append([]string{rule}, own...)...)
	}
	eventually(t, "a tenant is made", func() bool {
		_, err = store.CreateTenant(t.Context(), address, tenant)
		return err == nil
	})
	b := open(t, address, "node-1")
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	require.Len(t, b.lease(pipe, 1), 1)
	gaps, err := store.Gaps(t.Context(), address)
	require.NoError(t, err)
	require.Empty(t, gaps)

	b.closeDoors(servers, own)
}

// migrated migrates a database, which needs no worker as long as no tenant is on one.
func migrated(t *testing.T, address string) error {
	t.Helper()
	_, err := store.Migrate(t.Context(), address)
	return err
}

// closeDoors takes the rules away: then what goes through the coordinator is refused, and a role
// can't log in by a password either.
func (b *bundle) closeDoors(servers []*devpg.Server, own []string) {
	t := b.t
	for _, server := range servers {
		setHBA(t, server, own...)
	}
	var err error
	eventually(t, "the coordinator is refused", func() bool {
		_, _, err = b.TypePage(t.Context(), tenant, "", 1)
		return err != nil
	})
	assert.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, "doesn't let a tenant's database role log in")
	gaps, err := store.Gaps(t.Context(), b.url)
	require.NoError(t, err)
	var said string
	for _, gap := range gaps {
		said += gap.Text + ": " + gap.Do + "\n"
	}
	assert.Contains(t, said, "doesn't let Citus log in as roles of tenants from the coordinator")
	assert.Contains(t, said, "host all +"+b.BaseRole()+"-logins 127.0.0.1/32 trust")

	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	for _, server := range b.servers() {
		conn, err := pgx.Connect(t.Context(), server)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `SET citus.enable_ddl_propagation = off;
			SET SESSION AUTHORIZATION `+pgx.Identifier{role}.Sanitize()+`;
			ALTER ROLE CURRENT_USER PASSWORD 'mine'`)
		require.NoError(t, err, "a role may give itself a password")
		require.NoError(t, conn.Close(t.Context()))
		u, err := url.Parse(server)
		require.NoError(t, err)
		u.User = url.UserPassword(role, "mine")
		_, err = pgx.Connect(t.Context(), u.String())
		assert.Equal(t, pgerrcode.InvalidPassword, sqlState(err), "%s: %v", server, err)
	}
}
