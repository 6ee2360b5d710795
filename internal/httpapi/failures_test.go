package httpapi_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// What failed is grouped, and its fingerprint finds it in lists, counts and bulk calls.
func TestFailures(t *testing.T) {
	b := setup(t)
	b.pipe()
	id := b.failSecond()
	b.failSecond()
	report := read[api.FailureReport](b, 200, b.call("GET", "/v1/failures", ""))
	assert.Equal(t, []any{2, 1}, []any{report.Failures, report.Count})
	assert.True(t, report.Searched.Complete)
	assert.InDelta(t, time.Hour, report.Until.Sub(report.Since), float64(time.Second))
	require.Len(t, report.Groups, 1)
	group := report.Groups[0]
	assert.Equal(t, []api.FailurePlace{{Type: "pipe", Stage: "second", Count: 2}}, group.Places)
	assert.Equal(t, []any{"no", "no", 2, 24}, []any{group.Pattern, group.Example.Error, group.Count,
		len(group.Steps)})
	assert.Equal(t, group.Fingerprint, b.task(id).Fingerprint)
	by := "fingerprint=" + group.Fingerprint
	assert.Len(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?"+by, "")).Data, 2)
	assert.Equal(t, api.TaskCount{Count: 2, Exact: true},
		read[api.TaskCount](b, 200, b.call("GET", "/v1/tasks/count?type=pipe&"+by, "")))
	b.call("POST", "/v1/tasks/"+id+"/redrive", "")
	for _, call := range []string{"redrive", "rerun", "erase"} {
		assert.EqualValues(t, 1, read[api.Count](b, 200, b.call("POST", "/v1/tasks/"+call,
			`{"all_types":true,"dry_run":true,"status":"failed","fingerprint":"`+
				group.Fingerprint+`"}`)).Count, call)
	}
	since := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339))
	for query, want := range map[string]struct {
		status int
		field  string
	}{
		"?since=" + since: {400, "until"},
		"?order=worst":    {400, "order"},
		"?limit=101":      {400, "limit"},
		"?limit=0":        {400, "limit"},
		"?type=nope":      {404, "type"},
		"?status=failed":  {400, "status"},
	} {
		got := b.call("GET", "/v1/failures"+query, "")
		assert.Equal(t, want.status, got.status, query)
		assert.Contains(t, string(got.body), want.field, query)
	}
	assert.Equal(t, 400, b.call("GET", "/v1/tasks?fingerprint=x", "").status)
}

// Failures need the scope read, and are the tenant's own.
func TestFailuresOfTenants(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	b.failSecond()
	path := "/v1/failures"
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeSubmit), "GET", path, "").status)
	for tenant, want := range map[string]int{"acme": 1, "other": 0} {
		report := read[api.FailureReport](b, 200,
			b.callAs(b.newToken(tenant, auth.ScopeRead), "GET", path, ""))
		assert.Equal(t, want, report.Failures, tenant)
	}
}

// Final tasks are listed by their ends, the latest first, on pages with cursors.
func TestListByEnds(t *testing.T) {
	b := setup(t)
	b.pipe()
	var want, got []string
	for range 3 {
		want = append([]string{b.failSecond()}, want...)
	}
	again := want[2]
	b.call("POST", "/v1/tasks/"+again+"/redrive", "")
	l, token := b.lease()
	require.Equal(t, again, l.ID.String())
	require.Equal(t, 200, b.callAs(token, "POST", "/v1/callbacks/"+again+"/fail",
		`{"error":"no","retryable":false}`).status)
	want = append([]string{again}, want[:2]...) // it ended last
	path := "/v1/tasks?order=ended&status=failed&limit=1"
	for next := ""; ; {
		page := read[api.TaskList](b, 200, b.call("GET", path+"&cursor="+next, ""))
		require.Len(t, page.Data, 1)
		got = append(got, page.Data[0].ID)
		if next = page.NextCursor; next == "" {
			break
		}
		require.Equal(t, 400, b.call("GET", "/v1/tasks?status=failed&cursor="+next, "").status,
			"a cursor of another order")
	}
	assert.Equal(t, want, got)
	back := read[api.TaskList](b, 200, b.call("GET", path+"&reverse=true", ""))
	assert.Equal(t, want[2], back.Data[0].ID, "the earliest end")
	require.Equal(t, 400, b.call("GET", path+"&cursor="+back.NextCursor, "").status,
		"a cursor of the reverse list")
	for query, field := range map[string]string{"order=ended": "order", "order=worst": "order",
		"order=ended&status=running":                "order",
		"order=ended&status=failed&cursor=" + "AAA": "cursor"} {
		a := b.call("GET", "/v1/tasks?"+query, "")
		assert.Equal(t, 400, a.status, query)
		assert.Contains(t, string(a.body), field, query)
	}
}

// A reverse list begins with the end of the list, of a type and of all types.
func TestReverseList(t *testing.T) {
	b := setup(t)
	b.pipe()
	read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/other", `{"stages":[{"name":"only"}]}`))
	for _, name := range []string{"pipe", "other", "pipe", "other", "pipe"} {
		b.call("POST", "/v1/tasks", `{"type":"`+name+`","context":1}`)
	}
	for _, only := range []string{"", "type=pipe&"} {
		var want, got []string
		all := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?"+only, ""))
		for _, task := range all.Data {
			want = append([]string{task.ID}, want...)
		}
		for next := ""; ; {
			page := read[api.TaskList](b, 200,
				b.call("GET", "/v1/tasks?"+only+"reverse=true&limit=2&cursor="+next, ""))
			for _, task := range page.Data {
				got = append(got, task.ID)
			}
			if next = page.NextCursor; next == "" {
				break
			}
			assert.Equal(t, 400, b.call("GET", "/v1/tasks?"+only+"cursor="+next, "").status)
		}
		assert.Equal(t, want, got, only)
		assert.GreaterOrEqual(t, len(got), 3)
	}
}
