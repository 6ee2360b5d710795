package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// After a move there are tasks of a type in two table sets, in rolls of the same numbers. The end
// of tasks in one set leaves what belongs to live tasks in the other one: their edges and keys.

// dependents submits a task with a key, due in an hour, and one that waits for it.
func (b *bundle) dependents() (waiting asyncflow.TaskID, keyed asyncflow.NewTask) {
	b.t.Helper()
	keyed = newTask(`"keyed"`)
	keyed.Options.Key = "k"
	keyed.Delay = asyncflow.NewDuration(time.Hour)
	dependent := newTask(`"dependent"`)
	dependent.DependsOn = []asyncflow.Dependency{{Task: b.submit(keyed)[0].ID}}
	return b.submit(dependent)[0].ID, keyed
}

// openShared opens the next shared roll and takes the steps of the closed ones.
func (b *bundle) openShared() {
	b.t.Helper()
	opened, err := b.OpenRoll(b.t.Context(), b.shared())
	require.NoError(b.t, err)
	require.True(b.t, opened)
	for range 6 {
		b.stepRolls(b.shared())
	}
}

func TestCompactLeavesOtherSets(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.put(named("beside"))
	later := asyncflow.NewTask{Type: "beside", Context: []byte(`1`),
		Delay: asyncflow.NewDuration(time.Hour)}
	b.submit(later) // it keeps the first roll of the shared set
	b.put(withOwnSet(twoStages()))
	require.True(t, b.move())
	b.openShared()
	b.submit(later)
	waiting, keyed := b.dependents()
	require.Equal(t, 2, waiting.Position())
	b.exec(b.shared().Tables.SQL(2, `INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT number, (2::bigint << 40) + 500000, now(), now(), '1' FROM {types} WHERE name = 'beside'`))
	b.openShared()
	marked, err := b.MarkRemaining(t.Context(), b.shared(), 2)
	require.NoError(t, err)
	require.True(t, marked)
	compacted, err := b.CompactRoll(t.Context(), b.shared(), 2, b.Clock.Now())
	require.NoError(t, err)
	require.True(t, compacted)
	require.Equal(t, 1, b.count(b.shared().Tables.SQL(2, `SELECT count(*) FROM {task}`)))
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {edges}`)))
	require.True(t, b.submit(keyed)[0].Existing)
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
}

func TestDropLeavesOtherSets(t *testing.T) {
	b := setup(t)
	b.own = false
	b.put(named("beside"))
	b.put(withOwnSet(twoStages()))
	waiting, _ := b.dependents()
	b.put(twoStages())
	b.mayJoin()
	require.True(t, b.move())
	for b.shared().First <= waiting.Position() {
		if b.shared().Begin == b.shared().End {
			b.openShared()
		}
		b.stepRolls(b.shared())
		_, err := b.DropRoll(t.Context(), b.shared(), b.Clock.Now())
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {edges}`)))
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
}
