package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

func TestScheduleDocument(t *testing.T) {
	t.Parallel()
	doc, err := parseDocument([]byte(`
schedules:
  - name: nightly
    type: thumbnails
    context: {image: "${DIR}/a<b.jpg", sizes: [1, 2.5, "${N}"], since: 2026-11-21T10:00:00Z, "${DIR}": null}
    cron: 30 3 * * *
    time_zone: ${ZONE}
    overlap: skip
    catch_up: all
    catch_up_limit: 7
    starts_at: 2026-11-21T10:00:00+01:00
    retry: {max_attempts: 2}
    priority: [60, 0]
  - {name: often, type: other, context: 5, every: 10m}
`), envOf(map[string]string{"DIR": "/in", "N": "3", "ZONE": "Europe/Berlin"}))
	require.NoError(t, err)
	require.Len(t, doc.Schedules, 2)
	s := doc.Schedules[0]
	require.Equal(t, `{"${DIR}":null,"image":"/in/a<b.jpg","since":"2026-11-21T10:00:00Z","sizes":[1,2.5,"3"]}`, string(s.Context))
	s.Context = nil
	require.True(t, s.StartsAt.Equal(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)))
	s.StartsAt = time.Time{}
	require.Equal(t, scheduleEntry{Name: "nightly", ScheduleSpec: client.ScheduleSpec{Type: "thumbnails", Cron: "30 3 * * *", TimeZone: "Europe/Berlin",
		Overlap: client.OverlapSkip, CatchUp: client.CatchUpAll, CatchUpLimit: 7, Retry: client.RetryPolicy{MaxAttempts: 2}, Priority: client.Priority{60, 0}}}, s)
	require.Equal(t, client.Duration(10*time.Minute), doc.Schedules[1].Every)
}

func TestScheduleDocumentProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{name: a, type: t, every: 1h}":                                                        "schedules[0].context is required",
		"{name: a, type: t, context: 1, every: 1h, at: noon}":                                  "schedules[0].at is not known here; the keys are catch_up, catch_up_limit, context, cron, ends_at, every, name,",
		"{name: A, type: t, context: 1, every: 1h}":                                            "schedules[0].name must start with a lower-case letter",
		"{name: a, type: t, context: 1, cron: '* * * *'}":                                      "schedules[0].cron has 4 fields; it must have five",
		"{name: a, type: t, context: 1, cron: '@daily', time_zone: Mars/Base}":                 `schedules[0].time_zone is "Mars/Base", which is not a time zone`,
		"{name: a, type: t, context: 1, every: 1h, overlap: wait}":                             `schedules[0].overlap is "wait"; it must be skip, queue or replace`,
		"{name: a, type: t, context: {x: ['${NO}']}, every: 1h}":                               "schedules[0].context.x[0] names the environment variable NO, which is not set",
		"{name: a, type: t, context: {1: 2}, every: 1h}":                                       "schedules[0].context can't be written as JSON",
		"{name: a, type: t, context: 1, every: 1h}, {name: a, type: t, context: 1, every: 1h}": `schedules[1].name is "a", which an earlier schedule has`,
	} {
		_, err := parseDocument([]byte("schedules: ["+text+"]"), envOf(nil))
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), text)
		require.ErrorContains(t, err, want)
		var all *documentError
		require.ErrorAs(t, err, &all)
		require.Len(t, all.fields, 1, "%v", err)
	}
}

// Schedules by the command line, on a node that ticks them.
func TestCLISchedules(t *testing.T) {
	t.Parallel()
	run := clientOf(t, startNode(t, database(t)))
	const types = `types: [{name: pipe, stages: [{name: one}]}], `
	first := writeFile(t, `{`+types+`schedules: [{name: nightly, type: pipe, context: {a: 1}, cron: 30 3 * * *, time_zone: Europe/Berlin}]}`)
	require.Equal(t, "+ type pipe\n+ schedule nightly\n", run(0, "types", "diff", "-f", first))
	require.Equal(t, "created    type pipe\ncreated    schedule nightly\n", run(0, "types", "apply", "-f", first))
	require.Equal(t, "no difference\n", run(0, "types", "diff", "-f", first, "--exit-code"))
	require.Equal(t, "unchanged  schedule nightly\n", run(0, "schedules", "apply", "-f", first))
	second := writeFile(t, `{`+types+`schedules: [{name: nightly, type: pipe, context: {a: 2}, every: 1h}, {name: often, type: pipe, context: 5, every: 1s}]}`)
	require.Equal(t, `~ schedule nightly
    context: {"a":1} becomes {"a":2}
    cron: removed, was "30 3 * * *"
    every: new, "1h0m0s"
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
	require.NoError(t, json.Unmarshal([]byte(run(0, "schedules", "trigger", "nightly", "-o", "json")), &submitted))
	require.Contains(t, run(0, "tasks", "get", submitted.ID), `{"a":1}`)
	require.NotContains(t, run(0, "schedules", "resume", "nightly"), "paused")

	require.Equal(t, "changed    schedule nightly\ncreated    schedule often\n", run(0, "schedules", "apply", "-f", second))
	var s client.Schedule
	require.Eventually(t, func() bool {
		s = client.Schedule{}
		require.NoError(t, json.Unmarshal([]byte(run(0, "schedules", "get", "often", "-o", "json")), &s))
		return s.LastTaskID != ""
	}, patience, 50*time.Millisecond)
	require.Contains(t, run(0, "tasks", "get", s.LastTaskID), "schedule/often/"+s.LastRunAt.UTC().Format(time.RFC3339))
	require.Equal(t, "often deleted\n", run(0, "schedules", "delete", "often"))
	run(exitNotFound, "schedules", "get", "often")
	run(exitUsage, "schedules", "apply", "-f", writeFile(t, `{schedules: [{name: x}]}`))
}

// Nodes that tick the same schedules are killed and come back: each tick has one task.
func TestSchedulesOutliveNodes(t *testing.T) {
	t.Parallel()
	url := database(t)
	nodes := []*process{startNode(t, url), startNode(t, url)}
	_, err := nodes[0].client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		_, err := nodes[0].client().PutSchedule(t.Context(), name, client.ScheduleSpec{Type: "pipe", Context: client.JSON(`1`),
			Every: client.Duration(time.Second), CatchUp: client.CatchUpAll})
		require.NoError(t, err)
	}
	last := func(node *process, name string) time.Time {
		s, err := node.client().Schedule(t.Context(), name)
		require.NoError(t, err)
		return s.LastRunAt
	}
	for i := range 6 {
		before := last(nodes[0], "a")
		require.Eventually(t, func() bool { return last(nodes[0], "a").After(before) }, patience, time.Millisecond)
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
		for tick := s.CreatedAt.Truncate(time.Second).Add(time.Second); !tick.After(s.LastRunAt); tick = tick.Add(time.Second) {
			want = append(want, "schedule/"+name+"/"+tick.UTC().Format(time.RFC3339))
		}
	}
	require.GreaterOrEqual(t, len(want), 3*5)
	require.ElementsMatch(t, want, got)
}
