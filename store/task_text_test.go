package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// page returns a page of the tasks of the type pipe.
func (b *bundle) page(f store.Filter) store.Page {
	b.t.Helper()
	f.Type = "pipe"
	if f.Limit == 0 {
		f.Limit = 100
	}
	page, err := b.TaskPage(b.t.Context(), tenant, f)
	require.NoError(b.t, err)
	return page
}

// A text is looked for in contexts and in the outputs of all stages, just as it is written.
func TestListText(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(twoStages())
		ids := map[string]int64{}
		for name, context := range map[string]string{
			"percent": `{"a":"100% wool"}`, "other": `{"a":"100x wool"}`,
			"underscore": `"a_b"`, "letter": `"axb"`, "umlaut": `"Käse"`, "escape": `"K\u00e4se"`,
			"quote": `"it's; DROP TABLE task_1 --"`, "slash": `"a\\b"`,
		} {
			ids[name] = b.submit(newTask(context))[0].ID.Number
		}
		outputs := []string{`{"is":"a middle one"}`, `{"is":"the result"}`}
		ended := b.submit(newTask(`"in"`))[0].ID.Number
		for range 2 {
			for _, l := range b.lease(pipe, 100) {
				o := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}
				if l.ID.Number == ended {
					o = asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
						Output: json.RawMessage(outputs[0])}
					outputs = outputs[1:]
				}
				require.Equal(t, store.Settled{}, b.settle(pipe, l, o))
			}
		}
		ids["ended"] = ended
		for text, want := range map[string][]string{
			"wool": {"percent", "other"}, "100%": {"percent"}, "%": {"percent"},
			"a_b":  {"underscore"},
			"Käse": {"umlaut"}, "käse": nil, `\u00e4`: {"escape"}, "it's; DROP TABLE": {"quote"},
			`a\\b`: {"slash"}, `"in"`: {"ended"}, "middle": {"ended"}, "the result": {"ended"},
			"nowhere": nil, "$1": nil, "{task}": nil, "🧀": nil,
		} {
			page := b.page(store.Filter{Text: text})
			numbers := make([]int64, len(want))
			for i, name := range want {
				numbers[i] = ids[name]
			}
			assert.ElementsMatch(t, numbers, numbersOf(page.Tasks), text)
			assert.Equal(t, len(ids), page.Searched.Tasks, text)
			for _, task := range page.Tasks {
				assert.Empty(t, task.Context, "lists don't show them")
			}
		}
		for status, want := range map[asyncflow.Status]int{
			asyncflow.StatusSucceeded: 0, asyncflow.StatusPending: 2,
		} {
			assert.Len(t, b.page(store.Filter{Text: "wool", Status: status}).Tasks, want, status)
		}
	})
}

// No filter finds a task of another tenant.
func TestListTextOfATenant(t *testing.T) {
	b := setupTwo(t)
	b.put(twoStages())
	b.putOf("other", twoStages())
	task := newTask(`"secret"`)
	task.Options.Key = "k"
	for _, r := range b.Submit(t.Context(), "other", []asyncflow.NewTask{task}) {
		require.NoError(t, r.Err)
	}
	for name, f := range map[string]store.Filter{"text": {Text: "secret"}, "key": {Key: "k"}} {
		page := b.page(f)
		assert.Empty(t, page.Tasks, name)
		assert.Zero(t, page.Searched, name)
		f.Type, f.Limit = "pipe", 10
		page, err := b.TaskPage(t.Context(), "other", f)
		require.NoError(t, err)
		assert.Len(t, page.Tasks, 1, name)
	}
}

// A page that finds nothing says among which tasks it looked.
func TestSearchedTasks(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.past(pipe, store.PageLook+1000, store.PageLook+1000)
	numbers := func(page store.Page) []int64 {
		oldest, newest := page.Searched.From, page.Searched.Until
		return []int64{int64(page.Searched.Tasks), page.Next & (1<<40 - 1),
			int64(newest.Sub(oldest).Round(time.Second).Seconds()) + 1}
	}
	page := b.page(store.Filter{Text: "none"})
	assert.Empty(t, page.Tasks)
	assert.Equal(t, int64(store.PageLook), numbers(page)[0])
	assert.Equal(t, int64(store.PageLook), numbers(page)[2], "one for each second")
	assert.WithinDuration(t, b.Clock.Now(), page.Searched.Until, time.Minute)
	require.NotZero(t, page.Next)
	last := b.page(store.Filter{Text: "none", After: page.Next})
	assert.Equal(t, []int64{1000, 0, 1000}, numbers(last))
	assert.Equal(t, time.Second, page.Searched.From.Sub(last.Searched.Until))
}

// A page ends after a search of 16 MiB of contexts and outputs. No task is left out.
func TestPageOfLongTexts(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	const n, size = 124, 1 << 20
	b.past(pipe, n, n)
	_, err := b.db.Exec(t.Context(), fmt.Sprintf(fill(pipe, 1, `
		UPDATE {task} SET context = repeat('x', %[1]d) WHERE id %% 4 = 0;
		UPDATE {journal} SET output = repeat('y', %[1]d) WHERE id %% 4 = 1`), size))
	require.NoError(t, err)
	const most = store.PageText / size * 2
	var sizes []int
	f := store.Filter{Text: "none"}
	for sum := 0; sum < n; {
		page := b.page(f)
		assert.Empty(t, page.Tasks)
		sizes = append(sizes, page.Searched.Tasks)
		assert.LessOrEqual(t, page.Searched.Tasks, most+4)
		sum, f.After = sum+page.Searched.Tasks, page.Next
		assert.Equal(t, sum < n, page.Next > 0, "page %d", len(sizes))
		require.LessOrEqual(t, len(sizes), 6)
	}
	assert.Len(t, sizes, 4, "%v", sizes)
	all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Text: "y", Limit: n})
	require.NoError(t, err)
	assert.Len(t, all, n/4, "none is left out between the pages")
	b.sameBackwards(store.Filter{Type: "pipe", Text: "y", Limit: n})
}

// One context that is longer than a page may read is searched all the same.
func TestPageOfOneLongText(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.past(pipe, 2, 2)
	_, err := b.db.Exec(t.Context(), fmt.Sprintf(
		fill(pipe, 1, `UPDATE {task} SET context = repeat('a long one ', %d) || 'end'`),
		store.PageText/10))
	require.NoError(t, err)
	var found int
	f := store.Filter{Text: "one end"}
	for pages := 1; ; pages++ {
		page := b.page(f)
		found += len(page.Tasks)
		require.LessOrEqual(t, pages, 3)
		if f.After = page.Next; f.After == 0 {
			break
		}
	}
	assert.Equal(t, 2, found)
}

// A key finds the task for which it stands, with the other filters too.
func TestListKey(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(twoStages())
		ids := map[string]int64{}
		for _, key := range []string{"a", "A", "%", "a_b", "axb", strings.Repeat("ä", 120),
			"' OR 1=1 --"} {
			task := newTask(`1`)
			task.Options.Key = key
			ids[key] = b.submit(task, newTask(`1`))[0].ID.Number
		}
		for key, id := range ids {
			page := b.page(store.Filter{Key: key})
			assert.Equal(t, []int64{id}, numbersOf(page.Tasks), key)
			assert.Equal(t, 1, page.Searched.Tasks)
			assert.Zero(t, page.Next)
			assert.Empty(t, b.page(store.Filter{Key: key, After: id}).Tasks, "the page after it")
			b.sameBackwards(store.Filter{Type: "pipe", Key: key, Limit: 1})
			assert.Empty(t, b.page(store.Filter{Key: key, Status: asyncflow.StatusFailed}).Tasks)
			assert.Len(t, b.page(store.Filter{Key: key, Status: asyncflow.StatusPending}).Tasks, 1)
			assert.Empty(t, b.page(store.Filter{Key: key, Text: "2"}).Tasks)
		}
		assert.Empty(t, b.page(store.Filter{Key: "b"}).Tasks)
	})
}
