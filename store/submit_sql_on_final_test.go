package store_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/migrations"
)

// A task that is submitted by SQL tells its end as any other. Its target must exist: a node checks
// where events may go.
func TestSQLSubmitTellsEnds(t *testing.T) {
	b := setup(t)
	pipe := b.put(single())
	app := b.app()
	const told = `'pipe', '1', on_final => '{"url": "HTTPS://shop.EXAMPLE:443/a?b=1&c"}'`
	got := b.sqlRefusal(app, told)
	require.Equal(t, []string{"22023", "invalid_argument"}, []string{got.Code, got.Detail})
	const ended = `'pipe', '1', on_final => '{"url": "https://shop.EXAMPLE:443/ended", "on": ["failed"]}'`
	got = b.sqlRefusal(app, ended)
	require.Equal(t, []string{"42704", "not_found", "on_final"},
		[]string{got.Code, got.Detail, got.ColumnName})
	require.Contains(t, got.Message,
		"the origin https://shop.example, for which there is no target "+shop().Target)
	b.told()
	b.byHand()
	id, err := b.bySQL(app, ended)
	require.NoError(t, err)
	require.Equal(t, &asyncflow.OnFinal{URL: "https://shop.EXAMPLE:443/ended",
		On: []asyncflow.Status{asyncflow.StatusFailed}}, b.task(id).Options.OnFinal)
	_, err = b.bySQL(app, `'pipe', '2', depends_on => '[{"task": "`+id.String()+`"}]', on_final =>
		'{"url": "https://shop.example/ended", "target": "`+shop().Target+`"}'`)
	require.NoError(t, err)
	_, err = b.bySQL(app, `'pipe', '3'`)
	require.NoError(t, err)
	for range 2 {
		b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	}
	b.followUp()
	b.followUp()
	require.Empty(t, b.wrongEnds())
	require.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.notifications`))
}

func TestSQLRefusesBadOnFinals(t *testing.T) {
	b := setup(t)
	b.put(single())
	b.told()
	app := b.app()
	long := strings.Repeat("x", 1024)
	for on, says := range map[string]string{
		`[]`:            "on_final must be an object with a url",
		`"x"`:           "on_final must be an object with a url",
		`{}`:            "on_final.url is required",
		`{"url": null}`: "on_final.url is required",
		`{"url": 7}`:    "on_final.url is required",
		`{"url": "https://shop.example/", "secret": "whsec_x"}`: "on_final.secret can''t be given " +
			"by SQL",
		`{"url": "https://shop.example/", "why": 1}`:   "on_final.why is not known",
		`{"url": "https://shop.example/` + long + `"}`: "on_final.url is 1045 bytes long",
		`{"url": "https://shop.example/` + long[:10] + strings.Repeat("&", 600) + `"}`: "takes " +
			"more than 3000 bytes in JSON",
		`{"url": "ftp://shop.example/"}`:                               "on_final.url must be an absolute",
		`{"url": "https://u:p@shop.example/"}`:                         "on_final.url must be an absolute",
		`{"url": "https://shop.example/#a"}`:                           "on_final.url must be an absolute",
		`{"url": "https://shop.example/\\\\a"}`:                        "on_final.url must be an absolute",
		`{"url": "https://shop.example/%zz"}`:                          "two hex digits after each %",
		`{"url": "https://shop.example/a%2"}`:                          "two hex digits after each %",
		`{"url": "https://shop.example/", "on": "failed"}`:             "on_final.on must be an array",
		`{"url": "https://shop.example/", "on": ["lost"]}`:             "on_final.on must have",
		`{"url": "https://shop.example/", "on": [7, null]}`:            "on_final.on must have",
		`{"url": "https://shop.example/", "on": ["failed", "failed"]}`: "each once",
		`{"url": "https://shop.example/", "target": "pipe"}`:           "there is no target pipe",
		`{"url": "https://other.example/", "target": "` + shop().Target + `"}`: "the origin " +
			"https://other.example, for which there is no target",
	} {
		got := b.sqlRefusal(app, fmt.Sprintf(`'pipe', '1', on_final => '%s'`, on))
		require.Equal(t, "on_final", got.ColumnName, on)
		require.Contains(t, got.Message, strings.ReplaceAll(says, "''", "'"), on)
	}
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.task_1`))
}

// Whoever may submit by SQL can make an object that depends on submit_task, such as a view. The
// migration that gives it a parameter succeeds all the same, and the object works as before.
func TestSQLSubmitIsReplacedBesideAView(t *testing.T) {
	t.Parallel()
	for _, migration := range []string{"_on_final.sql", "_sql_lifetimes.sql"} {
		t.Run(migration, func(t *testing.T) { replacedBesideAView(t, migration) })
	}
}

func replacedBesideAView(t *testing.T, migration string) {
	b := setup(t)
	b.app()
	role := appRole(t, b)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	run := func(sql string) {
		t.Helper()
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	run(`CREATE SCHEMA before; SET LOCAL search_path = before`)
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		script, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		if strings.HasSuffix(name, migration) {
			run(`GRANT USAGE ON SCHEMA before TO ` + role + `;
				GRANT EXECUTE ON FUNCTION submit_task TO ` + role + `;
				CREATE SCHEMA theirs AUTHORIZATION ` + role + `;
				SET LOCAL ROLE ` + role + `;
				CREATE VIEW theirs.submitted AS SELECT submit_task('pipe', '1') AS id;
				RESET ROLE`)
			run(string(script))
			break
		}
		run(string(script))
	}
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_proc
		WHERE proname = 'submit_task' AND pronamespace = 'before'::regnamespace
		  AND has_function_privilege($1, oid, 'EXECUTE')`, strings.Trim(role, `"`)).Scan(&n))
	require.Equal(t, 1, n)
	_, err = tx.Exec(t.Context(), `SELECT id FROM theirs.submitted`)
	require.ErrorContains(t, err, "there is no task type pipe")
}

// A function of before that a migration kept is taken back, too.
func TestRevokeSubmitTakesKeptFunctions(t *testing.T) {
	b := setup(t)
	b.app()
	role := appRole(t, b)
	b.exec(`CREATE FUNCTION tenant_acme.submit_task_10() RETURNS int LANGUAGE sql AS 'SELECT 1';
		DO $$ BEGIN EXECUTE (SELECT 'ALTER FUNCTION tenant_acme.submit_task_10 OWNER TO '
		  || proowner::regrole FROM pg_proc WHERE oid = 'tenant_acme.submit_task'::regproc); END $$;
		REVOKE ALL ON FUNCTION tenant_acme.submit_task_10 FROM PUBLIC;
		GRANT EXECUTE ON FUNCTION tenant_acme.submit_task_10 TO ` + role)
	require.NoError(t, b.RevokeSubmit(t.Context(), tenant, strings.Trim(role, `"`)))
	require.Zero(t, b.count(`SELECT count(*) FROM pg_proc p
		WHERE pronamespace = 'tenant_acme'::regnamespace
		  AND has_function_privilege('`+strings.Trim(role, `"`)+`', p.oid, 'EXECUTE')`))
}
