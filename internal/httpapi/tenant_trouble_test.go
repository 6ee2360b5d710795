package httpapi_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
)

// Operators get the tenants in trouble, the worst first, with what is wrong. Tenants that are well
// or suspended are left out.
func TestTenantsByTrouble(t *testing.T) {
	b := setup(t)
	tokens := map[string]string{}
	for _, slug := range []string{"alerted", "failing", "busy", "well", "suspended"} {
		read[api.Tenant](b, 201, b.admin("POST", "/v1/tenants", `{"slug":"`+slug+`"}`))
		tokens[slug] = b.newToken(slug, auth.ScopeManage, auth.ScopeRead, auth.ScopeSubmit)
		read[api.TaskType](b, 201, b.callAs(tokens[slug], "PUT", "/v1/task-types/pipe",
			`{"stages":[{"name":"only"}]}`))
	}
	submit := func(slug, more string) {
		t.Helper()
		read[api.SubmittedTask](b, 201, b.callAs(tokens[slug], "POST", "/v1/tasks",
			`{"type":"pipe","context":1`+more+`}`))
	}
	exec := func(sql string) {
		t.Helper()
		_, err := b.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	began := time.Now().Add(-time.Second)
	submit("busy", ``)
	submit("busy", ``)
	submit("suspended", ``)
	submit("well", `,"delay":"1h"`)
	alerts := read[api.Alerts](b, 200, b.callAs(tokens["alerted"], "PUT", "/v1/alerts",
		`{"url":"https://alerts.example.com/x","rules":{"backlog_age":"5m"}}`))
	exec(`INSERT INTO tenant_alerted.alert_episodes
		(id, endpoint, alert, subject, since, value, bound, resolved_at)
		SELECT gen_random_uuid(), '` + alerts.Endpoint + `', 'backlog_age', 'type ' || n, now(), 1, 1,
		  CASE n WHEN 3 THEN now() END FROM generate_series(1, 3) n`)
	exec(`INSERT INTO tenant_failing.tallies (type, at, failed, attempts)
		SELECT 'pipe', now() - n * interval '1 min', 4, 4 FROM unnest(ARRAY[5, 50, 70]) n`)
	for slug := range tokens {
		_, err := b.store.RecordHistory(t.Context(), slug, time.Time{})
		require.NoError(t, err)
	}
	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/suspended", `{"suspended":true}`))

	require.NoError(t, b.store.NoteUnread(t.Context(), "well")) // it hides no other tenant
	list := read[api.TenantList](b, 200, b.admin("GET", "/v1/tenants?order=trouble", ""))
	assert.Equal(t, 1, list.Unread)
	require.Empty(t, list.NextCursor)
	health := map[string]api.TenantHealth{}
	var names []string
	for _, one := range list.Data {
		names = append(names, one.Slug)
		health[one.Slug] = one.Health
	}
	assert.Equal(t, []string{"alerted", "failing", "busy"}, names)
	assert.Equal(t, api.TenantHealth{Alerts: 2}, health["alerted"])
	assert.Equal(t, api.TenantHealth{FailedLastHour: 8}, health["failing"])
	assert.EqualValues(t, 2, health["busy"].Due)
	assert.WithinRange(t, health["busy"].OldestDue, began, time.Now())

	first := read[api.TenantList](b, 200, b.admin("GET", "/v1/tenants?order=trouble&limit=1", ""))
	assert.Equal(t, list.Data[:1], first.Data)
	page := read[api.TenantList](b, 200, b.admin("GET", "/v1/tenants?limit=1", ""))
	for _, one := range page.Data {
		assert.Zero(t, one.Health, "by name, nothing is counted")
	}
	cursor := page.NextCursor
	require.NotEmpty(t, cursor)
	assert.Equal(t, 400,
		b.admin("GET", "/v1/tenants?order=trouble&limit=1&cursor="+cursor, "").status)
	assert.Equal(t, 400, b.admin("GET", "/v1/tenants?order=size", "").status)
	assert.Equal(t, 403, b.callAs(tokens["well"], "GET", "/v1/tenants?order=trouble", "").status)
}

// Alerts come first, then late tasks, then failed tasks, then due ones.
func TestOrderOfTrouble(t *testing.T) {
	now := time.Now()
	type health = api.TenantHealth
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	worst := []api.Tenant{
		{Slug: "a", Health: health{Alerts: 2}},
		{Slug: "b", Health: health{Alerts: 1, FailedLastHour: 9}},
		{Slug: "c", Health: health{Alerts: 1}},
		{Slug: "d", Health: health{Due: 1, OldestDue: ago(3 * time.Hour)}},
		{Slug: "e", Health: health{Due: 9, OldestDue: ago(2 * time.Minute)}},
		{Slug: "f", Health: health{FailedLastHour: 2, Due: 1, OldestDue: ago(time.Second)}},
		{Slug: "g", Health: health{FailedLastHour: 1, Due: 9, OldestDue: ago(9 * time.Second)}},
		{Slug: "h", Health: health{Due: 9}},
		{Slug: "i", Health: health{Due: 8}},
		{Slug: "j", Health: health{Due: 8}},
	}
	sorted := slices.Clone(worst)
	slices.Reverse(sorted)
	slices.SortFunc(sorted, func(a, b api.Tenant) int { return httpapi.CompareHealth(a, b, now) })
	assert.Equal(t, worst, sorted)
}
