package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestSchedule(t *testing.T) {
	b := setup(t)
	b.pipe()
	const doc = `{"type":"pipe","context":{"a": 1.0},"cron":"30 3 * * ` +
		`*","time_zone":"Europe/Berlin","priority":60,"retry":{"max_attempts":3},"overlap":"skip"}`
	read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/nightly?dry_run=true", doc))
	assert.Equal(t, 404, b.call("GET", "/v1/schedules/nightly", "").status)
	s := read[api.Schedule](b, 201, b.call("PUT", "/v1/schedules/nightly", doc))
	assert.Equal(t, []any{"nightly", 1, "pipe", `{"a":1.0}`, asyncflow.Priority{60}, 3,
		"30 3 * * *", "Europe/Berlin"},
		[]any{s.Name, s.Version, s.Type, string(s.Context), s.Priority, s.Retry.MaxAttempts, s.Cron,
			s.TimeZone})
	assert.Equal(t, []any{asyncflow.OverlapSkip, asyncflow.CatchUpLast, 100},
		[]any{s.Overlap, s.CatchUp, s.CatchUpLimit})
	require.Len(t, s.NextRuns, 5)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, run := range s.NextRuns {
		assert.Equal(t, "03:30:00", run.In(berlin).Format(time.TimeOnly))
	}
	assert.Equal(t, s, read[api.Schedule](b, 200, b.call("PUT", "/v1/schedules/nightly", doc)))
	assert.Equal(t, s, read[api.Schedule](b, 200, b.call("GET", "/v1/schedules/nightly", "")))
	list := read[api.ScheduleList](b, 200, b.call("GET", "/v1/schedules", "")).Data
	require.Len(t, list, 1)
	assert.Nil(t, list[0].Context)

	paused := read[api.Schedule](b, 200, b.call("POST", "/v1/schedules/nightly/pause", ""))
	assert.NotZero(t, paused.PausedAt)
	assert.Equal(t, []time.Time{}, paused.NextRuns)
	task := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/schedules/nightly/trigger", ""))
	assert.Equal(t, `{"a":1.0}`, string(read[api.Task](b, 200,
		b.call("GET", "/v1/tasks/"+task.ID, "")).Context))
	assert.Equal(t, s, read[api.Schedule](b, 200,
		b.call("POST", "/v1/schedules/nightly/resume", "")))

	_, err = b.db.Exec(t.Context(),
		`UPDATE tenant_acme.schedules SET next_at = date_trunc('minute', now())`)
	require.NoError(t, err)
	_, err = b.store.TickSchedules(t.Context(), "acme", b.committer.Submit, nil)
	require.NoError(t, err)
	s = read[api.Schedule](b, 200, b.call("GET", "/v1/schedules/nightly", ""))
	assert.Empty(t, s.LastTaskID, "that was no tick of it")
	b.call("PUT", "/v1/schedules/quick", `{"type":"pipe","context":1,"cron":"* * * * *"}`)
	_, err = b.db.Exec(t.Context(),
		`UPDATE tenant_acme.schedules SET next_at = date_trunc('minute', now()) WHERE name = 'quick'`)
	require.NoError(t, err)
	_, err = b.store.TickSchedules(t.Context(), "acme", b.committer.Submit, nil)
	require.NoError(t, err)
	s = read[api.Schedule](b, 200, b.call("GET", "/v1/schedules/quick", ""))
	ticked := read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+s.LastTaskID, ""))
	assert.Equal(t, "schedule/quick/"+s.LastRunAt.UTC().Format(time.RFC3339), ticked.Key)
	assert.Equal(t, 204, b.call("DELETE", "/v1/schedules/quick", "").status)
	assert.Equal(t, 404, b.call("DELETE", "/v1/schedules/quick", "").status)
}

func TestSchedulesRefused(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	for _, c := range []struct {
		body   string
		status int
		field  string
		says   string
	}{
		{`{}`, 400, "type", "required"},
		{`{"type":"nope","context":1,"cron":"@daily"}`, 404, "type", "is not a task type"},
		{`{"type":"pipe","context":1}`, 400, "cron", "is required, or every"},
		{`{"type":"pipe","context":1,"cron":"@daily","every":"1h"}`, 400, "every", "exclude"},
		{`{"type":"pipe","context":1,"every":"1h","time_zone":"UTC"}`, 400, "time_zone",
			"goes with cron only"},
		{`{"type":"pipe","context":1,"every":"999ms"}`, 400, "every", "must be 1s to 8760h"},
		{`{"type":"pipe","context":1,"every":"8760h1s"}`, 400, "every", "must be 1s to 8760h"},
		{`{"type":"pipe","context":1,"every":"1500ms"}`, 400, "every", "whole seconds"},
		{`{"type":"pipe","context":1,"cron":"TZ=0"}`, 400, "cron", "time_zone"},
		{`{"type":"pipe","context":1,"cron":"* * * *"}`, 400, "cron",
			"has 4 fields; it must have five"},
		{`{"type":"pipe","context":1,"cron":"0 0 31 4 *"}`, 400, "cron", "never comes"},
		{`{"type":"pipe","context":1,"cron":"@daily","time_zone":"Berlin"}`, 400, "time_zone",
			"Europe/Berlin"},
		{`{"type":"pipe","context":1,"cron":"@daily","overlap":"wait"}`, 400, "overlap",
			"one of skip, queue, replace"},
		{`{"type":"pipe","context":1,"cron":"@daily","catch_up":"some"}`, 400, "catch_up",
			"one of none, last, all"},
		{`{"type":"pipe","context":1,"cron":"@daily","catch_up_limit":1001}`, 400, "catch_up_limit",
			"1 to 1000"},
		{`{"type":"pipe","context":1,"cron":"@daily","starts_at":"2026-11-21T10:00:00Z",` +
			`"ends_at":"2026-11-21T10:00:00Z"}`, 400, "ends_at", "not after starts_at"},
		{`{"type":"pipe","context":1,"cron":"@yearly","starts_at":"2026-11-21T10:00:00Z",` +
			`"ends_at":"2026-11-22T10:00:00Z"}`, 400, "ends_at", "before the first tick"},
		{`{"type":"pipe","context":1,"cron":"@daily","starts_at":"9999-11-21T10:00:00Z"}`, 400,
			"starts_at", "1970 to 2999"},
		{`{"type":"pipe","context":1,"cron":"@daily","retry":{"max_attempts":101}}`, 400,
			"retry.max_attempts", "1 to 100"},
	} {
		for _, query := range []string{"", "?dry_run=true"} {
			a := b.call("PUT", "/v1/schedules/nightly"+query, c.body)
			require.Equal(t, c.status, a.status, "%s: %s", c.body, a.body)
			require.NotEmpty(t, a.problem.Errors, "%s: %s", c.body, a.body)
			assert.Equal(t, c.field, a.problem.Errors[0].Field, c.body)
			assert.Contains(t, a.problem.Errors[0].Message, c.says, c.body)
		}
	}
	assert.JSONEq(t, `{"data":[]}`, string(b.call("GET", "/v1/schedules", "").body),
		"none of them is there")

	const good = `{"type":"pipe","context":1,"every":"1h"}`
	reader, operator := b.newToken("acme", auth.ScopeRead), b.newToken("acme", auth.ScopeOperate)
	assert.Equal(t, 403, b.callAs(reader, "PUT", "/v1/schedules/a", good).status)
	require.Equal(t, 201, b.call("PUT", "/v1/schedules/a", good).status)
	assert.Equal(t, 403, b.callAs(reader, "POST", "/v1/schedules/a/trigger", "").status)
	assert.Equal(t, 201, b.callAs(operator, "POST", "/v1/schedules/a/trigger", "").status)
	assert.Equal(t, 403, b.callAs(operator, "PUT", "/v1/schedules/a", good).status)
	assert.Equal(t, 200, b.callAs(reader, "GET", "/v1/schedules/a", "").status)
	assert.Equal(t, 404, b.callAs(b.newToken("other", auth.ScopeRead), "GET", "/v1/schedules/a",
		"").status)
}
