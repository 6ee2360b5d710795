package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// searchMachine submits tasks with labels to a node that loses a connection at any statement. It
// knows the labels of each task.
type searchMachine struct {
	nodePair
	labels map[asyncflow.TaskID]asyncflow.Labels
	n      int
}

// modelUsers and modelOrders are the values by which tasks are searched.
var modelUsers, modelOrders = []string{"", "u1", "u2"}, []string{"", "1", "2", "3"}

// faulty does something on a node that may lose a connection. A submit is then tried again.
func (m *searchMachine) faulty(t *rapid.T, do func(b *bundle)) {
	if rapid.IntRange(0, 2).Draw(t, "fault") > 0 {
		do(m.b)
		return
	}
	m.line.arm(rapid.IntRange(1, 12).Draw(t, "at statement"), rapid.Bool().Draw(t, "answer lost"),
		false)
	do(m.mortal)
	m.line.mend()
}

// newTask returns a task with labels. With a key it replaces the one before.
func (m *searchMachine) newTask(t *rapid.T) asyncflow.NewTask {
	m.n++
	task := newTask(fmt.Sprint(m.n))
	if key := rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "key"); key != "" {
		task = replacing(key, fmt.Sprint(m.n), 0, 0)
	}
	if rapid.Bool().Draw(t, "delayed") {
		task.Delay = asyncflow.NewDuration(time.Hour)
	}
	task.Options.User = rapid.SampledFrom(modelUsers).Draw(t, "user")
	if order := rapid.SampledFrom(modelOrders).Draw(t, "order"); order != "" {
		task.Options.Metadata = map[string]string{"order": order}
	}
	return task
}

func (m *searchMachine) submit(t *rapid.T) {
	var tasks []asyncflow.NewTask
	for range rapid.IntRange(1, 4).Draw(t, "at once") {
		tasks = append(tasks, m.newTask(t))
	}
	var results []store.Submitted
	m.faulty(t, func(b *bundle) { results = b.Submit(m.b.t.Context(), tenant, tasks) })
	for i, r := range results {
		require.NoError(t, r.Err)
		if _, known := m.labels[r.ID]; !known { // a task keeps the labels of its first submit
			m.labels[r.ID] = tasks[i].Options.Labels
		}
	}
}

// end leases what is due, and ends it for good, or not.
func (m *searchMachine) end(t *rapid.T) {
	for _, l := range m.b.lease(m.b.known(), 3) {
		kind := rapid.SampledFrom([]asyncflow.OutcomeKind{asyncflow.OutcomeRejected,
			asyncflow.OutcomeFailed, asyncflow.OutcomeDone}).Draw(t, "ends")
		m.b.settle(m.b.known(), l, asyncflow.Outcome{Kind: kind})
	}
}

// any returns a task; none if there is none.
func (m *searchMachine) any(t *rapid.T) asyncflow.TaskID {
	all := make([]asyncflow.TaskID, 0, len(m.labels))
	for id := range m.labels {
		all = append(all, id)
	}
	if len(all) == 0 {
		t.Skip("no task yet")
	}
	slices.SortFunc(all, func(a, b asyncflow.TaskID) int { return int(a.Number - b.Number) })
	return rapid.SampledFrom(all).Draw(t, "task")
}

func (m *searchMachine) edit(t *rapid.T) {
	m.n++
	_, err := m.b.Change(m.b.t.Context(), tenant, m.any(t), edit(fmt.Sprint(m.n)))
	m.unlessConflict(t, err)
}

func (m *searchMachine) cancel(t *rapid.T) {
	_, err := m.b.Cancel(m.b.t.Context(), tenant, m.any(t), "")
	m.unlessConflict(t, err)
}

func (m *searchMachine) redrive(t *rapid.T) {
	_, err := m.b.Redrive(m.b.t.Context(), tenant, m.any(t), store.Redrive{})
	m.unlessConflict(t, err)
}

// erase erases a task, also on a connection that is lost: then all of it happened, or nothing.
func (m *searchMachine) erase(t *rapid.T) {
	id := m.any(t)
	m.faulty(t, func(b *bundle) { _, _ = b.Erase(m.b.t.Context(), tenant, id, "privacy") })
	if m.b.task(id).Options.Erased != nil {
		m.labels[id] = asyncflow.Labels{}
	}
}

// unlessConflict asserts that a step was taken, or is one that the task's state or erasure forbids.
func (m *searchMachine) unlessConflict(t *rapid.T, err error) {
	switch asyncflow.CodeOf(err) {
	case asyncflow.CodeConflict, asyncflow.CodeErased:
	default:
		require.NoError(t, err)
	}
}

// roll opens another roll, and ends all that is due in the one before.
func (m *searchMachine) roll(t *rapid.T) {
	if m.b.known().End >= 8 {
		t.Skip("enough rolls")
	}
	m.b.rollAndClear()
}

// compact leaves the live tasks of a roll.
func (m *searchMachine) compact(t *rapid.T) {
	end := m.b.known().End
	if end == 1 {
		t.Skip("one roll")
	}
	position := rapid.IntRange(1, end-1).Draw(t, "roll")
	if !m.b.mark(position) || !m.b.compact(position, m.b.Clock.Now()) {
		return
	}
	for id := range m.labels {
		_, err := m.b.Task(m.b.t.Context(), tenant, id)
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound && id.Position() == position {
			delete(m.labels, id)
			continue
		}
		require.NoError(t, err)
	}
}

// check searches for users and orders: exactly the tasks with them are found. In the short form it
// searches for one of each at a time: a fault of another one is found soon after.
func (m *searchMachine) check(t *rapid.T) {
	wrong, _ := m.b.wrongSearch("pipe")
	require.Empty(t, wrong)
	users, orders := modelUsers[1:], modelOrders[1:]
	if !longform.Asked() {
		users = []string{rapid.SampledFrom(users).Draw(t, "searched user")}
		orders = []string{rapid.SampledFrom(orders).Draw(t, "searched order")}
	}
	for _, user := range users {
		m.finds(t, store.LabelFilter{User: user},
			func(l asyncflow.Labels) bool { return l.User == user })
	}
	for _, order := range orders {
		m.finds(t, store.LabelFilter{Name: "order", Value: order},
			func(l asyncflow.Labels) bool { return l.Metadata["order"] == order })
	}
}

// finds asserts that a search finds exactly the tasks with a label.
func (m *searchMachine) finds(t *rapid.T, f store.LabelFilter, has func(asyncflow.Labels) bool) {
	found, err := m.b.Tasks(m.b.t.Context(), tenant,
		store.Filter{Type: "pipe", Labels: f, Limit: 10_000})
	require.NoError(t, err)
	seen := map[asyncflow.TaskID]bool{}
	for _, task := range found {
		require.False(t, seen[task.ID], "%s twice", task.ID)
		seen[task.ID] = true
		l, known := m.labels[task.ID]
		require.True(t, known && has(l), "%s by %+v", task.ID, f)
	}
	for id, l := range m.labels {
		require.Equal(t, has(l), seen[id], "%s by %+v", id, f)
	}
}

// Random submits, some to replace a task, ends, edits, redrives, erasures, rolls and compactions,
// on a node that loses connections at any statement: a search by an index finds each task by what
// is in it, and by nothing else.
func TestSearchModel(t *testing.T) {
	longform.Costly(t)
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(searchable(patient()))
		pair := newNodePair(t, b)
		checkSequences(t, 6, func(t *rapid.T) {
			b.clear()
			b.exec(`TRUNCATE tenant_acme.idempotency_keys`)
			m := &searchMachine{nodePair: pair, labels: map[asyncflow.TaskID]asyncflow.Labels{}}
			t.Repeat(map[string]func(*rapid.T){"submit": m.submit, "submit more": m.submit,
				"end": m.end, "edit": m.edit, "cancel": m.cancel, "redrive": m.redrive,
				"erase": m.erase, "roll": m.roll, "compact": m.compact, "": m.check})
		})
	})
}
