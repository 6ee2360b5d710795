package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// past writes n ended tasks with the next numbers by SQL, one for each second; the middle one is of
// now. One in ten failed, with its number in the error; one in a hundred was cancelled.
func (b *bundle) past(pipe *store.Type, n, middle int) {
	b.t.Helper()
	var end int64
	require.NoError(b.t,
		b.db.QueryRow(b.t.Context(), `UPDATE tenant_acme.rolls SET next_number = next_number + $2
		WHERE table_set = $1 AND position = 1 RETURNING next_number`, pipe.Set().Name, n).Scan(&end))
	_, err := b.db.Exec(b.t.Context(), fmt.Sprintf(fill(pipe, 1, `
		INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT {number}, (1::bigint << 40) + n, at, at, '1'
		FROM (SELECT n, now() + (n - %[3]d) * interval '1 s' AS at
		  FROM generate_series(%[1]d, %[2]d) n) t;
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, final, error)
		SELECT {number}, (1::bigint << 40) + n, 1, now(), CASE final WHEN 'succeeded' THEN 'second'
		  ELSE 'first' END, 1,
		  CASE final WHEN 'succeeded' THEN 'done' ELSE final END, final, CASE final WHEN 'failed'
		    THEN 'error ' || n END
		FROM (SELECT n, CASE WHEN n %% 10 = 7 THEN 'failed' WHEN n %% 100 = 8 THEN 'cancelled'
		    ELSE 'succeeded' END AS final FROM generate_series(%[1]d, %[2]d) n) t`),
		end-int64(n), end-1, middle))
	require.NoError(b.t, err)
}

// behindHistory returns a type with tasks in every state, and a long history before and after
// them.
func behindHistory(t *testing.T, n int) (*bundle, *store.Type) {
	b := setup(t)
	pipe := b.put(longSecond())
	b.past(pipe, n/2, n/2)
	b.places(pipe)
	b.past(pipe, n/2, n/2)
	return b, pipe
}

// All pages together show what a read of every single task shows, once and in order. Pages that
// find few tasks end early, and the next one goes on from there.
func TestPages(t *testing.T) {
	b, _ := behindHistory(t, 2*store.PageLook)
	var all []store.Task
	rows, err := b.db.Query(t.Context(), `SELECT id FROM tenant_acme.task_1 ORDER BY id DESC`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		id := asyncflow.TaskID{Type: "pipe"}
		require.NoError(t, rows.Scan(&id.Number))
		if seq := id.Sequence(); seq%1000 < 960 && seq > 20 && seq < 2*store.PageLook-100 &&
			(seq < store.PageLook-20 || seq > store.PageLook+200) {
			continue // enough tasks of this kind
		}
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err)
		all = append(all, task)
	}
	seen := map[int64]bool{}
	for _, task := range all {
		seen[task.ID.Number] = true
	}
	middle := all[len(all)/2].CreatedAt
	for name, c := range map[string]struct {
		filter store.Filter
		is     func(store.Task) bool
		pages  int // at least
	}{
		"all": {store.Filter{}, func(store.Task) bool { return true }, 100},
		"pending": {store.Filter{Status: asyncflow.StatusPending},
			func(k store.Task) bool { return k.Status == asyncflow.StatusPending }, 1},
		"waiting": {store.Filter{Status: asyncflow.StatusWaiting},
			func(k store.Task) bool { return k.Status == asyncflow.StatusWaiting }, 1},
		"failed in second": {store.Filter{Status: asyncflow.StatusFailed, Stage: "second"},
			func(k store.Task) bool {
				return k.Status == asyncflow.StatusFailed &&
					k.Stage == "second"
			}, 1},
		"cancelled": {store.Filter{Status: asyncflow.StatusCancelled},
			func(k store.Task) bool { return k.Status == asyncflow.StatusCancelled }, 1},
		"in first": {store.Filter{Stage: "first"},
			func(k store.Task) bool { return k.Stage == "first" }, 2},
		"none": {store.Filter{Stage: "none"}, func(store.Task) bool { return false }, 2},
		"an error": {store.Filter{Error: "TIMEOUT"},
			func(k store.Task) bool {
				return strings.Contains(strings.ToLower(k.Error),
					"timeout")
			}, 1},
		"since then": {store.Filter{Stage: "first", Since: middle},
			func(k store.Task) bool {
				return k.Stage == "first" &&
					!k.CreatedAt.Before(middle)
			}, 1},
		"until then": {store.Filter{Until: middle},
			func(k store.Task) bool { return k.CreatedAt.Before(middle) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "all" || name == "until then" { // they read the most pages
				longform.Costly(t)
			}
			f := c.filter
			f.Type, f.Limit = "pipe", 100
			var got []int64
			pages := 0
			for pages == 0 || f.After > 0 {
				page, err := b.TaskPage(t.Context(), tenant, f)
				require.NoError(t, err, name)
				require.LessOrEqual(t, len(page.Tasks), f.Limit)
				for _, task := range page.Tasks {
					if f.After > 0 {
						require.Less(t, task.ID.Number, f.After, name)
					}
					if seen[task.ID.Number] {
						got = append(got, task.ID.Number)
					}
				}
				f.After = page.Next
				pages++
			}
			var want []int64
			for _, task := range all {
				if c.is(task) {
					want = append(want, task.ID.Number)
				}
			}
			assert.Equal(t, want, got, name)
			assert.GreaterOrEqual(t, pages, c.pages, name)
			f.After = 0
			b.sameBackwards(f)
			f.Limit = 100000
			list, err := b.Tasks(t.Context(), tenant, f)
			require.NoError(t, err)
			got = slices.DeleteFunc(numbersOf(list), func(n int64) bool { return !seen[n] })
			assert.Equal(t, want, append([]int64(nil), got...), "%s, at once", name)
		})
	}
}

func numbersOf(tasks []store.Task) []int64 {
	numbers := make([]int64, len(tasks))
	for i, task := range tasks {
		numbers[i] = task.ID.Number
	}
	return numbers
}

// A search ends when it passes the filter's Since.
func TestSinceEndsASearch(t *testing.T) {
	b, _ := behindHistory(t, 4*store.PageLook)
	page, err := b.TaskPage(t.Context(), tenant,
		store.Filter{Type: "pipe", Stage: "none",
			Since: b.Clock.Now().Add((2*store.PageLook - 1000) * time.Second), Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, page.Tasks)
	assert.Zero(t, page.Next)
	assert.Less(t, page.Searched.Tasks, store.PageLook)
}

func TestList(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	for i := range 10 {
		task := newTask(fmt.Sprint(i))
		if i == 9 {
			task.Delay = asyncflow.NewDuration(time.Hour)
		}
		b.submit(task)
	}
	for i, l := range b.lease(pipe, 5) {
		switch i {
		case 0:
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "bad"})
		case 1, 2:
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		}
	}
	for _, l := range b.lease(pipe, 6) { // 5..8 are in stage first, two in stage second
		if l.Stage == "second" {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		} else {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
		}
	}
	counts := map[asyncflow.Status]int{"": 10, asyncflow.StatusFailed: 1,
		asyncflow.StatusSucceeded: 2, asyncflow.StatusRunning: 2, asyncflow.StatusPending: 4,
		asyncflow.StatusWaiting: 1}
	for status, want := range counts {
		list, err := b.Tasks(t.Context(), tenant,
			store.Filter{Type: "pipe", Status: status, Limit: 100})
		require.NoError(t, err, status)
		assert.Len(t, list, want, "status %q", status)
		for _, task := range list {
			one, err := b.Task(t.Context(), tenant, task.ID)
			require.NoError(t, err)
			assert.Equal(t, one.Status, task.Status)
		}
	}
	var pages []string
	f := store.Filter{Type: "pipe", Limit: 4}
	for {
		page, err := b.Tasks(t.Context(), tenant, f)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, task := range page {
			pages = append(pages, task.ID.String())
		}
		f.After = page[len(page)-1].ID.Number
	}
	assert.Len(t, pages, 10)
	assert.IsDecreasing(t, numbers(t, pages), "newest first, each once")
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Since: b.Clock.Now().Add(time.Minute), Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, list)
	list, err = b.Tasks(t.Context(), tenant,
		store.Filter{Type: "pipe", Until: b.Clock.Now().Add(time.Minute), Limit: 100})
	require.NoError(t, err)
	assert.Len(t, list, 10)
}

func numbers(t *testing.T, ids []string) []int64 {
	out := make([]int64, len(ids))
	for i, s := range ids {
		id, err := asyncflow.ParseTaskID(s)
		require.NoError(t, err)
		out[i] = id.Number
	}
	return out
}
