package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// expire makes the leases of some tasks run out.
func (b *bundle) expire(items ...*store.Insertion) {
	b.t.Helper()
	for _, item := range items {
		b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id = $1`,
			item.ID.Number)
	}
}

// lastOutcome returns how the last attempt of a task ended, and in which stage.
func (b *bundle) lastOutcome(id asyncflow.TaskID) (kind asyncflow.OutcomeKind, stage string) {
	b.t.Helper()
	attempts, err := b.Attempts(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	if len(attempts) == 0 {
		return "", ""
	}
	last := attempts[len(attempts)-1]
	return last.Outcome, last.Stage
}

// If a node dies after tasks began with their insert, their leases run out. The lost attempt
// counts, and each task is tried again. The others stand in line meanwhile.
func TestCrashAfterTasksBegan(t *testing.T) { eachSet(t, crashAfterTasksBegan) }

func crashAfterTasksBegan(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := b.insertions(pipe, `1`, `2`, `3`, `4`, `5`)
	leased(items[:3]...)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
	b.checkTokens("pipe")
	for _, item := range items[:3] {
		l, stands, err := b.LeaseOf(t.Context(), tenant, item.ID, 1)
		require.NoError(t, err)
		require.True(t, stands)
		assert.WithinDuration(t, l.LeasedAt.Add(time.Second+store.LeaseMargin), l.Until,
			time.Microsecond)
		assert.WithinDuration(t, item.Lease.Until, l.Until, time.Microsecond)
	}
	waiting := b.lease(pipe, 5)
	require.Len(t, waiting, 2)
	for i, l := range waiting {
		assert.Equal(t, []any{items[3+i].ID, 1}, []any{l.ID, l.Seq})
	}
	b.expire(items[:3]...)
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	for i, item := range items {
		kind, _ := b.lastOutcome(item.ID)
		assert.Equal(t, i < 3, kind == asyncflow.OutcomeLost, "task %d: %s", i, kind)
	}
	b.checkTokens("pipe")
}

// A lease begins with the commit, even if the clock was set back meanwhile.
func TestInsertWhileTheClockGoesBack(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	items := b.insertions(pipe, `1`, `2`, `3`)
	leased(items[:2]...)
	b.ShiftClock(-time.Minute)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
	assert.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.lease`))
	b.checkTokens("pipe")
}

// After a commit with a lost answer, InsertAgain inserts only the missing tasks. A task that began
// keeps its lease.
func TestInsertAgain(t *testing.T) { eachSet(t, insertAgain) }

func insertAgain(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := b.insertions(pipe, `"begun"`, `"in line"`, `"begins"`, `"follows"`)
	leased(items[0], items[2])
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items[:2]}}))
	began := b.endsOf(pipe)
	for range 2 { // a further try finds all of it
		require.NoError(t, b.InsertAgain(t.Context(), pipe, items))
		ends := b.endsOf(pipe)
		require.Len(t, ends, 2)
		assert.Equal(t, began[`"begun"`], ends[`"begun"`])
		assert.WithinDuration(t, items[0].Lease.Until, ends[`"begun"`], time.Microsecond)
		assert.WithinDuration(t, items[2].Lease.Until, ends[`"begins"`], time.Microsecond)
		assert.Equal(t, tallied{Submitted: 4}, first(b.tallies(tenant, "pipe")))
		b.checkTokens("pipe")
	}
	assert.Equal(t, []string{`"in line"`, `"follows"`}, contexts(b.lease(pipe, 10)))
	require.NoError(t, b.InsertAgain(t.Context(), pipe, items), "whatever has become of them")
	require.NoError(t, b.InsertAgain(t.Context(), pipe, nil))
	b.checkTokens("pipe")
}

// If an id belongs to another task, the whole batch is refused, so that no task is lost.
func TestInsertAgainWithAnotherTasksID(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	other := b.insertions(pipe, `"other"`)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: other}}))
	items := b.insertions(pipe, `1`, `2`)
	items[1].ID, items[1].Created = other[0].ID, items[1].Created.Add(time.Millisecond)
	slices.Reverse(items)
	before := b.dump()
	err := b.InsertAgain(t.Context(), pipe, items)
	assert.Equal(t, asyncflow.CodeInternal, asyncflow.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, "1 ids of pipe are those of other tasks")
	assert.Equal(t, before, b.dump(), "nothing was changed")
}

// In a sealed roll, it is certain which tasks an earlier try inserted. The others get ids of the
// open roll, with their leases.
func TestRenumberAcrossASealedRoll(t *testing.T) { eachSet(t, renumberAcrossASealedRoll) }

func renumberAcrossASealedRoll(t *testing.T, b *bundle) {
	old := b.put(twoStages())
	items := b.insertions(old, `"kept"`, `"moved"`, `"begins"`)
	leased(items[2])
	require.NoError(t, b.commit([]*store.Writes{{Type: old, New: items[:1]}}))
	ids := []asyncflow.TaskID{items[0].ID, items[1].ID, items[2].ID}
	same, left, err := b.Renumber(t.Context(), old, items)
	require.NoError(t, err)
	assert.Equal(t, items[1:], left)
	assert.Equal(t, ids[1:], []asyncflow.TaskID{items[1].ID, items[2].ID}, "their roll is open")
	assert.Equal(t, old.End, same.End)
	b.roll()
	require.True(t, store.RolledOn(b.commit([]*store.Writes{{Type: old, New: left}})))
	require.True(t, store.RolledOn(b.InsertAgain(t.Context(), old, items)))
	now, left, err := b.Renumber(t.Context(), old, items)
	require.NoError(t, err)
	require.Equal(t, items[1:], left)
	assert.Equal(t, ids[0], items[0].ID)
	for _, item := range left {
		assert.Equal(t, 2, item.ID.Position())
	}
	assert.Equal(t, items[2].ID, items[2].Lease.ID)
	require.NoError(t, b.InsertAgain(t.Context(), now, left))
	_, left, err = b.Renumber(t.Context(), old, items[:1])
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, b.InsertAgain(t.Context(), now, left))
	l, stands, err := b.LeaseOf(t.Context(), tenant, items[2].ID, 1)
	require.NoError(t, err)
	require.True(t, stands)
	assert.Equal(t, "first", l.Stage)
	assert.Equal(t, 3, b.count(b.at(1, `SELECT count(*) FROM {task}`))+
		b.count(b.at(2, `SELECT count(*) FROM {task}`)))
}

// A deleted type takes no tasks, by any kind of insert.
func TestInsertIntoATypeThatIsGone(t *testing.T) { eachSet(t, insertIntoATypeThatIsGone) }

func insertIntoATypeThatIsGone(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := b.insertions(pipe, `1`)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	err := b.InsertAgain(t.Context(), pipe, items)
	if b.own {
		require.True(t, store.RolledOn(err), "%v", err)
	} else {
		assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
	}
	_, _, err = b.Renumber(t.Context(), pipe, items)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
}

// withKeys gives new tasks idempotency keys.
func withKeys(items []*store.Insertion, names ...string) []*store.Insertion {
	for i, item := range items {
		item.Key = &store.Key{Name: names[i], Expires: item.Created.Add(time.Hour)}
		copy(item.Key.Hash[:], item.Context)
	}
	return items
}

// A key belongs to the first task that had it, also if the same transaction is repeated. Keys
// locked by other transactions fail the batch, or are left out of it.
func TestInsertKeyed(t *testing.T) { eachSet(t, insertKeyed) }

func insertKeyed(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := withKeys(b.insertions(pipe, `1`, `1`, `2`, `3`), "a", "a", "a", "b")
	leased(items[3])
	for range 2 {
		held, err := b.InsertKeyed(t.Context(), pipe, items, store.KeysTogether)
		require.NoError(t, err)
		assert.Empty(t, held)
		assert.Equal(t, []asyncflow.TaskID{{}, items[0].ID, items[0].ID, {}},
			[]asyncflow.TaskID{items[0].Key.Holder, items[1].Key.Holder, items[2].Key.Holder,
				items[3].Key.Holder})
		assert.Equal(t, []bool{false, false, true, false},
			[]bool{items[0].Key.Reused, items[1].Key.Reused, items[2].Key.Reused,
				items[3].Key.Reused})
		assert.Equal(t, tallied{Submitted: 2}, first(b.tallies(tenant, "pipe")))
		assert.Equal(t, []string{`3`}, slices.Collect(maps.Keys(b.endsOf(pipe))))
		b.checkTokens("pipe")
	}
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `
		INSERT INTO tenant_acme.idempotency_keys (type, key, id, hash, expires_at)
		VALUES ('pipe', 'held', 1, '\x01', now() + interval '1 h')`)
	require.NoError(t, err)
	more := withKeys(b.insertions(pipe, `4`, `5`), "free", "held")
	_, err = b.InsertKeyed(t.Context(), pipe, more, store.KeysTogether)
	require.True(t, store.IsHeld(err), "%v", err)
	assert.Equal(t, tallied{Submitted: 2}, first(b.tallies(tenant, "pipe")))
	held, err := b.InsertKeyed(t.Context(), pipe, more, store.KeysApart)
	require.NoError(t, err)
	assert.Equal(t, more[1:], held)
	assert.Equal(t, tallied{Submitted: 3}, first(b.tallies(tenant, "pipe")))
	require.NoError(t, tx.Rollback(t.Context()))
	held, err = b.InsertKeyed(t.Context(), pipe, held, store.KeysApart)
	require.NoError(t, err)
	assert.Empty(t, held)
	assert.Equal(t, tallied{Submitted: 4}, first(b.tallies(tenant, "pipe")))
	b.checkTokens("pipe")
}
