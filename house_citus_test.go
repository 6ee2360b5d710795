package asyncflow_test

import (
	"go/ast"
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
}

// volatile are functions that Citus runs neither in a change of rows nor beside it.
const volatile = `(random|clock_timestamp|nextval|setval|gen_random_uuid|timeofday|` +
	`statement_timestamp|history|\{history\})\(`

var citusRules = []citusRule{
	{regexp.MustCompile(`(?i)\bpg_(total_|table_)?(relation_)?size\(`),
		"Postgres knows only an empty table on the coordinator: use table_size",
		`SELECT pg_relation_size('task_1')`},
	{regexp.MustCompile(`(?i)TABLESAMPLE\s+\w+\s*\(\s*\$`),
		"the size of a sample must be a literal", `SELECT FROM t TABLESAMPLE SYSTEM ($1)`},
	{regexp.MustCompile(`(?is)\bVALUES\s*\([^;]*?\(\s*SELECT\b`),
		"no query within VALUES: write INSERT … SELECT, or run it before",
		`INSERT INTO t (a) VALUES (1, coalesce($1, (SELECT b FROM u)))`},
	{regexp.MustCompile(`(?is)\bUPDATE\s+[^;()]*?\bSET\b[^;]*?` + volatile),
		"no volatile function in an UPDATE: give the value as a parameter or a variable, or take " +
			"it from a query in FROM",
		`UPDATE t SET a = random() WHERE b = 1`},
	{regexp.MustCompile(`(?is)\bUPDATE\s+[^;()]*?\bSET\b[^;]*?=\s*` +
		`((\w+\.)?(\w+_at|\w+_time|at|until|since)|\$\d+::timestamptz)\s*[-+]`),
		"no interval added to a time with a column in SET: take the time from a query in FROM",
		`UPDATE t SET trim_at = drained_at + $3 WHERE a = $1`},
	{regexp.MustCompile(`(?is)\bDELETE\s+FROM\b[^;]*\bWHERE\b[^;]*` + volatile),
		"no volatile function in a DELETE", `DELETE FROM t WHERE a < clock_timestamp()`},
	{regexp.MustCompile(`(?is)` + volatile +
		`[^;]*\b(DELETE\s+FROM|UPDATE\s+\S+\s+(\w+\s+)?SET)\b`),
		"no volatile function in a WITH query of a DELETE or UPDATE",
		`WITH c AS (SELECT ctid FROM t ORDER BY random()) DELETE FROM t USING c`},
	{regexp.MustCompile(`(?i)\bAS\s+(MATERIALIZED\s+)?\(\s*SELECT\s+FROM\b`),
		"a WITH query must have a column", `WITH free AS (SELECT FROM t FOR UPDATE)`},
	{regexp.MustCompile(`(?is)\bINSERT\s+INTO\b[^;]*?\bSELECT\b[^;]*?` +
		`(\bdate_trunc\(|\bnow\(|\.\w+::(int|bigint|uuid|text)\[\])[^;]*\bFROM\b[^;]*\bJOIN\b`),
		"no function of the time and no text of an array beside a table in INSERT … SELECT",
		`INSERT INTO t (at) SELECT date_trunc('minute', $1) FROM u JOIN v ON u.a = v.a`},
	{regexp.MustCompile(`(?is)\bctid\b[^;]*\bINSERT\s+INTO\b`),
		"no INSERT beside rows that are found by ctid: insert with another statement",
		`WITH c AS (SELECT ctid FROM t), d AS (DELETE FROM t USING c WHERE t.ctid = c.ctid
		  RETURNING a) INSERT INTO u (a) SELECT a FROM d`},
	{regexp.MustCompile(`(?i)history\('[^']*'(::regclass)?\)`),
		"the history is that of the server with the rows: name tableoid, beside a row of the table",
		`SELECT history('rolls'::regclass)`},
	{regexp.MustCompile(`(?is)ALTER\s+TABLE\b[^;]*,\s*ADD\s+CONSTRAINT\b|` +
		`ALTER\s+TABLE\b[^;]*ADD\s+CONSTRAINT\b[^;]*,\s*(ADD|DROP|ALTER)\s+(COLUMN|CONSTRAINT)\b`),
		"ADD CONSTRAINT needs an ALTER TABLE of its own",
		`ALTER TABLE t DROP CONSTRAINT a, ADD CONSTRAINT a CHECK (b > 0)`},
}

// Each rule finds its example.
func TestCitusRulesFindTheirForms(t *testing.T) {
	t.Parallel()
	for _, rule := range citusRules {
		assert.Regexp(t, rule.form, rule.bad)
	}
}

// beforeCitus is the last migration of tenants' schemas that was written for plain Postgres. A new
// tenant gets all of them before Citus distributes its schema; only later ones come to tables that
// are distributed.
const beforeCitus = 45

// Statements keep to what Citus takes, so that tenants can be on its workers.
func TestStatementsAreFitForCitus(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, _ []byte, file *ast.File) {
		if !strings.Contains(path, "store/internal/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			sql, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			checkForCitus(t, path, sql)
			return true
		})
	})
}

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
		checkForCitus(t, path, string(sql))
		for _, block := range statementBlock.FindAllString(string(sql), -1) {
			assert.Equal(t, 1, countStatements(block), "%s: Citus passes a text of several "+
				"statements on as a whole, and its workers refuse it: give each a block", path)
		}
	}
}

var (
	statementBlock = regexp.MustCompile(`(?s)\+goose StatementBegin\n.*?-- \+goose StatementEnd`)
	quotedBody     = regexp.MustCompile(`(?s)\$\$.*?\$\$`)
	sqlComment     = regexp.MustCompile(`--.*`)
)

// countStatements counts the statements of a block of a migration.
func countStatements(block string) int {
	text := sqlComment.ReplaceAllString(quotedBody.ReplaceAllString(block, ""), "")
	return strings.Count(text, ";")
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

func checkForCitus(t *testing.T, path, sql string) {
	t.Helper()
	// The schema asyncflow isn't distributed, nor are the tables of Citus itself.
	if strings.Contains(sql, "asyncflow.") || strings.Contains(sql, "pg_catalog.pg_dist_") {
		return
	}
	for _, rule := range citusRules {
		if found := rule.form.FindString(sql); found != "" {
			assert.Fail(t, "not fit for Citus: "+rule.why, "%s: %s", path, found)
		}
	}
}
