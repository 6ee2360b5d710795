package tasks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
)

// prepareSearch fills the template database with a type with searchable fields.
func prepareSearch(ctx context.Context, url string) error {
	if err := prepare(ctx, url); err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: url})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.DeleteTaskType(ctx, tenant, "pipe", false); err != nil {
		return err
	}
	_, _, err = s.PutTaskType(ctx, tenant, asyncflow.TaskType{Name: "pipe",
		Searchable: []string{"user", "tags", "metadata.shop"},
		Stages:     []asyncflow.Stage{{Name: "first"}, {Name: "second"}}}.WithDefaults())
	return err
}

// However many tasks there are, and however few of them match, a page by a searchable field reads
// about as many rows as it shows, on its first page, on its last, and where nothing matches.
func TestSearchReadsFewRows(t *testing.T) {
	t.Parallel()
	const history = 8 * tasks.PageLook
	b := open(t, pgtest.Database(t, prepareSearch))
	b.insert(t, history, `
		INSERT INTO {task} (type, id, created_at, order_time, context, options)
		SELECT {number}, (1::bigint << 40) + n, now(), now(), '1', json_build_object(
		  'user', 'u' || n / 40, 'tags', CASE WHEN n % 14000 = 5 THEN '["rare","all"]'::json
		    ELSE '["all"]' END, 'metadata', json_build_object('shop', 'one'))
		FROM generate_series($1, $2) n;
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, final, error)
		SELECT {number}, (1::bigint << 40) + n, 1, now(), 'first', 1, 'failed',
		  CASE WHEN n % 2 = 0 THEN 'failed' ELSE 'succeeded' END, 'error ' || n
		FROM generate_series($1, $2) n`)
	_, err := b.db.Exec(t.Context(), b.pipe.SQL(1, records.RefillSearchSQL), 1)
	require.NoError(t, err)
	user := func(name string) tasks.LabelFilter { return tasks.LabelFilter{User: name} }
	check := func(t *testing.T) {
		t.Helper()
		for name, c := range map[string]struct {
			filter tasks.Filter
			found  int
			most   float64 // rows of tables
		}{
			"a rare user": {tasks.Filter{Labels: user("u7")}, 40, 400},
			"nobody":      {tasks.Filter{Labels: user("nobody")}, 0, 2},
			"failed ones of a user": {tasks.Filter{Labels: user("u7"),
				Status: asyncflow.StatusFailed}, 20, 400},
			"a rare tag":       {tasks.Filter{Labels: tasks.LabelFilter{Tags: []string{"rare"}}}, 3, 60},
			"the rarer tag":    {tasks.Filter{Labels: tasks.LabelFilter{Tags: []string{"all", "rare"}}}, 3, 60},
			"any of some tags": {tasks.Filter{Labels: tasks.LabelFilter{AnyTags: []string{"rare", "none"}}}, 3, 60},
			"a user among all": {tasks.Filter{Labels: tasks.LabelFilter{User: "u9",
				Name: "shop", Value: "one"}}, 40, 400},
			"the value of all": {tasks.Filter{Labels: tasks.LabelFilter{Name: "shop",
				Value: "one"}}, 50, 600},
			"running, of all": {tasks.Filter{Labels: tasks.LabelFilter{Name: "shop",
				Value: "one"}, Status: asyncflow.StatusRunning}, 0, 2},
		} {
			t.Run(name, func(t *testing.T) {
				c.filter.Type, c.filter.Limit = "pipe", 50
				plans, err := b.ExplainPage(t.Context(), b.pipe, c.filter)
				require.NoError(t, err)
				for _, text := range plans {
					var rows float64
					indexed := false
					planOf(t, text).walk(func(n node) {
						if n.Relation == "" {
							return
						}
						assert.Contains(t, n.Type, "Index", text)
						rows += n.Loops * (n.Rows + n.Removed + n.Unfit)
						if n.Relation == "search_1" {
							indexed = true
							assert.Contains(t, n.Cond, "entry =", text)
						}
					})
					scans := c.filter.Status == asyncflow.StatusRunning // there are none
					assert.Equal(t, !scans, indexed, text)
					most := c.most
					if strings.Contains(text, "Aggregate") && !scans { // the window itself
						most = max(most, tasks.PageLook+2)
					}
					assert.LessOrEqual(t, rows, most, text)
				}
				page, err := b.TaskPage(t.Context(), tenant, c.filter)
				require.NoError(t, err)
				assert.Len(t, page.Tasks, c.found)
				if c.found < 50 {
					assert.Zero(t, page.Next, "it is the last page")
					assert.Equal(t, page.Searched.Tasks, page.Searched.ByIndex)
					assert.LessOrEqual(t, page.Searched.Tasks, 2*c.found)
				}
			})
		}
	}
	t.Run("never analysed", check)
	_, err = b.db.Exec(t.Context(), fmt.Sprintf(`ANALYZE %s; ANALYZE %s; ANALYZE %s`,
		b.pipe.SQL(1, "{task}"), b.pipe.SQL(1, "{journal}"), b.pipe.SQL(1, "{search}")))
	require.NoError(t, err)
	t.Run("analysed", check)
}
