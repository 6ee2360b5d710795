package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

const tenant = "acme"

// bundle is the room over a database with the type pipe, and a way to look at it from the side.
type bundle struct {
	*tasks.Tasks
	url  string
	db   *pgxpool.Pool
	pipe *config.Type
}

// prepare fills the template database.
func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	if _, err := store.CreateTenant(ctx, url, tenant); err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: url})
	if err != nil {
		return err
	}
	defer s.Close()
	_, _, err = s.PutTaskType(ctx, tenant, asyncflow.TaskType{Name: "pipe",
		Stages: []asyncflow.Stage{{Name: "first"}, {Name: "second"}}}.WithDefaults())
	return err
}

// open opens the room on a database.
func open(t *testing.T, url string) *bundle {
	t.Helper()
	core, err := catalog.Open(t.Context(), catalog.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(core.Close)
	require.NoError(t, core.Load(t.Context()))
	path := hot.Open(core)
	pipe, err := core.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &bundle{Tasks: tasks.New(core, path, trees.New(core, path), counts.New(core)), url: url,
		db: db, pipe: pipe}
}

// insert writes n tasks with the next numbers by a statement, in which $1 and $2 stand for the
// first and the last number.
func (b *bundle) insert(t *testing.T, n int, sql string) {
	t.Helper()
	var end int64
	require.NoError(t, b.db.QueryRow(t.Context(), `UPDATE tenant_acme.rolls
		SET next_number = next_number + $2 WHERE table_set = $1 AND position = 1
		RETURNING next_number`, b.pipe.Set().Name, n).Scan(&end))
	sql = strings.ReplaceAll(b.pipe.SQL(1, sql), "{number}", strconv.Itoa(int(b.pipe.Number())))
	sql = strings.NewReplacer("$1", fmt.Sprint(end-int64(n)), "$2", fmt.Sprint(end-1)).Replace(sql)
	_, err := b.db.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// past writes n ended tasks. One in ten failed, with its number in the error; one in a hundred was
// cancelled.
func (b *bundle) past(t *testing.T, n int) {
	t.Helper()
	b.insert(t, n, `
		INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT {number}, (1::bigint << 40) + n, now(), now(), '1' FROM generate_series($1, $2) n;
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, final, error)
		SELECT {number}, (1::bigint << 40) + n, 1, now(), CASE final WHEN 'succeeded' THEN 'second'
		  ELSE 'first' END, 1,
		  CASE final WHEN 'succeeded' THEN 'done' ELSE final END, final, CASE final WHEN 'failed'
		    THEN 'error ' || n END
		FROM (SELECT n, CASE WHEN n % 10 = 7 THEN 'failed' WHEN n % 100 = 8 THEN 'cancelled'
		    ELSE 'succeeded' END AS final FROM generate_series($1, $2) n) t`)
}

// behindHistory returns a room with live tasks in every state, and a long history before and after
// them.
func behindHistory(t *testing.T, n int) *bundle {
	t.Helper()
	b := open(t, pgtest.Database(t, prepare))
	b.past(t, n/2)
	b.insert(t, 9, `
		INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT {number}, (1::bigint << 40) + n, now(), now(), '1' FROM generate_series($1, $2) n;
		INSERT INTO {ready} (type, order_time, id, seq, stage, attempt)
		SELECT type, order_time, id, 1, 'first', 1 FROM {task}
		  WHERE id >= (1::bigint << 40) + $1 AND id % 3 = 0;
		INSERT INTO {lease} (type, id, seq, stage, attempt, node, leased_at, until)
		SELECT type, id, 1, 'second', 1, 'node', now(), now() + interval '1 h' FROM {task}
		  WHERE id >= (1::bigint << 40) + $1 AND id % 3 = 1;
		INSERT INTO {wait} (type, id, seq, stage, attempt, order_time, reason, until)
		SELECT type, id, 1, 'second', 1, order_time, 'delay', now() + interval '1 h' FROM {task}
		  WHERE id >= (1::bigint << 40) + $1 AND id % 3 = 2`)
	b.past(t, n/2)
	return b
}

// node is a node of a query plan.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Unfit    float64 `json:"Rows Removed by Index Recheck"`
	Cond     string  `json:"Index Cond"`
	Plans    []node
}

// walk calls do with the node and those below it.
func (n node) walk(do func(node)) {
	do(n)
	for _, below := range n.Plans {
		below.walk(do)
	}
}

func planOf(t *testing.T, text string) node {
	t.Helper()
	var plan []struct{ Plan node }
	require.NoError(t, json.Unmarshal([]byte(text), &plan))
	require.Len(t, plan, 1)
	return plan[0].Plan
}

// A task's row in ready is found by all columns of its index, also by a plan that was made while
// the table was almost empty.
func TestReadyRowIsFoundByItsIndex(t *testing.T) {
	t.Parallel()
	b := behindHistory(t, 100)
	plans, err := b.ExplainPage(t.Context(), b.pipe, tasks.Filter{Limit: 50})
	require.NoError(t, err)
	found := false
	for _, text := range plans {
		planOf(t, text).walk(func(n node) {
			if n.Relation == "ready_1" {
				found = true
				assert.Contains(t, n.Cond, "order_time =", text)
				assert.Contains(t, n.Cond, "id =", text)
			}
		})
	}
	assert.True(t, found)
}

// However long the history, a page looks at a bounded number of its rows, and at almost none
// where it looks for live tasks.
func TestListsLookAtFewRows(t *testing.T) {
	t.Parallel()
	const history = 4 * tasks.PageLook
	b := behindHistory(t, history)
	check := func(t *testing.T) {
		t.Helper()
		for name, c := range map[string]struct {
			filter tasks.Filter
			most   float64 // rows of task and journal
		}{
			"all":              {tasks.Filter{}, 5 * 60},
			"running":          {tasks.Filter{Status: asyncflow.StatusRunning}, 100},
			"waiting":          {tasks.Filter{Status: asyncflow.StatusWaiting}, 100},
			"pending":          {tasks.Filter{Status: asyncflow.StatusPending}, 100},
			"live, an error":   {tasks.Filter{Status: asyncflow.StatusPending, Error: "x"}, 100},
			"failed":           {tasks.Filter{Status: asyncflow.StatusFailed}, 5 * 60},
			"a frequent error": {tasks.Filter{Error: "error"}, 5 * 60},
			"a rare error":     {tasks.Filter{Error: "error 12347"}, 4 * history / 9},
			"a rare stage":     {tasks.Filter{Stage: "none"}, 3 * tasks.PageLook},
			"without children": {tasks.Filter{Stage: "none", NoChildren: true}, 3 * tasks.PageLook},
			"a rare text":      {tasks.Filter{Text: "none"}, 7 * tasks.PageLook},
			"live, a text":     {tasks.Filter{Status: asyncflow.StatusWaiting, Text: "x"}, 100},
			"from the end":     {tasks.Filter{Reverse: true}, 5 * 60},
			"waiting, the end": {tasks.Filter{Status: asyncflow.StatusWaiting, Reverse: true}, 100},
			"failed, the end":  {tasks.Filter{Status: asyncflow.StatusFailed, Reverse: true}, 5 * 60},
		} {
			t.Run(name, func(t *testing.T) {
				c.filter.Type, c.filter.Limit = "pipe", 50
				plans, err := b.ExplainPage(t.Context(), b.pipe, c.filter)
				require.NoError(t, err)
				for _, text := range plans {
					var rows float64
					planOf(t, text).walk(func(n node) {
						assert.NotContains(t, n.Type, "Gather")
						if strings.HasPrefix(n.Relation, "task_") || strings.HasPrefix(n.Relation,
							"journal_") {
							assert.Contains(t, n.Type, "Index", "%s: %s", name, text)
							rows += n.Loops * (n.Rows + n.Removed + n.Unfit)
						}
					})
					most := c.most
					// the window itself, seen whole, and its ends
					if strings.Contains(text, "Aggregate") {
						most = max(most, tasks.PageLook+2)
					}
					assert.LessOrEqual(t, rows, most, "%s: %s", name, text)
				}
			})
		}
	}
	t.Run("never analysed", check)
	for _, table := range []string{"task_1", "journal_1", "ready_1", "lease", "wait"} {
		_, err := b.db.Exec(t.Context(), `ANALYZE tenant_acme.`+table)
		require.NoError(t, err)
	}
	t.Run("analysed", check)
	for _, setting := range []string{"parallel_setup_cost", "parallel_tuple_cost",
		"min_parallel_table_scan_size", "min_parallel_index_scan_size"} {
		_, err := b.db.Exec(t.Context(),
			`DO $$ BEGIN
			  EXECUTE format('ALTER DATABASE %I SET `+setting+` = 0', current_database()); END $$`)
		require.NoError(t, err)
	}
	b = open(t, b.url)
	t.Run("with workers for nothing", check)
}
