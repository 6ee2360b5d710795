package store_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// pagesByEnd lists all tasks that a filter finds by their ends.
func (b *bundle) pagesByEnd(f store.Filter) (all []store.Task) {
	b.t.Helper()
	after := store.EndPlace{}
	for range 100 {
		page, next, err := b.EndedPage(b.t.Context(), tenant, f, after)
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, len(page), f.Limit)
		all = append(all, page...)
		if next == (store.EndPlace{}) {
			return all
		}
		require.Len(b.t, page, f.Limit)
		after = next
	}
	b.t.Fatal("the list doesn't end")
	return nil
}

// Final tasks of all types are listed by their ends, on pages of any size, each once.
func TestTasksByTheirEnds(t *testing.T) {
	b, _ := threeTypes(t) // beta, alpha and gamma, of each three failed
	last, err := b.Catalog.Type(tenant, "alpha")
	require.NoError(t, err)
	b.settle(last, b.leaseOne(last), rejected(0, asyncflow.Lease{}))
	for limit := 1; limit < 12; limit += 3 {
		var got []string
		list := b.pagesByEnd(store.Filter{Status: asyncflow.StatusFailed, Limit: limit})
		for i, task := range list {
			got = append(got, task.ID.Type)
			if i > 0 {
				require.False(t, task.FinishedAt.After(list[i-1].FinishedAt))
			}
		}
		assert.Equal(t, []string{"alpha", "gamma", "gamma", "gamma", "alpha", "alpha", "alpha",
			"beta", "beta", "beta"}, got, "by %d", limit)
		back := b.pagesByEnd(store.Filter{Status: asyncflow.StatusFailed, Limit: limit,
			Reverse: true})
		slices.Reverse(back)
		assert.Equal(t, idsOf(list), idsOf(back), "by %d", limit)
	}
}

// Tasks that ended at the same moment are listed once each, too.
func TestTasksWithTheSameEnd(t *testing.T) {
	b := setup(t)
	b.past(b.put(twoStages()), 300, 0)
	ids := map[asyncflow.TaskID]bool{}
	list := b.pagesByEnd(store.Filter{Status: asyncflow.StatusFailed, Limit: 7})
	for _, task := range list {
		ids[task.ID] = true
	}
	assert.Len(t, list, 30)
	assert.Len(t, ids, 30)
}

// A list by ends is refused if it can't know all that match at a bounded cost, or if some of them
// may be live.
func TestTasksByTheirEndsAreBounded(t *testing.T) {
	b := setup(t)
	b.past(b.put(twoStages()), store.MaxSorted+1000, 0)
	for _, c := range []struct {
		filter store.Filter
		text   string
	}{
		{store.Filter{}, "needs a status of final tasks, ended_since or ended_until"},
		{store.Filter{Status: asyncflow.StatusPending}, "needs a status of final tasks"},
		{store.Filter{Status: asyncflow.StatusSucceeded}, "more than 5000 tasks match"},
		{store.Filter{Status: asyncflow.StatusFailed, Text: "x"}, "order=ended"},
	} {
		c.filter.Limit = 10
		_, _, err := b.EndedPage(t.Context(), tenant, c.filter, store.EndPlace{})
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		assert.ErrorContains(t, err, c.text)
	}
	b.past(b.known(), 50_000, 0)
	_, _, err := b.EndedPage(t.Context(), tenant, store.Filter{Limit: 10, Code: "nothing",
		Status: asyncflow.StatusSucceeded}, store.EndPlace{})
	assert.ErrorContains(t, err, "the search was not over")
}
