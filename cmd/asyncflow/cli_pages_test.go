package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// The client and the commands return whole lists, however many pages there are.
func TestClientsFollowPages(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	p := startNode(t, url)
	c := p.client()
	_, err := c.PutTaskType(
		t.Context(),
		"pipe",
		client.TaskTypeSpec{Stages: []client.Stage{{Name: "only"}}},
	)
	require.NoError(t, err)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(t.Context())
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := db.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	const n = 1203 // three pages
	schema := pgx.Identifier{"tenant_" + testTenant}.Sanitize()
	_, err = c.PutSchedule(
		t.Context(),
		"s0",
		client.ScheduleSpec{Type: "pipe", Context: json.RawMessage(`{}`), Cron: "@yearly"},
	)
	require.NoError(t, err)
	exec(`INSERT INTO `+schema+`.schedules (name, type, spec, context, version, created_at, updated_at)
		SELECT 's' || n, type, spec, context, version, created_at, updated_at FROM `+schema+
		`.schedules, generate_series(1, $1::int) n WHERE name = 's0'`, n-1)
	exec(`INSERT INTO `+schema+`.endpoints (id, type, stage, url, challenged, created_at, updated_at)
		SELECT gen_random_uuid(), 'pipe', 'only', 'https://w.example.com/' || n, false, now(),
		now() FROM generate_series(1, $1::int) n`, n)
	exec(
		`INSERT INTO `+schema+
			`.operations (id, kind, type, filter, options, state, total, next_at, created_at, finished_at)
		SELECT gen_random_uuid(), 'cancel', 'pipe', '{}', '{}', 'done', 0, now(), now(), now() FROM
			generate_series(1, $1::int) n`,
		n,
	)
	schedules, err := c.Schedules(t.Context())
	require.NoError(t, err)
	require.Len(t, schedules, n)
	endpoints, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, endpoints, n)
	operations, err := c.Operations(t.Context())
	require.NoError(t, err)
	require.Len(t, operations, n)
	var shown struct{ Data []client.Schedule }
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": testToken(t)}
	out := runCLI(t, env, "schedules", "list", "-o", "json")
	require.Zero(t, out.code, out.stderr)
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &shown))
	require.Len(t, shown.Data, n)

	// A journal of 10 MB
	delay := client.NewDuration(time.Hour)
	task, err := c.Submit(
		t.Context(),
		client.NewTask{Type: "pipe", Context: json.RawMessage(`{}`), Delay: delay},
	)
	require.NoError(t, err)
	id, err := asyncflow.ParseTaskID(task.ID)
	require.NoError(t, err)
	exec(`INSERT INTO `+schema+`.journal_1 (type, id, seq, at, stage, attempt, outcome, output)
		SELECT t.number, $1, n, now(), 'only', 1, 'released', to_json(repeat('x', 100000))
		FROM `+schema+`.task_types t, generate_series(1, 100) n WHERE t.name = 'pipe'`, id.Number)
	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 100)
	for i, a := range attempts {
		require.Equal(t, []int{i + 1, 100_002}, []int{a.Seq, len(a.Output)})
	}
	seen := 0
	for event, err := range c.Watch(t.Context(), task.ID) {
		require.NoError(t, err)
		if event.Attempt == nil {
			break
		}
		seen++
		require.Len(t, event.Attempt.Output, 100_002)
	}
	require.Equal(t, 100, seen)
	out = runCLI(t, env, "tasks", "attempts", task.ID)
	require.Zero(t, out.code, out.stderr)
	require.Equal(t, 1+100, strings.Count(out.stdout, "\n"))
}
