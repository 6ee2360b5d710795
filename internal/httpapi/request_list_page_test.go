package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// rows reads all pages of a list. There are no more than limit rows on a page.
func (b *bundle) rows(path string, limit int) (rows []map[string]any, pages int) {
	b.t.Helper()
	for cursor := ""; ; {
		page := read[struct {
			Data       []map[string]any `json:"data"`
			NextCursor string           `json:"next_cursor"`
		}](b, 200, b.call("GET",
			path+"?limit="+strconv.Itoa(limit)+"&cursor="+url.QueryEscape(cursor), ""))
		require.LessOrEqual(b.t, len(page.Data), limit)
		rows, pages, cursor = append(rows, page.Data...), pages+1, page.NextCursor
		if cursor == "" {
			return rows, pages
		}
	}
}

// Each list of what a tenant configures continues where its page ended, and refuses the cursors of
// other lists.
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
		"/v1/task-types": {"name", n + 1}, "/v1/schedules": {"name", n}, "/v1/endpoints": {"id", n},
		"/v1/operations": {"id", n},
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
		for _, bad := range []string{"?limit=0", "?limit=501", "?cursor=%21", "?cursor=" + others,
			"?cursor=" + base64Of("a b"), "?cursor=" + base64Of("a b c d"),
			"?cursor=" + strings.Repeat("a", 301)} {
			a := b.call("GET", path+bad, "")
			assert.Equal(t, 400, a.status, "%s%s: %s", path, bad, a.body)
		}
	}
}

// A list refuses the cursor of another filter.
func TestCursorOfAnotherFilter(t *testing.T) {
	b := setup(t)
	b.pipe()
	for range 3 {
		require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":{}}`).status)
	}
	page := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe&status=pending&limit=1",
		""))
	next := "&cursor=" + page.NextCursor
	assert.Equal(t, 200, b.call("GET", "/v1/tasks?type=pipe&status=pending&limit=2"+next,
		"").status)
	a := b.call("GET", "/v1/tasks?type=pipe"+next, "")
	require.Equal(t, 400, a.status)
	assert.Equal(t, "is not a next_cursor of this list with this filter",
		a.problem.Errors[0].Message)
}

func base64Of(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
