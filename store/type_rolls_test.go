package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

func (b *bundle) typeRolls() []store.TypeRoll {
	b.t.Helper()
	rolls, older, err := b.TypeRolls(b.t.Context(), tenant, "pipe")
	require.NoError(b.t, err)
	require.Zero(b.t, older)
	return rolls
}

// The rolls of a type show their sizes and times, through all steps of a roll.
func TestTypeRolls(t *testing.T) { eachSet(t, typeRolls) }

func typeRolls(t *testing.T, b *bundle) {
	b.put(twoStages())
	r := b.typeRolls()[0]
	assert.Equal(t, store.TypeRoll{Position: 1, Own: b.own, OpenedAt: r.OpenedAt,
		Retention: asyncflow.DefaultRetention, NextTasks: int64(b.known().RollRows),
		Bytes: r.Bytes}, r)
	assert.Positive(t, r.Bytes, "empty indexes have a page")
	b.submit(newTask(`1`), newTask(`2`))
	full := b.typeRolls()[0]
	assert.Greater(t, full.Bytes, r.Bytes)
	assert.EqualValues(t, 2, full.Tasks)
	assert.Equal(t, r.OpenedAt.Add(asyncflow.DefaultRollAge), full.NextAt)

	b.rollAndClear()
	rolls := b.typeRolls()
	require.Len(t, rolls, 2, "newest first")
	assert.Equal(t, 2, rolls[0].Position)
	assert.EqualValues(t, 2, rolls[1].Tasks, "final tasks count, too")
	assert.False(t, rolls[1].SealedAt.IsZero() || rolls[1].DrainedAt.IsZero())
	assert.Zero(t, rolls[1].NextTasks)
	assert.Zero(t, rolls[1].NextAt)
	b.submit(newTask(`3`))
	b.rollAndClear()
	idle, err := b.IdleRoll(t.Context(), b.known().Set(), 2)
	require.NoError(t, err)
	require.True(t, idle)
	assert.False(t, b.typeRolls()[1].IdleSince.IsZero())
	second := b.typeRolls()[1]
	assert.Zero(t, second.DropsAt, "an older one isn't idle")
	assert.Equal(t, second.IdleSince.Add(asyncflow.DefaultRetention), second.CompactsAt)
	b.idle(true)
	rolls = b.typeRolls()
	first := rolls[2].IdleSince.Add(asyncflow.DefaultRetention)
	assert.Equal(t, first, rolls[2].DropsAt)
	assert.Equal(t, first, rolls[1].DropsAt, "the older one goes first")
	assert.Zero(t, rolls[2].CompactsAt)
	require.True(t, b.drop(b.Clock.Now()))
	rolls = b.typeRolls()
	require.Len(t, rolls, 2)
	assert.Equal(t, rolls[1].IdleSince.Add(asyncflow.DefaultRetention), rolls[1].DropsAt)
}

// The live tasks of a roll were noted, and ended later: the roll goes as a whole, and no sooner
// than its retention after their end.
func TestTypeRollsWhoseTasksHaveEnded(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	later := newTask(`1`)
	later.RunAt = time.Now().Add(time.Hour)
	id := b.submit(later, newTask(`2`))[0].ID
	b.rollAndClear()
	require.True(t, b.mark(1))
	marked := b.typeRolls()[1]
	require.Zero(t, marked.DropsAt)
	require.False(t, marked.CompactsAt.IsZero(), "its tasks are live")
	_, err := b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	b.idle(true)
	r := b.typeRolls()[1]
	require.Equal(t, r.IdleSince.Add(asyncflow.DefaultRetention), r.DropsAt)
	require.Zero(t, r.CompactsAt, "nothing keeps it")
}

// A roll of shared tables is kept for the longest retention of its types. A type that moved shows
// the rolls of both sets, and none of before it came.
func TestTypeRollsOfTwoSets(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.put(named("beside"))
	b.submit(newTask(`1`))
	b.rollAndClear()
	b.idle(true)
	b.put(named("late"))
	late, _, err := b.TypeRolls(t.Context(), tenant, "late")
	require.NoError(t, err)
	require.Len(t, late, 1)
	assert.Equal(t, 2, late[0].Position)
	spec := twoStages()
	spec.Retention = asyncflow.NewDuration(2 * asyncflow.DefaultRetention)
	b.put(spec)
	require.True(t, b.move())
	b.submit(newTask(`2`), newTask(`3`))

	rolls := b.typeRolls()
	require.Len(t, rolls, 3)
	assert.Equal(t, []bool{true, false, false}, []bool{rolls[0].Own, rolls[1].Own, rolls[2].Own})
	assert.EqualValues(t, 2, rolls[0].Tasks)
	assert.EqualValues(t, asyncflow.DefaultRollRows, rolls[0].NextTasks)
	for _, r := range rolls {
		assert.Equal(t, 2*asyncflow.DefaultRetention, r.Retention)
	}
	assert.Equal(t, rolls[2].IdleSince.Add(2*asyncflow.DefaultRetention), rolls[2].DropsAt)
	late, _, err = b.TypeRolls(t.Context(), tenant, "late")
	require.NoError(t, err)
	assert.Equal(t, rolls[1], late[0], "both see the roll that they share")

	for position := range b.known().End + 3 {
		assert.Equal(t, slices.Contains(b.known().Rolls(), position), b.known().Has(position))
	}

	_, _, err = b.TypeRolls(t.Context(), tenant, "none")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// Large tables are estimated from their first pages, or from the last ANALYZE.
func TestTypeRollsEstimate(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.exec(`ALTER TABLE tenant_acme.task_1 SET (autovacuum_enabled = false)`)
	b.exec(b.at(1, `INSERT INTO {task} SELECT {number}, g, now(), now(), NULL, '"a context"'
		FROM generate_series(1, 50000) g`))
	assert.InEpsilon(t, 50_000, b.typeRolls()[0].Tasks, 0.1)
	b.exec(b.at(1, `ANALYZE {task}`))
	b.exec(b.at(1, `INSERT INTO {task} SELECT {number}, g, now(), now(), NULL, '"a context"'
		FROM generate_series(50001, 60000) g`))
	assert.InEpsilon(t, 60_000, b.typeRolls()[0].Tasks, 0.05)
}

func TestTypeRollsAreBounded(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.own = true
	b.put(twoStages())
	const more = 3
	for range store.MaxTypeRolls + more - 1 {
		b.submit(newTask(`1`))
		b.roll()
		b.failAll()
		drained, err := b.DrainRoll(t.Context(), b.known().Set())
		require.NoError(t, err)
		require.True(t, drained)
	}
	rolls, older, err := b.TypeRolls(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Equal(t, more, older)
	require.Len(t, rolls, store.MaxTypeRolls)
	assert.Equal(t, b.known().End, rolls[0].Position)
	assert.Equal(t, more+1, rolls[store.MaxTypeRolls-1].Position)
	assert.EqualValues(t, 1, rolls[store.MaxTypeRolls-1].Tasks)
}
