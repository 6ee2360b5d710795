package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// searchable makes the tasks of a type found by all fields that can be.
func searchable(t asyncflow.TaskType) asyncflow.TaskType {
	t.Searchable = []string{"user", "tags", "flow_key", "metadata.order", "metadata.shop"}
	return t
}

// checkSearch asserts that in the searchable rolls of a type is what their tasks are found by, and
// nothing else. It returns how much it is.
func (b *bundle) checkSearch(name string) (rows int) {
	b.t.Helper()
	wrong, rows := b.wrongSearch(name)
	assert.Empty(b.t, wrong)
	return rows
}

// wrongSearch compares what the tasks in the searchable rolls of a type are found by with what SQL
// computes from them; most of it was written in Go. It returns the differences, and how much it is.
func (b *bundle) wrongSearch(name string) (wrong []string, rows int) {
	b.t.Helper()
	require.NoError(b.t, b.Catalog.RefreshTenant(b.t.Context(), tenant))
	t, err := b.Catalog.Type(tenant, name)
	require.NoError(b.t, err)
	for _, position := range t.Rolls() {
		if len(t.Searchable(position)) == 0 {
			continue
		}
		wanted := fmt.Sprintf(`SELECT e, t.id FROM {task} t, {types} y,
			{search_entries}(y.search_from, %d, t.options) e
			WHERE y.number = t.type AND t.type = {number}`, position)
		found := `SELECT entry, id FROM {search} WHERE type = {number}`
		differ := `SELECT count(*) FROM (%s EXCEPT %s) s`
		missing := b.count(fill(t, position, fmt.Sprintf(differ, wanted, found)))
		more := b.count(fill(t, position, fmt.Sprintf(differ, found, wanted)))
		if missing+more > 0 {
			wrong = append(wrong, fmt.Sprintf("roll %d of %s: %d missing, %d too much", position,
				name, missing, more))
		}
		rows += b.count(fill(t, position, `SELECT count(*) FROM (`+found+`) s`))
	}
	return wrong, rows
}

// meets reports whether a task meets the labels and the flow key of a filter.
func meets(o asyncflow.Options, f store.Filter) bool {
	l := f.Labels
	value, has := o.Metadata[l.Name]
	some := len(l.AnyTags) == 0
	for _, tag := range l.AnyTags {
		some = some || slices.Contains(o.Tags, tag)
	}
	for _, tag := range l.Tags {
		some = some && slices.Contains(o.Tags, tag)
	}
	return some && (f.FlowKey == "" || f.FlowKey == o.FlowKey) &&
		(l.User == "" || l.User == o.User) &&
		(l.Name == "" || has && value == l.Value)
}

// checkFound asserts that lists, counts and operations find the tasks of a type that meet a filter.
func (b *bundle) checkFound(name string, f store.Filter) {
	b.t.Helper()
	f.Type, f.Limit = name, 1000
	all, err := b.Tasks(b.t.Context(), tenant, store.Filter{Type: name, Limit: 10_000})
	require.NoError(b.t, err)
	wanted := []asyncflow.TaskID{}
	for _, one := range all {
		if meets(one.Options, f) && (f.Status == "" || f.Status == one.Status) {
			wanted = append(wanted, one.ID)
		}
	}
	for _, of := range []string{name, ""} {
		f.Type = of
		found := []asyncflow.TaskID{}
		list, err := b.Tasks(b.t.Context(), tenant, f)
		require.NoError(b.t, err)
		for _, one := range list {
			if one.ID.Type == name {
				found = append(found, one.ID)
			}
		}
		assert.Equal(b.t, wanted, found, "%+v", f)
	}
	f.Type = name
	counted, err := b.TaskCount(b.t.Context(), tenant, f)
	require.NoError(b.t, err)
	assert.EqualValues(b.t, len(wanted), counted.Tasks, "%+v", f)
	f.Status = asyncflow.StatusFailed
	dry, err := b.CountTasks(b.t.Context(), tenant,
		store.NewOperation{Kind: store.RedriveTasks, Filter: f})
	require.NoError(b.t, err)
	failed := 0
	for _, one := range all {
		if meets(one.Options, f) && one.Status == asyncflow.StatusFailed {
			failed++
		}
	}
	assert.EqualValues(b.t, failed, dry, "%+v", f)
}

// hostile are values that are hard to tell apart, to quote or to store.
var hostile = []string{"u", "u1", "U1", "user", "a \"quoted\" one\\", "o'neill", "%", "ü",
	"u\u0308", "\u202e\U0001F600", "null", strings.Repeat("x", 254), strings.Repeat("x", 255), " ", "\t", "{1}"}

// randomLabelled returns a task with some labels, of a few values.
func randomLabelled(r *rand.Rand) asyncflow.NewTask {
	some := func(all []string) string { return all[r.IntN(len(all))] }
	task := newTask(`1`)
	if r.IntN(3) > 0 {
		task.Options.User = some(hostile)
	}
	if r.IntN(3) > 0 {
		task.Options.FlowKey = some(hostile[:6])
	}
	for _, tag := range []string{"eu", "us", "u1", "user"} {
		if r.IntN(3) == 0 {
			task.Options.Tags = append(task.Options.Tags, tag)
		}
	}
	for _, name := range []string{"order", "shop", "user"} {
		if r.IntN(3) == 0 {
			value := ""
			if r.IntN(4) > 0 {
				value = some(hostile)
			}
			if task.Options.Metadata == nil {
				task.Options.Metadata = map[string]string{}
			}
			task.Options.Metadata[name] = value
		}
	}
	return task
}

func randomFilter(r *rand.Rand) (f store.Filter) {
	some := func(all []string) string { return all[r.IntN(len(all))] }
	tags := []string{"eu", "us", "u1", "user", "none"}
	for f.Labels.IsZero() && f.FlowKey == "" {
		if r.IntN(3) == 0 {
			f.Labels.User = some(hostile)
		}
		if r.IntN(4) == 0 {
			f.FlowKey = some(hostile[:6])
		}
		if r.IntN(4) == 0 {
			f.Labels.Name = some([]string{"order", "shop", "user"})
			f.Labels.Value = some(append([]string{""}, hostile...))
		}
		if r.IntN(4) == 0 {
			f.Labels.Tags = tags[:1+r.IntN(2)]
		}
		if r.IntN(4) == 0 {
			f.Labels.AnyTags = tags[r.IntN(2) : 3+r.IntN(2)]
		}
	}
	if r.IntN(3) == 0 {
		f.Status = []asyncflow.Status{asyncflow.StatusPending, asyncflow.StatusWaiting,
			asyncflow.StatusFailed}[r.IntN(3)]
	}
	return f
}

// bySQLLabelled submits a task by SQL.
func (b *bundle) bySQLLabelled(task asyncflow.NewTask, more string) {
	b.t.Helper()
	labels, err := json.Marshal(task.Options.Labels)
	require.NoError(b.t, err)
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	args := `'pipe', '1', labels => ` + quote(string(labels)) + more
	if task.Options.FlowKey != "" {
		args += `, flow_key => ` + quote(task.Options.FlowKey)
	}
	_, err = b.bySQL(b.app(), args)
	require.NoError(b.t, err)
}

// Whichever way tasks come, and whatever their labels are, a search finds what a look at each of
// them finds.
func TestSearchFindsWhatAScanFinds(t *testing.T) { eachSet(t, searchFindsWhatAScanFinds) }

func searchFindsWhatAScanFinds(t *testing.T, b *bundle) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	b.byHand()
	b.put(base())
	b.put(twoStages())
	early := b.submit(randomLabelled(r), randomLabelled(r), randomLabelled(r))[0].ID
	b.put(searchable(twoStages()))
	for roll := range 3 {
		for n := range 10 {
			task := randomLabelled(r)
			switch n % 5 {
			case 0:
				b.submit(task)
			case 1:
				b.submit(task, randomLabelled(r), randomLabelled(r))
			case 2:
				task.Options.Key = fmt.Sprint("key", roll, n)
				b.submit(task)
			case 3:
				task.DependsOn = []asyncflow.Dependency{{Task: early}}
				b.submit(task)
			case 4:
				b.bySQLLabelled(task, "")
			}
		}
		b.bySQLLabelled(randomLabelled(r), `, run_at => now() + interval '1 h'`)
		b.bySQLLabelled(randomLabelled(r), `, depends_on => '[{"task": "`+early.String()+`"}]'`)
		pipe := b.known()
		b.settleAll(pipe, b.lease(pipe, 6), rejected)
		b.followUp()
		if rows := b.checkSearch("pipe"); roll > 0 {
			assert.Positive(t, rows)
		}
		for range 12 {
			b.checkFound("pipe", randomFilter(r))
		}
		b.rollAndClear()
	}
	full := b.known().SearchFrom()
	assert.Equal(t, map[string]int{"user": 2, "tags": 2, "flow_key": 2, "metadata.order": 2,
		"metadata.shop": 2}, full)
}

// A field counts from the next roll on, or from the beginning of a new type; and after it was left
// out, again from the next roll on. An answer says what was found by the index.
func TestSearchableFromTheNextRoll(t *testing.T) { eachSet(t, searchableFromTheNextRoll) }

func searchableFromTheNextRoll(t *testing.T, b *bundle) {
	far := behind(t, b)
	b.put(twoStages())
	require.NoError(t, far.Catalog.RefreshTenant(t.Context(), tenant))
	submit := func() { b.submit(labelled("u1", "1"), labelled("u2", "1")) }
	page := func(tasks, searched, byIndex int) {
		t.Helper()
		p, err := b.TaskPage(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 100,
			Labels: store.LabelFilter{User: "u1"}})
		require.NoError(t, err)
		assert.Equal(t, []int{tasks, searched, byIndex},
			[]int{len(p.Tasks), p.Searched.Tasks, p.Searched.ByIndex})
	}
	submit()
	with := twoStages()
	with.Searchable = []string{"user"}
	b.put(with)
	require.Equal(t, map[string]int{"user": 2}, b.known().SearchFrom())
	require.True(t, b.known().AwaitsSearch())
	submit()
	page(2, 4, 0)
	b.rollAndClear()
	require.False(t, b.known().AwaitsSearch())
	submit()
	page(3, 5, 1)
	far.submit(labelled("u1", "1")) // it knows neither the field nor the roll
	require.Equal(t, 3, b.checkSearch("pipe"))
	page(4, 6, 2)

	with.Searchable = []string{"user", "metadata.order"}
	b.put(with)
	require.Equal(t, map[string]int{"user": 2, "metadata.order": 3}, b.known().SearchFrom())
	b.put(twoStages())
	require.Empty(t, b.known().SearchFrom())
	submit()
	page(5, 9, 0)
	b.put(with)
	b.put(with)
	require.Equal(t, map[string]int{"user": 3, "metadata.order": 3}, b.known().SearchFrom())
	page(5, 9, 0)

	other := searchable(twoStages())
	other.Name = "other"
	known := b.put(other)
	require.Equal(t, known.End, known.SearchFrom()["user"])
	require.Len(t, known.Searchable(known.End), 5)
}

// What a task makes is found, too: children, tasks that it starts, notifications, reruns, tasks of
// schedules, and tasks that an unknown commit may have inserted.
func TestWhatTasksMakeIsFound(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(searchable(base()))
	spec := spawning()
	spec.Stages[1].FanOut = &asyncflow.FanOut{Items: "/items"}
	pipe := b.put(searchable(spec))
	task := labelled("u1", "4711", "eu")
	task.Options.FlowKey = "k"
	id := b.submit(task)[0].ID
	own := spawned("pipe", `2`)
	own.Labels = asyncflow.Labels{User: "u2"}
	require.False(t, b.settle(pipe, b.leaseAll(pipe, 1)[0],
		starting(`1`, spawned("base", `1`), own)).Stale)
	b.followUp()
	before := b.checkSearch("pipe")
	require.Equal(t, 5, before, "user, tag, flow key and entry; and a user")
	require.Equal(t, 3, b.checkSearch("base"))
	for _, l := range b.leaseAll(pipe, 2) {
		if l.ID == id {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
				FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{}, Count: 3}})
		} else {
			b.settle(pipe, l, badEnd)
		}
	}
	b.followUp()
	children := b.checkSearch("pipe")
	require.Greater(t, children, before)
	again, err := b.Rerun(t.Context(), tenant, b.childOf("pipe", `2`).ID)
	require.NoError(t, err)
	b.submit(again)
	require.Equal(t, children+1, b.checkSearch("pipe"))

	items := b.insertions(pipe, `1`, `2`)
	for _, item := range items {
		item.Options.User = "again"
	}
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items[:1]}}))
	for range 2 {
		require.NoError(t, b.InsertAgain(t.Context(), pipe, items))
	}
	require.Equal(t, children+3, b.checkSearch("pipe"))
}

// An erased task isn't found by what it had, but by its flow key, which stays. The field may have
// been left out since.
func TestErasedTasksAreNotFound(t *testing.T) { eachSet(t, erasedTasksAreNotFound) }

func erasedTasksAreNotFound(t *testing.T, b *bundle) {
	b.put(searchable(twoStages()))
	secret := secretTask()
	secret.Options.Metadata["order"] = marker
	secret.Options.FlowKey = "kept"
	id := b.submit(secret)[0].ID
	b.submit(secret2(secret))
	b.failAll()
	require.Equal(t, 10, b.checkSearch("pipe"))
	b.put(twoStages())
	b.erase(id)
	require.Equal(t, 6, b.count(b.at(1, `SELECT count(*) FROM {search}`)))
	require.Equal(t, 1, b.count(b.at(1, fmt.Sprintf(`SELECT count(*) FROM {search}
		WHERE id = %d`, id.Number))))
	b.put(searchable(twoStages()))
	b.exec(b.at(0, `UPDATE {types} SET search_from = '{"flow_key":1}' WHERE name = 'pipe'`))
	b.exec(b.at(0, `UPDATE asyncflow.tenants SET version = version + 1`))
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	page, err := b.TaskPage(t.Context(), tenant,
		store.Filter{Type: "pipe", FlowKey: "kept", Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Tasks, 2)
	require.Equal(t, 2, page.Searched.ByIndex)
}

// secret2 is the same task without its key.
func secret2(task asyncflow.NewTask) asyncflow.NewTask {
	task.Options.Key = ""
	return task
}

// In a compacted roll is what the remaining tasks are found by.
func TestCompactedRollsAreSearched(t *testing.T) { eachSet(t, compactedRollsAreSearched) }

func compactedRollsAreSearched(t *testing.T, b *bundle) {
	b.put(searchable(twoStages()))
	b.submit(labelled("u1", "1", "eu"), labelled("u2", "2"))
	b.failAll()
	needed := b.submit(labelled("u1", "needed"))[0].ID
	waits := waitsForKey("later", needed)
	waits.Options.User = "u1"
	waiting := b.submit(waits)[0].ID
	for range 2 { // both stages
		b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	}
	b.followUp()
	b.rollAndClear()
	require.Equal(t, 8, b.checkSearch("pipe"))
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, 3, b.checkSearch("pipe"))
	b.checkFound("pipe", store.Filter{Labels: store.LabelFilter{User: "u1"}})
	b.checkFound("pipe", store.Filter{Labels: store.LabelFilter{User: "u2"}})
	_, err := b.Cancel(t.Context(), tenant, waiting, "")
	require.NoError(t, err)
}

// A roll that a node of the version before opened is without an index: it is searched as before.
// Nor may that node leave the index half full by a change of the type.
func TestSearchBesideTheVersionBefore(t *testing.T) { eachSet(t, searchBesideTheVersionBefore) }

func searchBesideTheVersionBefore(t *testing.T, b *bundle) {
	b.put(searchable(twoStages()))
	b.submit(labelled("u1", "1"))
	b.roll()
	b.exec(b.at(2, `DROP TABLE {search}`))
	b.exec(b.at(0, `UPDATE {rolls} SET searchable = false WHERE position = 2`))
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	b.exec(b.at(0, `UPDATE asyncflow.tenants SET version = version + 1`))
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	require.Empty(t, b.known().Searchable(2))
	b.submit(labelled("u1", "2"), labelled("u2", "2"))
	b.bySQLLabelled(labelled("u1", "3"), "")
	f := store.Filter{Labels: store.LabelFilter{User: "u1"}}
	b.checkFound("pipe", f)
	b.failAll()
	b.erase(asyncflow.NewTaskID("pipe", 2, 1))

	b.exec(b.at(0, `UPDATE {types} SET spec = (spec::jsonb - 'searchable')::json WHERE name = 'pipe'`))
	b.exec(b.at(0, `UPDATE asyncflow.tenants SET version = version + 1`))
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	require.Empty(t, b.known().SearchFrom())
	b.put(searchable(twoStages()))
	require.Equal(t, 3, b.known().SearchFrom()["user"])
	b.checkFound("pipe", f)
}

// A transaction with a snapshot that is older than the field, but not than a roll, doesn't leave a
// task out of the index.
func TestOldSnapshotsAreSearchable(t *testing.T) { eachSet(t, oldSnapshotsAreSearchable) }

func oldSnapshotsAreSearchable(t *testing.T, b *bundle) {
	b.put(twoStages())
	for i, isolation := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		app := b.app()
		begin(t, app, isolation)
		spec := twoStages()
		spec.Searchable = []string{"user"}
		b.put(twoStages())
		b.put(spec)
		b.roll()
		_, err := b.bySQL(app, `'pipe', '1', labels => '{"user":"u1"}'`)
		if i == 0 {
			require.NoError(t, err)
			_, err = app.Exec(t.Context(), "COMMIT")
		} else {
			require.ErrorContains(t, err, "try it again")
			_, err = app.Exec(t.Context(), "ROLLBACK")
		}
		require.NoError(t, err)
		b.failAll()
		drained, err := b.DrainRoll(t.Context(), b.known().Set())
		require.NoError(t, err)
		require.True(t, drained)
	}
	b.checkSearch("pipe")
	b.checkFound("pipe", store.Filter{Labels: store.LabelFilter{User: "u1"}})
}

// The rows of a deleted type go from the tables that others share, and the index goes with a roll.
func TestSearchRowsGo(t *testing.T) {
	b := setup(t)
	other := searchable(twoStages())
	other.Name = "other"
	b.put(other)
	b.put(searchable(twoStages()))
	task := labelled("u1", "1", "eu", "us")
	b.submit(task)
	task.Type = "other"
	b.submit(task, task)
	b.failAll()
	kind, err := b.Catalog.Type(tenant, "other")
	require.NoError(t, err)
	b.settleAll(kind, b.lease(kind, 10), rejected)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "other", false))
	at := store.Deleting{}
	for more := true; more; more = at.More {
		at, err = b.DeleteRows(t.Context(), tenant, at)
		require.NoError(t, err)
	}
	require.Equal(t, b.checkSearch("pipe"), b.count(b.at(1, `SELECT count(*) FROM {search}`)))
	b.rollAndClear()
	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM pg_tables
		WHERE schemaname = 'tenant_acme' AND tablename LIKE 'search\_%'`))
}
