package asyncflow_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// citusRule is a form of SQL that Citus refuses, or gets wrong, for the tables of a distributed
// schema. See docs/scale.md.
type citusRule struct {
	form *regexp.Regexp
	why  string
	bad  string // an example
	// fit finds texts of the form that Citus takes; nil: none.
	fit *regexp.Regexp
	// bare says that comments and quoted bodies of functions are left out.
	bare bool
	// uses are texts of Go code that have the form all the same.
	uses []citusUse
}

// citusUse is a file of store/internal with texts that have the form of a rule, and the reason.
type citusUse struct {
	file  string
	texts int
	why   string
}

// find returns the part of a text that breaks the rule.
func (r citusRule) find(sql string) string {
	if r.bare {
		sql = bareSQL(sql)
	}
	for _, found := range r.form.FindAllString(sql, -1) {
		if r.fit == nil || !r.fit.MatchString(found) {
			return found
		}
	}
	return ""
}

// check returns what breaks the rule, and the uses that aren't there.
func (r citusRule) check(texts []goText) (broken, unused []string) {
	left := map[string]int{}
	for _, use := range r.uses {
		left[use.file] = use.texts
	}
	for _, text := range texts {
		if found := r.find(text.sql); found != "" {
			if left[text.file]--; left[text.file] < 0 {
				broken = append(broken, text.file+": "+found)
			}
		}
	}
	for file, n := range left {
		if n > 0 {
			unused = append(unused, file)
		}
	}
	return broken, unused
}

// sqlStatement is the first word of a statement.
const sqlStatement = `(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|CREATE|ALTER|DROP|TRUNCATE|` +
	`COMMENT|GRANT|REVOKE|LOCK|COPY|DO|CALL|ANALYZE|VACUUM|BEGIN|COMMIT|ROLLBACK|SET|LISTEN|NOTIFY)`

// volatile are functions that Citus runs neither in a change of rows nor beside it.
const volatile = `(random|clock_timestamp|nextval|setval|gen_random_uuid|timeofday|` +
	`statement_timestamp|history|\{history\})\(`

var citusRules = []citusRule{
	{form: regexp.MustCompile(`(?i)\bpg_(total_|table_)?(relation_)?size\(`),
		why: "Postgres knows only an empty table on the coordinator: use table_size",
		bad: `SELECT pg_relation_size('task_1')`},
	{form: regexp.MustCompile(`(?i)TABLESAMPLE\s+\w+\s*\(\s*\$`),
		why: "the size of a sample must be a literal",
		bad: `SELECT FROM t TABLESAMPLE SYSTEM ($1)`},
	{form: regexp.MustCompile(`(?is)\bVALUES\s*\([^;]*?\(\s*SELECT\b`),
		why: "no query within VALUES: write INSERT … SELECT, or run it before",
		bad: `INSERT INTO t (a) VALUES (1, coalesce($1, (SELECT b FROM u)))`},
	{form: regexp.MustCompile(`(?is)\bUPDATE\s+[^;()]*?\bSET\b[^;]*?` + volatile),
		why: "no volatile function in an UPDATE: give the value as a parameter or a variable, or " +
			"take it from a query in FROM",
		bad: `UPDATE t SET a = random() WHERE b = 1`,
		uses: []citusUse{
			{"hot/incarnation.go", 1, "asyncflow.numbering isn't distributed"},
		}},
	{form: regexp.MustCompile(`(?is)\bUPDATE\s+[^;()]*?\bSET\b[^;]*?=\s*` +
		`((\w+\.)?(\w+_at|\w+_time|at|until|since)|\$\d+::timestamptz)\s*[-+]`),
		why: "no interval added to a time with a column in SET: take the time from a query in FROM",
		bad: `UPDATE t SET trim_at = drained_at + $3 WHERE a = $1`},
	{form: regexp.MustCompile(`(?is)\bDELETE\s+FROM\b[^;]*\bWHERE\b[^;]*` + volatile),
		why: "no volatile function in a DELETE",
		bad: `DELETE FROM t WHERE a < clock_timestamp()`},
	{form: regexp.MustCompile(`(?is)` + volatile +
		`[^;]*\b(DELETE\s+FROM|UPDATE\s+\S+\s+(\w+\s+)?SET)\b`),
		why: "no volatile function in a WITH query of a DELETE or UPDATE",
		bad: `WITH c AS (SELECT ctid FROM t ORDER BY random()) DELETE FROM t USING c`},
	{form: regexp.MustCompile(`(?i)\bAS\s+(MATERIALIZED\s+)?\(\s*SELECT\s+FROM\b`),
		why: "a WITH query must have a column",
		bad: `WITH free AS (SELECT FROM t FOR UPDATE)`},
	{form: regexp.MustCompile(`(?is)\bINSERT\s+INTO\b[^;]*?\bSELECT\b[^;]*?` +
		`(\bdate_trunc\(|\bnow\(|\.\w+::(int|bigint|uuid|text)\[\])[^;]*\bFROM\b[^;]*\bJOIN\b`),
		why: "no function of the time and no text of an array beside a table in INSERT … SELECT",
		bad: `INSERT INTO t (at) SELECT date_trunc('minute', $1) FROM u JOIN v ON u.a = v.a`},
	{form: regexp.MustCompile(`(?is)\bctid\b[^;]*\bINSERT\s+INTO\b`),
		why: "no INSERT beside rows that are found by ctid: insert with another statement",
		bad: `WITH c AS (SELECT ctid FROM t), d AS (DELETE FROM t USING c WHERE t.ctid = c.ctid
		  RETURNING a) INSERT INTO u (a) SELECT a FROM d`},
	{form: regexp.MustCompile(`(?i)history\('[^']*'(::regclass)?\)`),
		why: "the history is that of the server with the rows: name tableoid, beside a row of " +
			"the table",
		bad: `SELECT history('rolls'::regclass)`},
	{form: regexp.MustCompile(`(?is)ALTER\s+TABLE\b[^;]*,\s*ADD\s+CONSTRAINT\b|` +
		`ALTER\s+TABLE\b[^;]*ADD\s+CONSTRAINT\b[^;]*,\s*(ADD|DROP|ALTER)\s+(COLUMN|CONSTRAINT)\b`),
		why: "ADD CONSTRAINT needs an ALTER TABLE of its own",
		bad: `ALTER TABLE t DROP CONSTRAINT a, ADD CONSTRAINT a CHECK (b > 0)`},
	{form: regexp.MustCompile(`(?is)\bINSERT\s+INTO\b[^;]*?\bSELECT\b[^;]*?` +
		`\bON\s+CONFLICT\b[^;]*?\bDO\s+UPDATE\b[^;]*?\$\d`),
		fit: regexp.MustCompile(`(?is)\b(FROM|JOIN)\s+\{\w+\}[^;]*\bON\s+CONFLICT\b`),
		why: "without a table in the SELECT, Citus loses the parameters of ON CONFLICT … SET and " +
			"WHERE: join a table of the tenant",
		bad: `INSERT INTO {keys} AS k (a, b) SELECT $1, u.b FROM unnest($2::int[]) AS u (b)
		  ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE k.b < $3`},
	{form: regexp.MustCompile(`(?s)^\s*(\{\}|` + sqlStatement + `\b.*)?;\s*` +
		`(\{\}|` + sqlStatement + `\b)`),
		fit: regexp.MustCompile(`(?s)^[\s;]*(BEGIN\b[^;]*|SET\b[^;]*|LISTEN\b[^;]*)` +
			`(;\s*(SET|LISTEN)\b[^;]*)*$`),
		why: "Citus passes a text of several statements on as a whole, and its workers refuse " +
			"it: run them one by one, or queue them in a batch",
		bad:  `UPDATE {types} SET a = 1; DELETE FROM {rolls}`,
		bare: true,
		uses: []citusUse{
			{"config/tables.go", 1, "createRoll splits it, and each is run by itself"},
			{"postgres/entry.go", 2, "the settings with which a transaction begins"},
			{"schema/create.go", 1, "a new schema is made on its server before it is distributed"},
			{"schema/role_logins.go", 2, "each server gets them by itself: of roles and of " +
				"functions of Citus, which it doesn't pass on"},
			{"schema/role_make.go", 2, "a part of a DO, and what an administrator is told to do"},
			{"schema/role_submits.go", 1, "GRANT and REVOKE, which Citus writes anew for workers"},
			{"schema/table_lock.go", 1, "LOCK TABLE, which Citus writes anew for workers"},
		}},
	{form: regexp.MustCompile(`(?is)\bAS\s*((NOT\s+)?MATERIALIZED\s*)?\(\s*INSERT\s+INTO\b`),
		why: "Citus runs an INSERT of a WITH query by itself, before the rest of the statement: " +
			"insert with another statement",
		bad: `WITH made AS (INSERT INTO {types} (name) VALUES ($1) RETURNING number)
		  SELECT number FROM made`,
		uses: []citusUse{ // with a test that runs on Citus
			{"catalog/lock.go", 1, "the rest need not see the new row; most tests"},
			{"settings/type_put.go", 1, "the rest takes the number from it; TestPutTaskType"},
			{"trees/edge_past_keys.go", 1,
				"the rest doesn't read the table; TestADependentWaitsForATask"},
		}},
}

// Each rule finds its example.
func TestCitusRulesFindTheirForms(t *testing.T) {
	t.Parallel()
	for _, rule := range citusRules {
		assert.NotEmpty(t, rule.find(rule.bad), rule.bad)
	}
}

// Statements keep to what Citus takes, so that tenants can be on its workers.
func TestStatementsAreFitForCitus(t *testing.T) {
	t.Parallel()
	files := map[string]*ast.File{} // by path in store/internal
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		_, name, ok := strings.Cut(path, "store/internal/")
		if ok && !strings.HasSuffix(path, "_test.go") {
			files[name] = file
		}
	})
	texts := textsOfTenants(t, files)
	require.Greater(t, len(texts), 1000)
	for _, rule := range citusRules {
		broken, unused := rule.check(texts)
		assert.Empty(t, broken, "not fit for Citus: %s", rule.why)
		assert.Empty(t, unused, "these files have fewer such texts now: correct their uses")
	}
}

// The rules hold for texts that Go code puts together, and for statements about tenants' tables and
// shared ones together.
func TestCitusRulesHoldForTextsOfGo(t *testing.T) {
	t.Parallel()
	const from = "package bad\n" +
		"const array = ` FROM unnest($2::int[]) AS u (b)`\n" +
		"const joined = array + ` JOIN {types} y ON y.number = u.b`\n"
	const upsert = "`INSERT INTO {keys} SELECT u.b` + %s + ` ON CONFLICT (a) DO UPDATE SET b = $3`"
	for _, c := range []struct {
		code string
		bad  bool
	}{
		{"`SELECT pg_relation_size('{task}')`", true},
		{"`SELECT pg_relation_size('asyncflow.tenants')`", false},
		{"`SELECT pg_relation_size('{task}') FROM asyncflow.tenants`", true},
		{"`SELECT pg_relation_size('` + schema + `.task_1') FROM asyncflow.tenants`", true},
		{"fmt.Sprintf(`SELECT pg_relation_size('%s.task_1') FROM asyncflow.tenants`, a)", true},
		{"`SELECT pg_relation_` + `size('{task}')`", true},
		{"`SELECT 1 ` + f(`SELECT pg_relation_size('{task}')`) + ` FROM {task}`", true},
		{fmt.Sprintf(upsert, "array"), true},
		{fmt.Sprintf(upsert, "joined"), false},
		{fmt.Sprintf(upsert, "(` FROM generate_series(1, $2) u (b)`)"), true},
		{fmt.Sprintf(upsert, "` FROM {types} y`"), false},
		{fmt.Sprintf(upsert, "``"), true},
		{"`INSERT INTO {keys} SELECT b FROM unnest($1::int[]) b ON CONFLICT DO NOTHING`", false},
		{"`CREATE TABLE {task} (a int);\nCREATE INDEX ON {task} (a)`", true},
		{"`DELETE FROM {task} WHERE a = $1; ` + sql", true},
		{"`DELETE FROM {task} WHERE a = $1;`", false},
		{"sql + `; DELETE FROM {task} WHERE a = $1`", true},
		{"`SET LOCAL jit = off; SELECT FROM {task}`", true},
		{"`SET LOCAL jit = off; SET LOCAL enable_sort = off`", false},
		{"`BEGIN; SET LOCAL ROLE ` + role", false},
		{"`CREATE FUNCTION {f}() AS $$ UPDATE {t} SET a = 1; DELETE FROM {u} $$`", false},
		{"`WITH a AS MATERIALIZED (\n  INSERT INTO {keys} (a) VALUES (1)) SELECT FROM a`", true},
		{"`WITH a AS (` + `INSERT INTO {keys} (a) VALUES (1)) SELECT FROM a`", true},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			file, err := parser.ParseFile(token.NewFileSet(), "bad.go", from+"var _ = "+c.code,
				parser.SkipObjectResolution)
			require.NoError(t, err)
			var found []string
			for _, rule := range citusRules {
				broken, _ := rule.check(textsOfTenants(t, map[string]*ast.File{"bad.go": file}))
				found = append(found, broken...)
			}
			assert.Equal(t, c.bad, len(found) > 0, "%v", found)
		})
	}
}

// beforeCitus is the last migration of tenants' schemas that was written for plain Postgres. A new
// tenant gets all of them before Citus distributes its schema; only later ones come to tables that
// are distributed.
const beforeCitus = 45

// Migrations keep to the same rules.
func TestMigrationsAreFitForCitus(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("migrations/tenant/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		number, err := strconv.Atoi(filepath.Base(path)[:5])
		require.NoError(t, err)
		if number <= beforeCitus {
			continue
		}
		sql, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, rule := range citusRules {
			if !rule.bare { // goose runs statements one by one, but for blocks: see below
				assert.Empty(t, rule.find(string(sql)), "%s: not fit for Citus: %s", path, rule.why)
			}
		}
		for _, block := range statementBlock.FindAllString(string(sql), -1) {
			assert.Equal(t, 1, countStatements(block), "%s: Citus passes a text of several "+
				"statements on as a whole, and its workers refuse it: give each a block", path)
		}
	}
}

var (
	statementBlock = regexp.MustCompile(`(?s)\+goose StatementBegin\n.*?-- \+goose StatementEnd`)
	quotedBody     = regexp.MustCompile(`(?s)\$[a-z]*\$.*?\$[a-z]*\$`)
	sqlComment     = regexp.MustCompile(`--.*`)
)

// countStatements counts the statements of a block of a migration.
func countStatements(block string) int { return strings.Count(bareSQL(block), ";") }

// bareSQL returns a text without quoted bodies of functions, and without comments.
func bareSQL(sql string) string {
	return sqlComment.ReplaceAllString(quotedBody.ReplaceAllString(sql, ""), "")
}

func TestStatementsAreCounted(t *testing.T) {
	t.Parallel()
	blocks := statementBlock.FindAllString(`-- +goose Up
UPDATE t SET a = 1;
-- +goose StatementBegin
-- It adds; it doesn't count.
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN; RETURN 1; END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION g() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
REVOKE ALL ON FUNCTION g() FROM PUBLIC;
-- +goose StatementEnd`, -1)
	require.Len(t, blocks, 2)
	assert.Equal(t, 1, countStatements(blocks[0]))
	assert.Equal(t, 2, countStatements(blocks[1]))
}
