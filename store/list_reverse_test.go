package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// allPages lists the ids of all tasks that a filter finds, page by page.
func (b *bundle) allPages(f store.Filter) (ids []asyncflow.TaskID) {
	b.t.Helper()
	for range 400 {
		page, err := b.TaskPage(b.t.Context(), tenant, f)
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, len(page.Tasks), f.Limit)
		for _, task := range page.Tasks {
			ids = append(ids, task.ID)
		}
		f.After, f.FromType = page.Next, page.NextType
		if page.Next == 0 && page.NextType == "" {
			return ids
		}
	}
	b.t.Fatal("the list doesn't end")
	return nil
}

// sameBackwards requires that the reverse list of a filter is its list, the other way round.
func (b *bundle) sameBackwards(f store.Filter) {
	b.t.Helper()
	want := b.allPages(f)
	slices.Reverse(want)
	f.Reverse = true
	require.Equal(b.t, want, b.allPages(f))
}

// A reverse search ends when it passes the filter's Until.
func TestUntilEndsAReverseSearch(t *testing.T) {
	b, _ := behindHistory(t, 4*store.PageLook)
	page, err := b.TaskPage(t.Context(), tenant, store.Filter{Type: "pipe", Stage: "none",
		Until: b.Clock.Now().Add((1000 - 2*store.PageLook) * time.Second), Limit: 10,
		Reverse: true})
	require.NoError(t, err)
	assert.Empty(t, page.Tasks)
	assert.Zero(t, page.Next)
	assert.NotZero(t, page.Searched.Tasks)
	assert.Less(t, page.Searched.Tasks, store.PageLook)
}

// A page from the end of a list says among which tasks it looked, and is bounded as others are.
func TestReverseSearchedTasks(t *testing.T) {
	b := setup(t)
	b.past(b.put(twoStages()), store.PageLook+1000, store.PageLook+1000)
	f := store.Filter{Text: "none", Reverse: true}
	page := b.page(f)
	assert.Empty(t, page.Tasks)
	assert.Equal(t, store.PageLook, page.Searched.Tasks)
	assert.Equal(t, int64(store.PageLook), page.Next&(1<<40-1))
	f.After = page.Next
	last := b.page(f)
	assert.Equal(t, 1000, last.Searched.Tasks)
	assert.Zero(t, last.Next)
	assert.Equal(t, time.Second, last.Searched.From.Sub(page.Searched.Until))
}

func idsOf(tasks []store.Task) (ids []asyncflow.TaskID) {
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// A list with a time far from where it begins reads none of the tasks between.
func TestAListBeginsAtItsTime(t *testing.T) {
	b := setup(t)
	b.past(b.put(twoStages()), 4*store.PageLook, 4*store.PageLook)
	at := func(behind int) time.Time {
		return b.Clock.Now().Add(-time.Duration(behind) * time.Second)
	}
	for name, f := range map[string]store.Filter{
		"reverse, since":      {Since: at(100), Reverse: true},
		"newest first, until": {Until: at(4*store.PageLook - 200)},
	} {
		t.Run(name, func(t *testing.T) {
			f.Type, f.Limit = "pipe", 50
			page, err := b.TaskPage(t.Context(), tenant, f)
			require.NoError(t, err)
			assert.Len(t, page.Tasks, 50)
			assert.LessOrEqual(t, page.Searched.Tasks, 1000)
		})
	}
	for _, f := range []store.Filter{{Since: at(3000), Until: at(2000)}, {Since: at(300)},
		{Until: at(4*store.PageLook - 300)}, {Until: at(5 * store.PageLook)},
		{Since: at(-3600)},
		{Since: at(10_060), Until: at(10_000), Status: asyncflow.StatusFailed}} {
		f.Type, f.Limit = "pipe", 200
		b.sameBackwards(f)
		n, err := b.TaskCount(t.Context(), tenant, f)
		require.NoError(t, err)
		assert.Equal(t, int64(len(b.allPages(f))), n.Tasks)
	}
}
