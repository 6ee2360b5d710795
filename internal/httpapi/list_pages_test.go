package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// rows reads all pages of a list, none of which has more than limit rows.
func (b *bundle) rows(path string, limit int) (rows []map[string]any, pages int) {
	b.t.Helper()
	for cursor := ""; ; {
		page := read[struct {
			Data       []map[string]any `json:"data"`
			NextCursor string           `json:"next_cursor"`
		}](b, 200, b.call("GET", path+"?limit="+strconv.Itoa(limit)+"&cursor="+url.QueryEscape(cursor), ""))
		require.LessOrEqual(b.t, len(page.Data), limit)
		rows, pages, cursor = append(rows, page.Data...), pages+1, page.NextCursor
		if cursor == "" {
			return rows, pages
		}
	}
}

// Each list of what a tenant configures goes on where its page ended, and takes no
// cursor that is none of its own.
func TestListsArePaged(t *testing.T) {
	b := setup(t)
	const n = 5
	b.pipe()
	for i := range n {
		read[api.TaskType](
			b,
			201,
			b.call("PUT", fmt.Sprintf("/v1/task-types/t%d", i), `{"stages":[{"name":"only"}]}`),
		)
		read[api.Schedule](
			b,
			201,
			b.call(
				"PUT",
				fmt.Sprintf("/v1/schedules/s%d", i),
				`{"type":"pipe","context":{},"cron":"@hourly"}`,
			),
		)
		b.createEndpoint(`"url":"https://w%d.example.com/"`, i)
		_, err := b.store.StartOperation(
			t.Context(),
			"acme",
			store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}},
		)
		require.NoError(t, err)
	}
	others := base64Of("no name at all")
	for path, c := range map[string]struct {
		key  string
		want int
	}{
		"/v1/task-types": {"name", n + 1}, "/v1/schedules": {"name", n}, "/v1/endpoints": {"id", n}, "/v1/operations": {"id", n},
	} {
		rows, pages := b.rows(path, 2)
		seen := map[any]bool{}
		for _, row := range rows {
			seen[row[c.key]] = true
		}
		assert.Len(t, rows, c.want, path)
		assert.Len(t, seen, c.want, path)
		assert.Equal(t, (c.want+1)/2, pages, path)
		all, pages := b.rows(path, 500)
		assert.Len(t, all, c.want, path)
		assert.Equal(t, 1, pages, path)
		for _, bad := range []string{"?limit=0", "?limit=501", "?cursor=%21", "?cursor=" + others, "?cursor=" + base64Of("a b"), "?cursor=" + base64Of("a b c d"),
			"?cursor=" + strings.Repeat("a", 301)} {
			a := b.call("GET", path+bad, "")
			assert.Equal(t, 400, a.status, "%s%s: %s", path, bad, a.body)
		}
	}
}

// journal gives a new task n attempts with outputs of the given size in bytes, and returns its id.
func (b *bundle) journal(n, bytes int) string {
	b.t.Helper()
	b.pipe()
	id, _ := b.submitOne()
	parsed, err := asyncflow.ParseTaskID(id)
	require.NoError(b.t, err)
	_, err = b.db.Exec(
		b.t.Context(),
		`INSERT INTO tenant_acme.journal_pipe_1 (id, seq, at, stage, attempt, outcome, output)
		SELECT $1, n, now(), 'first', n, 'failed', to_json(repeat('x', $3)) FROM generate_series(1, $2::int) n`,
		parsed.Number,
		n,
		bytes,
	)
	require.NoError(b.t, err)
	return id
}

// No answer has the outputs of a whole journal.
func TestAttemptsOfAnyLengthAreAnsweredInPages(t *testing.T) {
	b := setup(t)
	const n, each = 60, 250 << 10 // 15 MB
	path := "/v1/tasks/" + b.journal(n, each) + "/attempts"
	short := b.call("GET", path, "")
	page := read[api.AttemptList](b, 200, short)
	assert.Len(t, page.Data, n)
	assert.Less(t, len(short.body), n*1024)
	assert.Nil(t, page.Data[0].Output)
	assert.Equal(t, each+2, page.Data[0].OutputBytes)
	assert.True(t, strings.HasPrefix(page.Data[0].OutputExcerpt, `"xxx`))
	seen := 0
	for cursor := ""; ; {
		a := b.call("GET", path+"?outputs=true&cursor="+cursor, "")
		page := read[api.AttemptList](b, 200, a)
		require.Less(t, len(a.body), store.PageBytes+each+64<<10)
		for _, one := range page.Data {
			seen++
			require.Equal(t, seen, one.Seq)
			require.Len(t, one.Output, each+2)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	assert.Equal(t, n, seen)
	for _, bad := range []string{"?cursor=x", "?cursor=" + base64Of("99999"), "?cursor=" + base64Of("-1"), "?limit=501", "?outputs=maybe"} {
		assert.Equal(t, 400, b.call("GET", path+bad, "").status, bad)
	}
}

// A stream begins with the journal so far, of which it has a part at a time.
func TestEventsOfALongJournal(t *testing.T) {
	b := setup(t)
	const n, each = 250, 100 << 10
	id := b.journal(n, each)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	token := b.newToken("acme", auth.ScopeRead)
	for query, long := range map[string]bool{"": false, "?outputs=true": true} {
		e, a := b.followQuery(ctx, token, id, "", query)
		require.Equal(t, 200, a.status)
		for seq := 1; seq <= n; seq++ {
			attempt, _ := e.attempt()
			require.Equal(t, seq, attempt.Seq)
			require.Equal(t, long, len(attempt.Output) == each+2)
			require.Equal(t, !long, attempt.OutputBytes == each+2)
		}
		require.Equal(t, id, e.task().ID, "after the journal")
		require.NoError(t, e.body.Close())
	}
}

// A URL is registered once for a stage, unless it is asked for.
func TestEndpointsWithTheSameURL(t *testing.T) {
	b := setup(t)
	b.pipe()
	first := b.createEndpoint(`"url":"https://w.example.com/a"`)
	again := b.call(
		"POST",
		"/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://W.example.com:443/a"}`,
	)
	require.Equal(t, 409, again.status, "%s", again.body)
	assert.Equal(t, "conflict", again.problem.Code)
	assert.Contains(t, again.problem.Detail, first.ID)
	assert.Equal(t, "url", again.problem.Errors[0].Field)
	second := b.createEndpoint(`"url":"https://w.example.com/a","allow_duplicate":true`)
	third := b.createEndpoint(`"url":"https://w.example.com/b"`)
	moved := b.call("PATCH", "/v1/endpoints/"+third.ID, `{"url":"https://w.example.com/a"}`)
	require.Equal(t, 409, moved.status, "%s", moved.body)
	assert.Contains(t, moved.problem.Detail, first.ID)
	b.patchEndpoint(third.ID, `{"url":"https://w.example.com/a","allow_duplicate":true}`)
	b.patchEndpoint(second.ID, `{"weight":7,"url":"https://w.example.com/a"}`)

	b.quota(`{"endpoints":3}`)
	over := b.call(
		"POST",
		"/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/c"}`,
	)
	require.Equal(t, 403, over.status, "%s", over.body)
	assert.Equal(t, "quota_exceeded", over.problem.Code)
	quota, err := json.Marshal(over.problem.Quota)
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"endpoints","limit":3,"used":3}`, string(quota))
}

func base64Of(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
