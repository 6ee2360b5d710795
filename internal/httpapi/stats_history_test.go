package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
)

// recordHistory moves what was counted two minutes back, and records it.
func (b *bundle) recordHistory() {
	b.t.Helper()
	b.exec(`UPDATE tenant_acme.tallies SET at = at - interval '2 min'`)
	_, err := b.store.RecordHistory(b.t.Context(), "acme", time.Time{})
	require.NoError(b.t, err)
}

func TestHistoryOfStats(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	for range 3 {
		require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status)
	}
	b.recordHistory()
	for _, path := range []string{"/v1/stats/pipe/history", "/v1/stats/history"} {
		h := read[api.StatsHistory](b, 200, b.call("GET", path, ""))
		assert.Equal(t, time.Minute, h.Step.Std(), path)
		var submitted, pending int64
		for _, p := range h.Points {
			submitted += p.Submitted
			pending = max(pending, p.Pending)
		}
		assert.EqualValues(t, 3, submitted, path)
		assert.EqualValues(t, 3, pending, path)
		assert.NotEmpty(t, h.Points[len(h.Points)-1].Backlog, path)
	}
	of := read[api.StatsHistory](b, 200, b.call("GET", "/v1/stats/pipe/history?stage=first", ""))
	assert.Empty(t, of.Points, "no attempt has begun")

	other := b.newToken("other", auth.ScopeRead)
	assert.Equal(t, 404, b.callAs(other, "GET", "/v1/stats/pipe/history", "").status)
	assert.Empty(t, read[api.StatsHistory](b, 200,
		b.callAs(other, "GET", "/v1/stats/history", "")).Points, "another tenant's tasks")
	assert.Equal(t, 403, b.callAs(b.newToken("acme", auth.ScopeWork), "GET", "/v1/stats/history",
		"").status)
	assert.Equal(t, 404, b.call("GET", "/v1/stats/nope/history", "").status)
}

// The history of all types may be by type, too: each one's points, as its own history gives them.
func TestHistoryByType(t *testing.T) {
	b := setup(t)
	b.pipe()
	for i, name := range []string{"busy", "idle", "quick"} {
		read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/"+name,
			`{"stages":[{"name":"only"}]}`))
		for range i {
			b.call("POST", "/v1/tasks", `{"type":"`+name+`","context":1}`)
		}
	}
	b.recordHistory()
	h := read[api.StatsHistory](b, 200, b.call("GET", "/v1/stats/history?by_type=true&step=5m", ""))
	require.Len(t, h.Types, 2, "busy and pipe did nothing")
	for i, name := range []string{"idle", "quick"} {
		one := read[api.StatsHistory](b, 200,
			b.call("GET", "/v1/stats/"+name+"/history?step=5m", ""))
		assert.Equal(t, api.TypePoints{Type: name, Points: one.Points}, h.Types[i])
		assert.NotEmpty(t, one.Points)
	}
	plain := read[api.StatsHistory](b, 200, b.call("GET", "/v1/stats/history?step=5m", ""))
	assert.Equal(t, plain.Points, h.Points)
	assert.Empty(t, plain.Types)
	from := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	for range 14 { // with 1,441 steps, 14 types and 4 are too many
		read[api.TaskType](b, 201, b.call("PUT", "/v1/task-types/t"+uuid.NewString()[:8],
			`{"stages":[{"name":"only"}]}`))
	}
	a := b.call("GET", "/v1/stats/history?by_type=true&step=1m&from="+from, "")
	require.Equal(t, 400, a.status)
	assert.Equal(t, "step", a.problem.Errors[0].Field)
	assert.Contains(t, string(a.body), "of each of 18 types; there are 20000 at most")
}

func TestLimitsOfHistory(t *testing.T) {
	b := setup(t)
	b.pipe()
	ago := func(d time.Duration) string {
		return time.Now().Add(-d).UTC().Format(time.RFC3339)
	}
	for query, field := range map[string]string{
		"from=" + ago(32*24*time.Hour):           "from",
		"from=" + ago(-time.Hour):                "from",
		"from=x":                                 "from",
		"from=" + ago(26*time.Hour) + "&step=5m": "step",
		"step=7m":                                "step",
		"step=0s":                                "step",
		"step=-1m":                               "step",
		"step=x":                                 "step",
		"stage=third":                            "stage",
		"from=" + ago(0) + "&until=" + ago(time.Hour): "from",
	} {
		a := b.call("GET", "/v1/stats/pipe/history?"+query, "")
		require.Equal(t, 400, a.status, query)
		assert.Equal(t, field, a.problem.Errors[0].Field, query)
	}
}

// Deploys, pauses, alerts and breakers of a type are marks, and of all types together, too.
func TestMarksOfHistory(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 200, b.call("POST", "/v1/task-types/pipe/pause", `{"reason":"a move"}`).status)
	require.Equal(t, 200, b.call("POST", "/v1/task-types/pipe/pause", "").status)
	require.Equal(t, 200, b.call("POST", "/v1/task-types/pipe/resume", "").status)
	require.Equal(t, 200, b.call("POST", "/v1/task-types/pipe/pause", `{"reason":"again"}`).status)
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/other",
		`{"stages":[{"name":"only"}]}`).status)
	marks := func(path string) (all []string) {
		for _, m := range read[api.StatsHistory](b, 200, b.call("GET", path, "")).Marks {
			over := ""
			if !m.Until.IsZero() {
				over = " over"
			}
			all = append(all, strings.Join([]string{string(m.Kind), m.Type, m.Text}, " ")+over)
		}
		return all
	}
	want := []string{"deploy pipe version 1", "pause pipe paused over", "pause pipe paused: again"}
	assert.Equal(t, want, marks("/v1/stats/pipe/history"))
	assert.Equal(t, append(want, "deploy other version 1"), marks("/v1/stats/history"))

	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	_, err := b.db.Exec(t.Context(), `INSERT INTO tenant_acme.endpoint_changes VALUES
		($1, now() - interval '3 min', 'open', now() - interval '2 min', 'status 503'),
		($1, now() - interval '1 min', 'closed', NULL, '')`, e.ID)
	require.NoError(t, err)
	assert.Contains(t, marks("/v1/stats/pipe/history"), "breaker pipe first open: status 503 over")
	assert.NotContains(t, strings.Join(marks("/v1/stats/other/history"), " "), "breaker")

	_, err = b.db.Exec(t.Context(), `INSERT INTO tenant_acme.endpoint_changes
		SELECT $1, now() - interval '10 min' - n * interval '1 s', 'open', NULL, 'x'
		FROM generate_series(1, 300) n`, e.ID)
	require.NoError(t, err)
	h := read[api.StatsHistory](b, 200, b.call("GET", "/v1/stats/pipe/history", ""))
	assert.Len(t, h.Marks, 200)
	assert.True(t, h.MarksCut)
}
