package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// known returns the type as this node knows it.
func (b *bundle) known() *store.Type {
	b.t.Helper()
	t, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(b.t, err)
	return t
}

// roll opens the next roll and seals the one before.
func (b *bundle) roll() *store.Type {
	b.t.Helper()
	opened, err := b.OpenRoll(b.t.Context(), b.known().Set())
	require.NoError(b.t, err)
	require.True(b.t, opened)
	t := b.known()
	sealed, err := b.SealRoll(b.t.Context(), t.Set(), t.End-1)
	require.NoError(b.t, err)
	require.True(b.t, sealed)
	return t
}

// behind opens a store that learns of nothing that happens after the call.
func behind(t *testing.T, b *bundle) *bundle {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "behind", Pool: 4,
		HotPool: 4, NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	return &bundle{Store: s, Committer: c, t: t, url: b.url, db: b.db}
}

func (b *bundle) positions() []int {
	t := b.known()
	return []int{t.First, t.Begin, t.End}
}

// A roll opens, is sealed, drained, cleared and dropped, while tasks run as usual.
func TestRollsLife(t *testing.T) { eachSet(t, rollsLife) }

func rollsLife(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	first := b.submit(newTask(`1`))[0].ID
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	straggler := b.submit(later)[0].ID
	stuck := b.lease(pipe, 1)[0]
	b.submit(newTask(`2`))

	opened, err := b.OpenRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, opened)
	opened, err = b.OpenRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.False(t, opened, "another node has opened it")
	opened, err = b.OpenRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.False(t, opened, "two are live at most")
	require.Equal(t, []int{1, 1, 2}, b.positions())
	third := b.submit(newTask(`3`))[0].ID
	require.Equal(t, 2, third.Position())

	sealed, err := b.SealRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, sealed)
	drained, err := b.DrainRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.False(t, drained, "a task is left")
	pipe = b.known()
	var order []string
	for range 2 { // from both, in one common order
		l := b.lease(pipe, 1)[0]
		order = append(order, string(l.Context))
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	}
	require.Equal(t, []string{"2", "3"}, order)
	drained, err = b.DrainRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, drained, "neither leased nor waiting tasks delay it")
	require.Equal(t, []int{1, 2, 2}, b.positions())
	for range 2 { // a repeat is no error
		cleared, err := b.ClearRoll(t.Context(), b.known().Set(), 1)
		require.NoError(t, err)
		require.True(t, cleared)
	}

	// Live tasks of the old roll go on in the new one.
	pipe = b.known()
	b.settle(pipe, stuck,
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"out"`)})
	_, err = b.Change(t.Context(), tenant, straggler, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(t, err)
	contexts := map[asyncflow.TaskID]string{first: `"out"`, straggler: `"later"`}
	for _, l := range b.lease(pipe, 5) {
		require.Equal(t, contexts[l.ID], string(l.Context))
		delete(contexts, l.ID)
		idle, err := b.IdleRoll(t.Context(), pipe.Set(), 1)
		require.NoError(t, err)
		require.False(t, idle, "a live task is its own")
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	require.Empty(t, contexts)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, third, list[0].ID)

	dropped, err := b.DropRoll(t.Context(), pipe.Set(), b.Clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.False(t, dropped, "it isn't known to be idle")
	idle, err := b.IdleRoll(t.Context(), pipe.Set(), 1)
	require.NoError(t, err)
	require.True(t, idle)
	dropped, err = b.DropRoll(t.Context(), b.known().Set(), b.Clock.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.False(t, dropped, "it had an event lately")
	dropped, err = b.DropRoll(t.Context(), b.known().Set(), b.Clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.True(t, dropped)
	require.Equal(t, []int{2, 2, 2}, b.positions())
	_, err = b.Task(t.Context(), tenant, first)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	_, err = b.Redrive(t.Context(), tenant, first, store.Redrive{})
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	list, err = b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 1)
	dropped, err = b.DropRoll(t.Context(), b.known().Set(), b.Clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.False(t, dropped, "the open roll stays")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
}

// A node that doesn't know of a roll yet can do everything all the same.
func TestWritersFollowARoll(t *testing.T) { eachSet(t, writersFollowARoll) }

func writersFollowARoll(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Stages[1].Retry.Interval = asyncflow.Seconds(-600)
	pipe := b.put(spec)
	failed := b.submit(newTask(`"failed"`))[0].ID
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	lost := b.submit(newTask(`"lost"`))[0].ID
	lostLease := b.lease(pipe, 1)[0]
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(t, err)
	settled := b.submit(newTask(`"settled"`))[0].ID
	settledLease := b.lease(pipe, 1)[0]
	changed := b.submit(newTask(`"changed"`))[0].ID
	delayed := newTask(`"promoted"`)
	delayed.Delay = asyncflow.NewDuration(time.Hour)
	promoted := b.submit(delayed)[0].ID

	late := behind(t, b)
	old := late.known()
	require.Equal(t, 2, b.roll().End)
	at := func(id asyncflow.TaskID, position int, stage string) {
		t.Helper()
		var found int
		err := b.db.QueryRow(t.Context(),
			b.at(2, `SELECT count(*) FROM {ready} WHERE type = {number} AND id = $1 AND stage = $2`),
			id.Number, stage).Scan(&found)
		require.NoError(t, err)
		require.Equal(t, 1, found)
		require.Equal(t, position, id.Position())
	}
	results := late.submit(newTask(`"plain"`), newTask(`"plain too"`))
	at(results[0].ID, 2, "first")
	at(results[1].ID, 2, "first")

	keyed := newTask(`"keyed"`)
	keyed.Options.Key = "k"
	id := late.submit(keyed)[0].ID
	at(id, 2, "first")
	require.Equal(t, id, late.submit(keyed)[0].ID)

	n, err := late.Rescue(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	at(lost, 1, "first")
	require.False(t,
		late.settle(old, settledLease, asyncflow.Outcome{Kind: asyncflow.OutcomeDone}).Stale)
	at(settled, 1, "second")
	_, taken, err := late.SettleLate(t.Context(), old, lost, lostLease.Seq,
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	require.NoError(t, err)
	require.True(t, taken)
	at(lost, 1, "second")
	_, err = late.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	at(failed, 1, "first")
	_, err = late.Change(t.Context(), tenant, changed,
		asyncflow.Patch{RunAt: b.Clock.Now(), Priority: asyncflow.Priority{5}})
	require.NoError(t, err)
	at(changed, 1, "first")
	_, err = b.db.Exec(t.Context(),
		`UPDATE tenant_acme.wait SET until = now(), order_time = now()`)
	require.NoError(t, err)
	n, err = late.Promote(t.Context(), old, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	at(promoted, 1, "first")
}

// A release of a flow key's tasks sees those of a roll that its node doesn't know of yet, also
// while the previous roll can still be written.
func TestReleaseKeyFollowsARoll(t *testing.T) { eachSet(t, releaseKeyFollowsARoll) }

func releaseKeyFollowsARoll(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	begun := b.submit(keyed("a", `1`))[0].ID
	held := b.submit(keyed("a", `2`))[0].ID
	l := b.admitAll()[0]
	require.Equal(t, begun, l.ID)
	require.Equal(t, asyncflow.WaitFlow, b.task(held).WaitsFor)
	late := behind(t, b)
	opened, err := b.OpenRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.True(t, opened)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	more, err := late.ReleaseKey(t.Context(), tenant, "pipe", "a", 1)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, asyncflow.WaitFlow, b.task(held).WaitsFor, "the first one has begun")
	require.Equal(t, begun, b.admitAll()[0].ID)
}

// No read fails as its node doesn't know that a ready table is gone.
func TestReadersFollowARoll(t *testing.T) { eachSet(t, readersFollowARoll) }

func readersFollowARoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	nodes := []*bundle{behind(t, b), behind(t, b), behind(t, b), behind(t, b), behind(t, b),
		behind(t, b)}
	old := nodes[0].known()
	pipe := b.roll()
	drained, err := b.DrainRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, drained)
	_, err = b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	id := b.submit(newTask(`1`))[0].ID

	_, err = nodes[0].Task(t.Context(), tenant, id)
	require.NoError(t, err)
	list, err := nodes[1].Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, _, _, err = nodes[2].Watch(t.Context(), tenant, id, store.AttemptPage{Limit: 10})
	require.NoError(t, err)
	all, err := nodes[3].Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.EqualValues(t, 1, all[0].Pending)
	leases, _, err := nodes[4].Lease(t.Context(), old, 1)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	_, err = nodes[5].Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
}

// A submit with an uncertain commit is found in the sealed roll, and not repeated in the next one.
func TestUnknownCommitAndSeal(t *testing.T) { eachSet(t, unknownCommitAndSeal) }

func unknownCommitAndSeal(t *testing.T, b *bundle) {
	b.put(twoStages())
	late := behind(t, b)
	old := late.known()
	items := late.insertions(old, `"kept"`, `"moved"`)
	require.NoError(t, late.commit([]*store.Writes{{Type: old, New: items[:1]}}))
	b.roll()
	require.True(t, store.RolledOn(late.InsertAgain(t.Context(), old, items)))
	now, left, err := late.Renumber(t.Context(), old, items)
	require.NoError(t, err)
	require.Equal(t, items[1:], left)
	require.NoError(t, late.InsertAgain(t.Context(), now, left))
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []int{2, 1}, []int{list[0].ID.Position(), list[1].ID.Position()})
	all, err := b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.EqualValues(t, 2, all[0].Pending)
}

// A seal doesn't wait for readers, nor do they wait for it; a drop gives up soon.
func TestSealAndReaders(t *testing.T) { eachSet(t, sealAndReaders) }

func sealAndReaders(t *testing.T, b *bundle) {
	b.put(twoStages())
	b.submit(newTask(`1`))
	dump, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = dump.Rollback(t.Context()) }()
	_, err = dump.Exec(t.Context(),
		b.at(1, `LOCK TABLE {task}, {ready}, tenant_acme.sealed IN ACCESS SHARE MODE`))
	require.NoError(t, err)
	pipe := b.roll()
	var n int
	require.NoError(t,
		dump.QueryRow(t.Context(), b.at(1, `SELECT count(*) FROM {task}`)).Scan(&n))
	require.Equal(t, 1, n)
	b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	drained, err := b.DrainRoll(t.Context(), pipe.Set())
	require.NoError(t, err)
	require.True(t, drained)
	cleared, err := b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.False(t, cleared, "a reader has it")
	require.NoError(t, dump.Rollback(t.Context()))
	cleared, err = b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, cleared)
}

// A seal waits for writers, but not for long.
func TestSealAndWriters(t *testing.T) { eachSet(t, sealAndWriters) }

func sealAndWriters(t *testing.T, b *bundle) {
	b.put(twoStages())
	_, err := b.OpenRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	writer, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = writer.Exec(t.Context(),
		b.at(1, `INSERT INTO {ready} (type, order_time, id, seq, stage, attempt)
			VALUES ({number}, now(), 5, 1, 'first', 1)`))
	require.NoError(t, err)
	done, err := b.SealRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, writer.Rollback(t.Context()))
	done, err = b.SealRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, done)
	_, err = b.SealRoll(t.Context(), b.known().Set(), 2)
	require.Error(t, err, "it is open")
}

// A transaction with a snapshot from before the roll can't add to it, but can add to the next
// one.
func TestRepeatableReadAcrossARoll(t *testing.T) { eachSet(t, repeatableReadAcrossARoll) }

func repeatableReadAcrossARoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	tx, err := b.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var end int
	read := func() int {
		require.NoError(t,
			tx.QueryRow(t.Context(), `SELECT end_pos FROM tenant_acme.table_sets`).Scan(&end))
		return end
	}
	require.Equal(t, 1, read())
	b.roll()
	require.Equal(t, 1, read(), "it can't know")
	insert := func(position int) error {
		nested, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = nested.Exec(t.Context(),
			b.at(position, `INSERT INTO {task} (type, id, created_at, order_time, context)
				VALUES ({number}, 77, now(), now(), '1')`))
		if err != nil {
			require.NoError(t, nested.Rollback(t.Context()))
			return err
		}
		return nested.Commit(t.Context())
	}
	require.ErrorContains(t, insert(1), "sealed")
	require.NoError(t, insert(2))
	require.NoError(t, tx.Commit(t.Context()))
}

// A key is kept no longer than its task.
func TestKeysAndRetention(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Retention = asyncflow.NewDuration(time.Hour)
	b.put(spec)
	task := newTask(`1`)
	task.Options.Key, task.KeyWindow = "a", asyncflow.KeyFor(2*time.Hour)
	results := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task, newTask(`2`)})
	require.ErrorContains(t, results[0].Err,
		"key_window is 2h0m0s; tasks of pipe are kept for 1h0m0s")
	require.NoError(t, results[1].Err)
	task.KeyWindow = asyncflow.KeyWindow{}
	b.submit(task)
	var left float64
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT extract(epoch FROM expires_at - now()) FROM tenant_acme.idempotency_keys`).Scan(&left))
	require.InDelta(t, 3600, left, 30)
}

func TestTasksIn(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	n, err := b.TasksIn(t.Context(), pipe.Set(), 1)
	require.NoError(t, err)
	require.Zero(t, n)
	b.submit(newTask(`1`), newTask(`2`))
	n, err = b.TasksIn(t.Context(), pipe.Set(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "a small table is counted")
	_, err = b.db.Exec(t.Context(),
		b.at(1, `INSERT INTO {task} SELECT {number}, g, now(), now(), NULL, '"some context of a task"'
			FROM generate_series(1000, 100999) g`))
	require.NoError(t, err)
	n, err = b.TasksIn(t.Context(), pipe.Set(), 1)
	require.NoError(t, err)
	assert.InEpsilon(t, 100_002, n, 0.4, "by a sample of its pages")
}
