package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A role that was granted submit_task of a tenant can do that and nothing else.
func TestSQLSubmitRoleMayOnlySubmit(t *testing.T) {
	b := setupTwo(t)
	b.put(twoStages())
	app := b.app()
	_, err := b.bySQL(app, `'pipe', '1'`)
	require.NoError(t, err)
	rows, err := b.db.Query(t.Context(),
		`SELECT quote_ident(relname) FROM pg_class
			WHERE relnamespace = 'tenant_acme'::regnamespace AND relkind = 'r'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "task_1")
	var refused []string
	for _, table := range tables {
		refused = append(refused, `SELECT FROM tenant_acme.`+table,
			`DELETE FROM tenant_acme.`+table,
			`INSERT INTO tenant_acme.`+table+` DEFAULT VALUES`)
	}
	rows, err = b.db.Query(t.Context(),
		`SELECT format('%s(%s)', oid::regproc, (SELECT string_agg(format('NULL::%s', a::regtype), ', ')
			  FROM unnest(proargtypes) a))
		FROM pg_proc WHERE pronamespace = 'tenant_acme'::regnamespace
		  AND proname NOT IN ('submit_task', 'send_signal')`)
	require.NoError(t, err)
	helpers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, helpers, 52)
	for _, call := range helpers {
		refused = append(refused, `SELECT `+call)
	}
	for _, sql := range append(refused,
		`SELECT nextval('tenant_acme.submit_numbers')`,
		`SELECT tenant_other.submit_task('pipe', '1')`,
		`SELECT FROM tenant_other.task_types`,
		`SELECT FROM asyncflow.tenants`,
		`CREATE TABLE tenant_acme.mine (id int)`,
		`CREATE FUNCTION tenant_acme.submit_depth(text, bigint) RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`GRANT EXECUTE ON FUNCTION tenant_acme.submit_depth TO CURRENT_USER`,
		`ALTER FUNCTION tenant_acme.submit_task SECURITY INVOKER`) {
		_, err := app.Exec(t.Context(), sql)
		assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err), "%s: %v", sql, err)
	}
	_, err = b.db.Exec(t.Context(),
		`REVOKE EXECUTE ON FUNCTION tenant_acme.submit_task FROM `+appRole(t, b))
	require.NoError(t, err)
	_, err = b.bySQL(app, `'pipe', '1'`)
	assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err),
		"a role without the grant may not")
}

// A caller's own schemas and settings change nothing.
func TestSQLSubmitIsNotMisled(t *testing.T) {
	pgtest.NotOnCitus(t, "it refuses GRANT in pg_temp, and times that a caller's DateStyle writes")
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	for _, sql := range []string{
		`CREATE TEMP TABLE task_types (name text, spec json, end_pos int)`,
		`CREATE TEMP TABLE submit_limits (refusal text, context_bytes bigint, pending_tasks bigint)`,
		`CREATE TEMP TABLE task_1 (LIKE pg_class)`,
		`CREATE TEMP TABLE task_2 (id bigint)`,
		`CREATE TEMP TABLE ready_1 (id bigint)`, `CREATE TEMP TABLE ready_2 (id bigint)`,
		`GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC`,
		`CREATE TEMP TABLE tallies (type text, at timestamptz, submitted int)`,
		`CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql
		  AS 'SELECT ''infinity''::timestamptz'`,
		`CREATE FUNCTION pg_temp.submit_check(text, json, text, int, timestamptz, text, interval, bigint,
			  timestamptz) RETURNS void LANGUAGE sql AS ''`,
		`SET search_path = pg_temp, pg_catalog, tenant_acme`,
		`SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'Asia/Kathmandu'`,
	} {
		_, err := app.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	id, err := b.bySQL(app, `'pipe', '1', key => 'k', key_window => '90 min'`)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusPending, b.task(id).Status)
	_, err = b.bySQL(app, `'pipe', '1', priority => -1`)
	assert.Equal(t, pgerrcode.InvalidParameterValue, sqlState(err))
}

// In a database that had no roles, a migration gives the function to the tenant's new role.
func TestMigrateSQLSubmitToRoles(t *testing.T) {
	needsRoles(t)
	t.Parallel()
	url := unfenced(t)
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	b := open(t, url, "node-1")
	_, err = b.bySQL(b.app(), `'pipe', '1'`)
	require.NoError(t, err)
	role, err := b.RoleOf(t.Context(), tenant)
	require.NoError(t, err)
	var others []string
	rows, err := b.db.Query(t.Context(),
		`SELECT oid::regprocedure::text FROM pg_proc
			WHERE pronamespace = 'tenant_acme'::regnamespace AND pg_get_userbyid(proowner) <> $1`, role)
	require.NoError(t, err)
	others, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Empty(t, others)
}

func TestGrantSubmit(t *testing.T) {
	needsRoles(t)
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	_, err := b.db.Exec(t.Context(), `DROP OWNED BY `+appRole(t, b))
	require.NoError(t, err)
	submit := func() string {
		_, err := b.bySQL(app, `'pipe', '1'`)
		return sqlState(err)
	}
	var role string
	require.NoError(t, app.QueryRow(t.Context(), `SELECT current_user::text`).Scan(&role))
	require.Equal(t, pgerrcode.InsufficientPrivilege, submit())
	for range 2 {
		require.NoError(t, b.GrantSubmit(t.Context(), tenant, role))
		require.Empty(t, submit())
	}
	for range 2 {
		require.NoError(t, b.RevokeSubmit(t.Context(), tenant, role))
		require.Equal(t, pgerrcode.InsufficientPrivilege, submit())
	}
	for role, says := range map[string]string{"public": "every role",
		"no-body": `role is "no-body", which is no role`, "": "is required"} {
		err = b.GrantSubmit(t.Context(), tenant, role)
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, says)
	}
	for _, change := range []func(context.Context, string, string) error{b.GrantSubmit,
		b.RevokeSubmit} {
		err = change(t.Context(), tenant, strings.Repeat("r", 64))
		require.ErrorContains(t, err, "role has 64 bytes; names of Postgres have at most 63")
	}
	err = b.GrantSubmit(t.Context(), "nobody", role)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
}
