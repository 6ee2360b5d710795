package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// The commands for schedules run against a node that ticks them.
func TestCLISchedules(t *testing.T) {
	t.Parallel()
	run := clientOf(t, sharedNode(t))
	const types = `types: [{name: pipe, stages: [{name: one, timeout: 90000ms, retry: {interval: ` +
		`[3.0e1, 5]}}], retention: 90m}], `
	first := writeFile(t,
		`{`+types+`schedules: [{name: nightly, type: pipe, context: {zip: 00501, big: `+
			`18446744073709551616, huge: 1e400, at: 2026-12-01}, cron: 30 3 * * *, `+
			`time_zone: Europe/Berlin}]}`)
	const kept = `{"zip":"00501","big":18446744073709551616,"huge":1e400,"at":"2026-12-01"}`
	require.Equal(t, "+ type pipe\n+ schedule nightly\n", run(0, "types", "diff", "-f", first))
	require.Equal(t, "created    type pipe\ncreated    schedule nightly\n",
		run(0, "types", "apply", "-f", first))
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", first, "--exit-code"))
	require.Equal(t, "unchanged  type pipe\nunchanged  schedule nightly\n",
		run(0, "types", "apply", "-f", first))
	require.Equal(t, "unchanged  schedule nightly\n", run(0, "schedules", "apply", "-f", first))
	again := writeFile(t, `{"schedules":[{"name":"nightly","type":"pipe","cron":"30 3 * * *",`+
		`"time_zone":"Europe\/Berlin","context":`+kept+`}]}`)
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", again, "--exit-code"))
	second := writeFile(t,
		`{`+types+`schedules: [{name: nightly, type: pipe, context: {a: 2}, every: 90m}, {name: `+
			`often, type: pipe, context: 5, every: 1s}]}`)
	require.Equal(t, `~ schedule nightly
    context: `+kept+` becomes {"a":2}
    cron: removed, was "30 3 * * *"
    every: new, "90m"
    time_zone: removed, was "Europe/Berlin"
+ schedule often
`, run(exitFailed, "types", "diff", "-f", second, "--exit-code"))

	next := strings.Fields(run(0, "schedules", "next", "nightly"))
	require.Len(t, next, 5)
	require.Regexp(t, `T03:30:00\+0[12]:00$`, next[0])
	require.Contains(t, run(0, "schedules", "list"), "30 3 * * * Europe/Berlin")
	require.Contains(t, run(0, "schedules", "pause", "nightly"), "paused")
	require.Equal(t, "none: it is paused\n", run(0, "schedules", "next", "nightly"))
	var submitted client.SubmittedTask
	require.NoError(t, json.Unmarshal([]byte(run(0, "schedules", "trigger", "nightly", "-o",
		"json")), &submitted))
	require.Contains(t, run(0, "tasks", "get", submitted.ID), kept)
	require.NotContains(t, run(0, "schedules", "resume", "nightly"), "paused")

	require.Equal(t, "changed    schedule nightly\ncreated    schedule often\n",
		run(0, "schedules", "apply", "-f", second))
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", second, "--exit-code"))
	require.Contains(t, run(0, "schedules", "get", "nightly"), "every 90m")
	pipe := run(0, "types", "get", "pipe", "-o", "json")
	require.Contains(t, pipe, `"timeout": "90000ms"`)
	require.Contains(t, pipe, `"retention": "90m"`)
	respelled := strings.Replace(types, "90m", "1h30m", 1) + `schedules: []}`
	require.Equal(t, `~ type pipe
    retention: "90m" becomes "1h30m"
`, run(0, "types", "diff", "-f", writeFile(t, "{"+respelled)))
	var s client.Schedule
	require.Eventually(t, func() bool {
		s = client.Schedule{}
		require.NoError(t, json.Unmarshal([]byte(run(0, "schedules", "get", "often", "-o", "json")),
			&s))
		return s.LastTaskID != ""
	}, patience, 50*time.Millisecond)
	require.Contains(t, run(0, "tasks", "get", s.LastTaskID),
		"schedule/often/"+s.LastRunAt.UTC().Format(time.RFC3339))
	require.Equal(t, "often deleted\n", run(0, "schedules", "delete", "often"))
	run(exitNotFound, "schedules", "get", "often")
	run(exitUsage, "schedules", "apply", "-f", writeFile(t, `{schedules: [{name: x}]}`))
}

// Nodes with the same schedules are killed and restarted: there is exactly one task for each tick.
func TestSchedulesOutliveNodes(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := database(t)
	nodes := []*process{startNode(t, url), startNode(t, url)}
	_, err := nodes[0].client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		_, err := nodes[0].client().PutSchedule(t.Context(), name,
			client.ScheduleSpec{Type: "pipe", Context: client.JSON(`1`),
				Every: client.NewDuration(time.Second), CatchUp: client.CatchUpAll})
		require.NoError(t, err)
	}
	last := func(node *process, name string) time.Time {
		s, err := node.client().Schedule(t.Context(), name)
		require.NoError(t, err)
		return s.LastRunAt
	}
	for i := range 6 {
		before := last(nodes[0], "a")
		require.Eventually(t, func() bool { return last(nodes[0], "a").After(before) }, patience,
			20*time.Millisecond)
		nodes[i%2].kill()
		nodes[i%2] = startNode(t, url)
	}
	for _, name := range names {
		_, err := nodes[0].client().PauseSchedule(t.Context(), name)
		require.NoError(t, err)
	}
	list, err := nodes[0].client().List(t.Context(), client.ListParams{Type: "pipe", Limit: 500})
	require.NoError(t, err)
	var got, want []string
	for _, task := range list.Data {
		got = append(got, task.Key)
	}
	for _, name := range names {
		s, err := nodes[0].client().Schedule(t.Context(), name)
		require.NoError(t, err)
		tick := s.CreatedAt.Truncate(time.Second).Add(time.Second)
		for ; !tick.After(s.LastRunAt); tick = tick.Add(time.Second) {
			want = append(want, "schedule/"+name+"/"+tick.UTC().Format(time.RFC3339))
		}
	}
	require.GreaterOrEqual(t, len(want), 3*5)
	require.ElementsMatch(t, want, got)
}

// Each task of a schedule with depends_on waits, by a tick or by a command.
func TestScheduleWithDependencies(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	run := clientOf(t, node)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		answer(rw, 200, map[string]any{"output": d.Context})
	})
	file := writeFile(t, `
types:
  - {name: upload, stages: [{name: keep}]}
  - {name: report, stages: [{name: write}]}
endpoints:
  - {type: upload, stage: keep, url: "`+w.URL+`", secret: "`+testWebhook+`"}
  - {type: report, stage: write, url: "`+w.URL+`", secret: "`+testWebhook+`"}
schedules:
  - name: often
    type: report
    context: {month: 11}
    every: 1s
    context_from: dependencies
    depends_on:
      - {type: upload, key: invoice-17, on_failure: run, wait_for: 24h}
      - {type: upload, key: invoice-18}
`)
	run(0, "types", "apply", "-f", file)
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", file, "--exit-code"))
	c := node.client()
	var s client.Schedule
	require.Eventually(t, func() (ok bool) {
		var err error
		s, err = c.Schedule(t.Context(), "often")
		return err == nil && s.LastTaskID != ""
	}, patience, 20*time.Millisecond)
	run(0, "schedules", "pause", "often")
	var triggered client.SubmittedTask
	require.NoError(t, json.Unmarshal([]byte(run(0, "schedules", "trigger", "often", "-o", "json")),
		&triggered))
	for _, id := range []string{s.LastTaskID, triggered.ID} {
		task, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, client.StatusWaiting, task.Status)
		assert.Equal(t, "dependencies", string(task.WaitsFor))
		require.Len(t, task.Dependencies, 2)
		first := task.Dependencies[0]
		assert.Equal(t, []string{"upload", "invoice-17", "run"},
			[]string{first.Type, first.Key, string(first.OnFailure)})
		assert.WithinDuration(t, task.CreatedAt.Add(24*time.Hour), first.Until, time.Minute)
	}
	for _, key := range []string{"invoice-17", "invoice-18"} {
		run(0, "tasks", "submit", "upload", `"`+key+`"`, "--key", key)
	}
	for _, id := range []string{s.LastTaskID, triggered.ID} {
		task, outcomes := ended(t, c, id)
		assert.Equal(t, "write dependencies, write done", outcomes)
		var got struct {
			Context      json.RawMessage
			Dependencies []struct{ Key, Output string }
		}
		require.NoError(t, json.Unmarshal(task.Result, &got))
		assert.JSONEq(t, `{"month":11}`, string(got.Context))
		assert.Equal(t, []struct{ Key, Output string }{{"invoice-17", "invoice-17"},
			{"invoice-18", "invoice-18"}}, got.Dependencies)
	}
}
