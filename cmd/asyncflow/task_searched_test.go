package main

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// A list and a count say among which tasks they searched, also over several pages.
func TestCLISaysWhatWasSearched(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	node := startNode(t, url)
	c := node.client()
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "only"}}})
	_, err := c.Wait(t.Context(), submitMany(t, c, 1)[0], patience)
	require.NoError(t, err)
	env := map[string]string{"ASYNCFLOW_URL": node.url,
		"ASYNCFLOW_TOKEN": tokenOf(t, testTenant, auth.ScopeRead)}

	few := runCLI(t, env, "tasks", "list", "--type", "pipe", "--stage", "none")
	require.Zero(t, few.code, few.stderr)
	assert.Regexp(t, `^searched 1 task, submitted from \S+ until \S+\n$`, few.stderr)
	assert.Regexp(t, `"searched": *{[^}]*"tasks": *1,`,
		runCLI(t, env, "tasks", "list", "--type", "pipe", "--stage", "none", "-o", "json").stdout)
	counted := runCLI(t, env, "tasks", "count", "--type", "pipe", "--stage", "none")
	assert.Equal(t, ran{0, "0 tasks\n", ""}, counted, "an exact count searched all")

	execSQL(t, url, `
		WITH r AS (UPDATE tenant_acme.rolls SET next_number = next_number + 60000
		  RETURNING position::bigint << 40 AS base, next_number - 60000 AS first),
		one AS (SELECT * FROM tenant_acme.task_1 LIMIT 1),
		t AS (INSERT INTO tenant_acme.task_1 (type, id, created_at, order_time, context)
		  SELECT one.type, base + first + n, one.created_at, one.order_time, '1'
		  FROM r, one, generate_series(0, 59999) n RETURNING type, id)
		INSERT INTO tenant_acme.journal_1 (type, id, seq, at, stage, attempt, outcome, final)
		SELECT type, id, 1, now(), 'only', 1, 'done', 'succeeded' FROM t`)
	pages := runCLI(t, env, "tasks", "list", "--type", "pipe", "--stage", "none")
	require.Zero(t, pages.code, pages.stderr)
	assert.Regexp(t, `^searched 60001 tasks, submitted from \S+ until \S+\n$`, pages.stderr,
		"of all pages")
	counted = runCLI(t, env, "tasks", "count", "--stage", "none")
	assert.Equal(t, "at least 0 tasks\n", counted.stdout)
	assert.Regexp(t, `^searched \d+ tasks, submitted from \S+ on; ended in the type pipe; `+
		regexp.QuoteMeta("--exact counts all")+`\n$`, counted.stderr)
}
