package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// labelled returns a task with labels.
func labelled(user, order string, tags ...string) asyncflow.NewTask {
	task := newTask(`1`)
	task.Options.Labels = asyncflow.Labels{User: user, Tags: tags}
	if order != "" {
		task.Options.Metadata = map[string]string{"order": order, "user": "no user"}
	}
	return task
}

func TestFiltersByLabels(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	quoted := `a "quoted" user\`
	ids := map[string]asyncflow.TaskID{}
	for name, task := range map[string]asyncflow.NewTask{
		"one":    labelled("u1", "4711", "eu", "nightly"),
		"two":    labelled("u1", "4712", "eu"),
		"three":  labelled(quoted, "", "nightly"),
		"plain":  newTask(`{"user":"u1","tags":["eu"],"metadata":{"order":"4711"}}`),
		"nearly": labelled("", "u1", "user:u1"),
	} {
		ids[name] = b.submit(task)[0].ID
	}
	for _, l := range b.lease(pipe, 10) {
		b.settle(pipe, l, rejected(0, l))
	}
	for name, c := range map[string]struct {
		labels store.LabelFilter
		want   []string
	}{
		"user":     {store.LabelFilter{User: "u1"}, []string{"one", "two"}},
		"quotes":   {store.LabelFilter{User: quoted}, []string{"three"}},
		"all tags": {store.LabelFilter{Tags: []string{"eu", "nightly"}}, []string{"one"}},
		"one tag":  {store.LabelFilter{Tags: []string{"nightly"}}, []string{"one", "three"}},
		"any tag": {store.LabelFilter{AnyTags: []string{"nightly", "user:u1"}},
			[]string{"one", "three", "nearly"}},
		"metadata":  {store.LabelFilter{Name: "order", Value: "4711"}, []string{"one"}},
		"no value":  {store.LabelFilter{Name: "order", Value: ""}, nil},
		"no name":   {store.LabelFilter{Name: "shop", Value: "4711"}, nil},
		"all three": {store.LabelFilter{User: "u1", Tags: []string{"eu"}, Name: "order", Value: "4712"}, []string{"two"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, taskType := range []string{"pipe", ""} {
				f := store.Filter{Type: taskType, Labels: c.labels, Limit: 100}
				list, err := b.Tasks(t.Context(), tenant, f)
				require.NoError(t, err)
				assert.ElementsMatch(t, c.want, namesOf(ids, list))
			}
			_, due := b.start(store.CountAll, store.NewOperation{
				Filter: store.Filter{Labels: c.labels}})
			assert.EqualValues(t, len(c.want), b.finish(due).Done)
		})
	}
}

// Labels stay through stages, changes and redrives, and every lease brings them. A task without any
// is without options, as before.
func TestLabelsStay(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	assert.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.task_1 WHERE options IS NULL`))
	b.settle(pipe, b.leaseOne(pipe), rejected(0, asyncflow.Lease{}))
	task := labelled("u1", "4711", "eu")
	task.Options.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	id := b.submit(task)[0].ID
	_, err := b.Change(t.Context(), tenant, id,
		asyncflow.Patch{Priority: asyncflow.Priority{60}})
	require.NoError(t, err)
	l := b.leaseOne(pipe)
	assert.Equal(t, task.Options.Labels, l.Options.Labels)
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.settle(pipe, b.leaseOne(pipe), rejected(0, asyncflow.Lease{}))
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	l = b.leaseOne(pipe)
	assert.Equal(t, task.Options.Labels, l.Options.Labels)
	assert.Equal(t, task.Options.Labels, b.task(id).Options.Labels)
}

// Children get the labels of their parent.
func TestChildrenHaveTheLabelsOfTheirParent(t *testing.T) {
	b := setupFanOut(t)
	task := labelled("u1", "4711", "eu")
	task.Context = []byte(`{"items":[1,2]}`)
	id := b.submit(task)[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind:      asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{}, Count: 2}})
	b.followUp()
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Parent: id, Type: "pipe", Limit: 10,
		Labels: store.LabelFilter{User: "u1"}})
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, task.Options.Labels, list[0].Options.Labels)
}

// A task that an attempt starts gets the labels of that task, unless the worker gives it some.
func TestStartedTasksHaveLabels(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	task := labelled("u1", "4711", "eu")
	task.Context = []byte(`0`)
	id := b.submit(task)[0].ID
	own := spawned("pipe", `2`)
	own.Labels = asyncflow.Labels{User: "u2"}
	o := starting(`1`, spawned("base", `1`), own)
	require.False(t, b.settle(pipe, b.leaseAll(pipe, 1)[0], o).Stale)
	b.followUp()
	for taskType, want := range map[string]asyncflow.Labels{"base": task.Options.Labels,
		"pipe": own.Labels} {
		list, err := b.Tasks(t.Context(), tenant,
			store.Filter{Type: taskType, Parent: id, Limit: 9})
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, want, list[0].Options.Labels)
	}
}
