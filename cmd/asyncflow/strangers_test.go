package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Whatever other roles put into the schema public, nothing of it ever runs: not in migrations, not
// in a node, not in commands that use the database themselves. The tests of what commands do check
// that, too: sharedNode, and many others, use what amongStrangers prepares.
func TestNothingOfStrangersRuns(t *testing.T) {
	t.Parallel()
	submitAmongStrangers(t, amongStrangers(t))
}

// amongStrangers returns a database with all that strangers might put into the schema public, and
// checks at the end of the test that nothing of it ran.
func amongStrangers(t *testing.T) string {
	t.Helper()
	url := pgtest.Database(t, prepareAmongStrangers)
	t.Cleanup(func() { assertNothingCalled(t, url) })
	return url
}

// prepareAmongStrangers is prepareDatabase by commands, after strangers were there.
func prepareAmongStrangers(ctx context.Context, url string) error {
	if err := plant(ctx, url); err != nil {
		return err
	}
	for _, command := range []string{"migrate up", "migrate status", "tenants create " + testTenant,
		"migrate up"} {
		var out strings.Builder
		if code := realMain(ctx, strings.Fields(command), &out, &out,
			func(name string) (string, bool) {
				return url, name == "DATABASE_URL"
			}); code != 0 {
			return fmt.Errorf("%s: %s", command, out.String())
		}
	}
	return nil
}

// plant creates what a stranger might in the schema public, and checks that its traps work.
func plant(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	words, tables, err := wordsOfSQL("../../store", "../../migrations")
	if err != nil {
		return err
	}
	for _, sql := range []string{plantedTrap, plantedFunctions, plantedOperators, plantedNames} {
		sql = strings.NewReplacer("{words}", literalArray(words), "{tables}", literalArray(tables)).
			Replace(sql)
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, sql := range []string{`SELECT unnest('{a}'::text[])`, `SELECT 'a'::text || 1::bigint`,
		`SELECT '{1}'::bigint[] @> '{1}'::bigint[]`, `SELECT left('a'::text, 1::bigint)`} {
		if _, err := conn.Exec(ctx, sql); err == nil ||
			!strings.Contains(err.Error(), "a stranger's") {
			return fmt.Errorf("%s doesn't run what was planted: %w", sql, err)
		}
	}
	_, err = conn.Exec(ctx, `SELECT pg_catalog.setval('public.called', 1, false)`)
	return err
}

var (
	calledWord   = regexp.MustCompile(`\b[a-z_0-9]+(?:\()`)
	createdTable = regexp.MustCompile(`CREATE TABLE (\w+)`)
)

// wordsOfSQL returns the words in some folders that may be calls, and the tables that are created.
func wordsOfSQL(folders ...string) (words, tables []string, err error) {
	called, created := map[string]bool{}, map[string]bool{}
	for _, folder := range folders {
		err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, word := range calledWord.FindAllString(string(text), -1) {
				called[strings.TrimSuffix(word, "(")] = true
			}
			for _, m := range createdTable.FindAllStringSubmatch(string(text), -1) {
				created[m[1]] = true
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return slices.Sorted(maps.Keys(called)), slices.Sorted(maps.Keys(created)), nil
}

func literalArray(words []string) string { return "'{" + strings.Join(words, ",") + "}'::text[]" }

func assertNothingCalled(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	var called bool
	require.NoError(t, conn.QueryRow(ctx, `SELECT is_called FROM public.called`).Scan(&called))
	assert.False(t, called, "a stranger's function ran")
}

// everyJob runs the background jobs, and commands that use the database themselves.
func everyJob(t *testing.T, url string) {
	t.Helper()
	env := map[string]string{"DATABASE_URL": url, "ASYNCFLOW_SECRET": testSecret}
	status := runCLI(t, env, "governance", "status", "-o", "json")
	var all struct{ Jobs []struct{ Name string } }
	require.NoError(t, json.Unmarshal([]byte(status.stdout), &all), status.stdout)
	require.Greater(t, len(all.Jobs), 15)
	for _, job := range all.Jobs {
		for _, args := range [][]string{{}, {"--dry-run"}} {
			r := runCLI(t, env, append([]string{"governance", "run", job.Name}, args...)...)
			require.Zero(t, r.code, "%s: %s", job.Name, r.stderr)
		}
	}
	for _, command := range []string{"governance status", "tenants list", "tenants get acme"} {
		r := runCLI(t, env, strings.Fields(command)...)
		require.Zero(t, r.code, "%s: %s", command, r.stderr)
	}
}

// submitAmongStrangers submits by SQL, in a session with a search path that begins with public.
func submitAmongStrangers(t *testing.T, url string) {
	p := startNode(t, url)
	_, err := p.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), plantedTempTables)
	require.NoError(t, err)
	for _, call := range []string{`tenant_acme.submit_task('pipe', '{"a": [1]}', key => 'k')`,
		`tenant_acme.submit_task('pipe', '2', priority => 3, flow_key => 'f')`,
		`tenant_acme.submit_task('pipe', '3', depends_on => '[{"type": "pipe", "key": "k"}]')`} {
		_, err = conn.Exec(t.Context(), `SELECT `+call)
		require.NoError(t, err, call)
	}
}

// plantedTempTables makes a temporary table, which is found first by its bare name, for each table
// and view of asyncflow and of the tenant. Then the search path begins with public.
const plantedTempTables = `
SET search_path = pg_catalog;
DO $plant$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT DISTINCT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v')
    AND relnamespace IN ('asyncflow'::regnamespace, 'tenant_acme'::regnamespace)
  LOOP
    EXECUTE format('CREATE TEMP TABLE %I (name text)', name);
  END LOOP;
  ASSERT (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()) > 20;
END $plant$;
SET search_path = public, pg_catalog`

// plantedTrap is called by all that is planted. A number of a sequence stays drawn if the
// transaction is rolled back.
const plantedTrap = `
CREATE SEQUENCE public.called;
GRANT USAGE ON SEQUENCE public.called TO PUBLIC;
CREATE FUNCTION public.trap(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.nextval('public.called'::pg_catalog.regclass);
  RAISE EXCEPTION 'a stranger''s % runs as %', name, current_user;
END $$;`

// plantedFunctions makes a function for each of Postgres's that the program may call, for types
// that fit better: in place of any type, and of one type of each argument.
const plantedFunctions = `
DO $plant$
DECLARE
  types constant text[] := '{text,bigint,int,timestamptz,interval,json,boolean,bytea,name,text[],` +
	`bigint[],int[],bytea[],timestamptz[],boolean[]}';
  f record;
  t text;
  args text[];
  i int;
BEGIN
  SET LOCAL search_path = pg_catalog;
  SET LOCAL client_min_messages = error;
  FOR f IN SELECT proname, proretset, ARRAY(SELECT format_type(a, NULL)
      FROM unnest(proargtypes) WITH ORDINALITY AS u (a, n) ORDER BY n) AS args
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a')
      AND pronargs BETWEEN 1 AND 6 AND proname = ANY ({words})
  LOOP
    FOREACH t IN ARRAY types LOOP
      FOR i IN 0 .. cardinality(f.args) LOOP
        args := ARRAY(SELECT CASE
          WHEN a LIKE 'any%array' THEN CASE WHEN t LIKE '%[]' THEN t ELSE t || '[]' END
          WHEN a LIKE '"any"' OR a LIKE 'any%' OR n = i THEN t ELSE a END
          FROM unnest(f.args) WITH ORDINALITY AS u (a, n) ORDER BY n);
        CONTINUE WHEN to_regprocedure(format('pg_catalog.%I(%s)', f.proname, array_to_string(args, ', '))) IS NOT NULL
          OR to_regprocedure(format('public.%I(%s)', f.proname, array_to_string(args, ', '))) IS NOT NULL
          OR array_to_string(args, ',') ~ 'internal|cstring|any|record|trigger|handler';
        EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap(%L); END $$',
          f.proname, array_to_string(args, ', '), CASE WHEN f.proretset THEN 'SETOF text' ELSE 'text' END,
          f.proname || '(' || array_to_string(args, ', ') || ')');
      END LOOP;
    END LOOP;
  END LOOP;
END $plant$;`

// plantedOperators makes an operator for each that Postgres has between no two types, or
// between any.
const plantedOperators = `
DO $plant$
DECLARE
  types constant text[] := '{text,bigint,int,timestamptz,interval,json,boolean,bytea,name,text[],` +
	`bigint[],int[],bytea[]}';
  l text;
  r text;
  o text;
BEGIN
  SET LOCAL search_path = pg_catalog;
  FOREACH l IN ARRAY types LOOP
    FOREACH r IN ARRAY types LOOP
      EXECUTE format('CREATE FUNCTION public.compared(%s, %s) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap(%L); END $$',
        l, r, l || ' ? ' || r);
      FOR o IN SELECT unnest('{=,<>,<,<=,>,>=,||,+,-,*,/,%,->,->>,#>,#>>,&&,@>,<@,~,!~,~~,<<,>>,&,|}'::text[]) LOOP
        CONTINUE WHEN to_regoperator(format('pg_catalog.%s(%s, %s)', o, l, r)) IS NOT NULL;
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.compared)', o, l, r);
      END LOOP;
    END LOOP;
  END LOOP;
END $plant$;`

// plantedNames makes tables with the names of ours and of Postgres's, types with the names of
// Postgres's, and casts from these.
const plantedNames = `
DO $plant$
DECLARE
  name text;
BEGIN
  SET LOCAL search_path = pg_catalog;
  SET LOCAL client_min_messages = error;
  FOREACH name IN ARRAY {tables} || '{schema_versions,pg_class,pg_namespace,pg_settings,pg_roles}'::text[] LOOP
    EXECUTE format('CREATE TABLE public.%I (stranger int)', name);
  END LOOP;
  FOREACH name IN ARRAY '{text,int8,int4,json,jsonb,timestamptz,interval,bool,bytea,regclass,oid}'::text[] LOOP
    EXECUTE format('CREATE TYPE public.%I AS ENUM (''stranger'')', name);
    EXECUTE format('CREATE FUNCTION public.cast_to(pg_catalog.%I, OUT public.%1$I) LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap(%1$L); END $$', name);
    EXECUTE format('CREATE FUNCTION public.cast_from(public.%I, OUT pg_catalog.%1$I) LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap(%1$L); END $$', name);
    EXECUTE format('CREATE CAST (pg_catalog.%I AS public.%1$I) WITH FUNCTION public.cast_to(pg_catalog.%1$I) AS IMPLICIT', name);
    EXECUTE format('CREATE CAST (public.%I AS pg_catalog.%1$I) WITH FUNCTION public.cast_from(public.%1$I) AS IMPLICIT', name);
  END LOOP;
END $plant$;`
