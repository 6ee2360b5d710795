package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// shared returns the set that the tenant's types share.
func (b *bundle) shared() *store.TableSet { return b.Catalog.SetsOf(tenant)[""] }

// move gives the type a set of its own or, if there is one, makes it join the shared set. It
// reports whether it could.
func (b *bundle) move() (moved bool) {
	b.t.Helper()
	var err error
	if t := b.known(); t.Set().Shared() {
		moved, err = b.OwnSet(b.t.Context(), t)
	} else {
		moved, err = b.JoinSharedSet(b.t.Context(), t)
	}
	require.NoError(b.t, err)
	return moved
}

// mayJoin makes the shared set go on to a position that a type with a set of its own can join at.
func (b *bundle) mayJoin() {
	b.t.Helper()
	b.put(named("beside")) // it makes the shared set, if there is none
	for b.shared().End <= b.known().Set().End {
		opened, err := b.OpenRoll(b.t.Context(), b.shared())
		require.NoError(b.t, err)
		for !opened && b.shared().Begin < b.shared().End {
			b.stepRolls(b.shared())
		}
	}
}

// A type moves between the shared set and one of its own while its tasks are in all tables. They
// keep their ids and places, new ones go to the new tables, and both are leased in one order. A
// node that doesn't know of the move can do everything all the same.
func TestTypeMovesBetweenSets(t *testing.T) { eachSet(t, typeMovesBetweenSets) }

func typeMovesBetweenSets(t *testing.T, b *bundle) {
	b.put(twoStages())
	if b.own {
		b.own = false
		b.put(twoStages())
		b.mayJoin()
	}
	submit := func(context string, change func(*asyncflow.NewTask)) asyncflow.TaskID {
		t.Helper()
		task := newTask(context)
		change(&task)
		return b.submit(task)[0].ID
	}
	plain := func(*asyncflow.NewTask) {}
	later := func(task *asyncflow.NewTask) { task.Delay = asyncflow.NewDuration(time.Hour) }
	failed := submit(`"failed"`, plain)
	require.Equal(t, []asyncflow.TaskID{failed}, b.failAll())
	running := submit(`"running"`, plain)
	lease := b.leaseOne(b.known())
	waiting := submit(`"waiting"`, later)
	first := submit(`"first"`, plain)
	keyed := withKey("k", `"keyed"`)
	second := b.submit(keyed)[0].ID
	old := map[asyncflow.TaskID]asyncflow.Status{failed: asyncflow.StatusFailed,
		running: asyncflow.StatusRunning, waiting: asyncflow.StatusWaiting,
		first: asyncflow.StatusPending, second: asyncflow.StatusPending}

	late, before := behind(t, b), b.known()
	require.True(t, b.move())
	require.False(t, b.move(), "its tasks are in two sets already")
	after := b.known()
	require.NotEqual(t, before.Set().Name, after.Set().Name)
	require.Greater(t, after.End, before.End, "no id comes again")
	for id, status := range old {
		require.Equal(t, status, b.task(id).Status)
	}
	require.True(t, b.submit(keyed)[0].Existing)
	third := submit(`"third"`, plain)
	require.Equal(t, after.End, third.Position())
	require.NotContains(t, old, third)
	fourth := submit(`"urgent"`, func(task *asyncflow.NewTask) {
		task.Options.Priority = asyncflow.Priority{3600}
	})
	bySQL, err := b.bySQL(b.app(), `'pipe', '"by SQL"'`)
	require.NoError(t, err)
	require.Equal(t, after.End, bySQL.Position())
	lates := late.submit(newTask(`"by a node that is behind"`))[0].ID
	_, err = late.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	_, err = late.Change(t.Context(), tenant, waiting, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(t, err)
	require.False(t, late.settle(before, lease,
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`"output"`)}).Stale)
	b.checkTokens("pipe")
	var order []asyncflow.TaskID
	for range 9 {
		l := b.leaseOne(b.known())
		order = append(order, l.ID)
		want := map[asyncflow.TaskID]string{running: `"output"`, failed: `"failed"`,
			waiting: `"waiting"`, first: `"first"`, third: `"third"`}[l.ID]
		if want != "" {
			require.Equal(t, want, string(l.Context))
		}
	}
	require.Equal(t,
		[]asyncflow.TaskID{fourth, first, second, third, bySQL, lates, failed, waiting, running},
		order)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 20})
	require.NoError(t, err)
	require.Len(t, list, 9)
	require.True(t, slices.IsSortedFunc(list, func(a, b store.Task) int {
		return int(b.ID.Number>>40) - int(a.ID.Number>>40)
	}), "newest roll first")
	b.checkTallies("pipe")

	// The set that it left empties, and goes with the type's tasks.
	rejectAll := func() {
		b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
		_, err := b.Rescue(t.Context(), b.known())
		require.NoError(t, err)
		for len(b.failAll()) > 0 {
		}
	}
	rejectAll()
	left := func() *store.TableSet { return b.Catalog.SetsOf(tenant)[before.Set().Name] }
	if before.Set().Shared() {
		opened, err := b.OpenRoll(t.Context(), left())
		require.NoError(t, err)
		require.True(t, opened)
	}
	for range 4 {
		b.stepRolls(left())
	}
	require.Equal(t, after.End, b.known().Begin, "its ready tables there are gone")
	require.Equal(t, asyncflow.StatusFailed, b.task(first).Status, "its tasks are not")
	for b.known().Has(before.End) {
		dropped, err := b.DropRoll(t.Context(), left(), b.Clock.Now().Add(time.Hour))
		require.NoError(t, err)
		require.True(t, dropped)
	}
	_, err = b.Task(t.Context(), tenant, first)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	require.Equal(t, asyncflow.StatusFailed, b.task(third).Status)
	if !before.Set().Shared() {
		require.Nil(t, left(), "a set without a type goes with its last roll")
		require.Zero(t, b.count(`SELECT count(*) FROM pg_class WHERE relname ~ '_pipe_'`))
	} else {
		b.mayJoin()
	}
	require.True(t, b.move(), "it may move again")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
}

// A transaction that began before a move submits to the present set of the type or, if its snapshot
// can't show that, is refused, to be tried again. It meets no seal.
func TestSQLSubmitAcrossAMove(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for _, isolation := range []string{"READ COMMITTED", "REPEATABLE READ"} {
		for steps, name := range []string{"open", "sealed", "drained", "cleared"} {
			t.Run(isolation+" "+name, func(t *testing.T) {
				eachSet(t, func(t *testing.T, b *bundle) { b.submitAcrossAMove(isolation, steps) })
			})
		}
	}
}

// submitAcrossAMove submits after the set that the type left was taken some steps further.
func (b *bundle) submitAcrossAMove(isolation string, steps int) {
	b.put(twoStages())
	if b.own {
		b.own = false
		b.put(twoStages())
		b.mayJoin()
	}
	app := b.app()
	begin(b.t, app, isolation)
	before := b.known().Set().Name
	require.True(b.t, b.move())
	if before == "" {
		_, err := b.OpenRoll(b.t.Context(), b.shared())
		require.NoError(b.t, err)
	}
	for range steps {
		b.stepRolls(b.Catalog.SetsOf(tenant)[before])
	}
	id, err := b.bySQL(app, `'pipe', '1'`)
	if isolation != "READ COMMITTED" { // its snapshot is from before the move
		require.Equal(b.t, pgerrcode.SerializationFailure, sqlState(err), "%v", err)
		require.ErrorContains(b.t, err, "try it again")
		return
	}
	require.NoError(b.t, err)
	require.Equal(b.t, b.known().End, id.Position())
	_, err = app.Exec(b.t.Context(), "COMMIT")
	require.NoError(b.t, err)
	require.Equal(b.t, []asyncflow.TaskID{id}, b.failAll())
}

// roll takes the rolls of a set one step further, or moves the type. Rolls with only final tasks
// are dropped at times, with their tasks.
func (m *machine) roll(t *rapid.T) {
	ctx := m.b.t.Context()
	sets := m.b.Catalog.SetsOf(tenant)
	var names []string
	for name := range sets {
		names = append(names, name)
	}
	slices.Sort(names)
	set := sets[rapid.SampledFrom(names).Draw(t, "set")]
	var err error
	switch rapid.SampledFrom([]string{"step", "step", "step", "open", "move", "drop"}).Draw(t,
		"how") {
	case "step":
		m.b.stepRolls(set)
	case "open":
		_, err = m.b.OpenRoll(ctx, set)
	case "move":
		m.b.move()
	case "drop":
		_, err = m.b.DropRoll(ctx, set, m.b.Clock.Now().Add(time.Hour))
	}
	require.NoError(t, err)
	m.pipe = m.b.known()
	m.order = slices.DeleteFunc(m.order, func(id asyncflow.TaskID) bool {
		if m.pipe.Has(id.Position()) {
			return false
		}
		require.True(t, m.tasks[id].status.Final(), "%s was dropped", id)
		delete(m.tasks, id)
		return true
	})
}

// The model holds while rolls open and go, and the type moves from set to set.
func TestModelAcrossMoves(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(named("beside"))
	b.holdAgainst(t, 10, func(m *machine) map[string]func(*rapid.T) {
		steps := m.steps()
		for i := range 4 {
			steps[fmt.Sprint("roll ", i)] = m.roll
		}
		return steps
	})
	if longform.Asked() { // a few sequences may do without
		require.Greater(t, b.known().End, 3, "it has moved")
	}
}

// While a type moves from set to set, transactions of all kinds and two nodes submit and lease:
// committed tasks are leased once, and no others.
func TestSQLSubmitsAndMovesAtOnce(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(twoStages())
	b.put(named("beside"))
	far := open(t, b.url, "node-2")
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	committed, leased := &ledger{ids: map[asyncflow.TaskID]int{}},
		&ledger{ids: map[asyncflow.TaskID]int{}}
	var submitting, rest sync.WaitGroup
	var moves, refusals atomic.Int32
	enough := int32(longform.Size(2, 4))
	for i := range 4 {
		app := b.app()
		submitting.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			for moves.Load() < enough && ctx.Err() == nil {
				ids, refused := b.taskOrRefusal(app, r)
				committed.add(ids...)
				refusals.Add(refused)
			}
		})
	}
	for _, node := range []*bundle{b, far} {
		submitting.Go(func() {
			for moves.Load() < enough && ctx.Err() == nil {
				for _, r := range node.submit(newTask(`1`),
					withKey(fmt.Sprint(rand.Uint64()), `2`)) {
					committed.add(r.ID)
				}
			}
		})
	}
	done := make(chan struct{})
	for _, node := range []*bundle{b, far} {
		rest.Go(func() {
			for n := 0; n < 3 && ctx.Err() == nil; { // until it finds nothing any more
				ids := node.failAll()
				leased.add(ids...)
				select {
				case <-done:
					if len(ids) == 0 {
						n++
						assert.NoError(t, node.Catalog.Refresh(ctx))
					}
				default:
				}
			}
		})
	}
	rest.Go(func() {
		for moves.Load() < enough && ctx.Err() == nil {
			pipe := b.known()
			moved, err := false, error(nil)
			if pipe.Set().Shared() {
				moved, err = b.OwnSet(ctx, pipe)
			} else {
				moved, err = b.JoinSharedSet(ctx, pipe)
			}
			assert.NoError(t, err)
			if moved {
				moves.Add(1)
			}
			for _, set := range b.Catalog.SetsOf(tenant) {
				b.stepRolls(set)
				if set.Shared() && set.Begin == set.End && pipe.Set() != set {
					_, err = b.OpenRoll(ctx, set)
					assert.NoError(t, err)
				}
				_, err = b.DropRoll(ctx, set, b.Clock.Now().Add(time.Hour))
				assert.NoError(t, err)
			}
		}
	})
	waitAll(t, &submitting)
	close(done)
	waitAll(t, &rest)
	require.NoError(t, ctx.Err())
	require.Greater(t, len(committed.ids), 100)
	for id := range committed.ids {
		if leased.ids[id] != 1 {
			t.Errorf("%s was leased %d times", id, leased.ids[id])
		}
	}
	require.Len(t, leased.ids, len(committed.ids))
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, len(leased.ids), stats[0].Failed)
	assert.Less(t, int(refusals.Load()), len(committed.ids)/2)
}

// taskOrRefusal submits a task in a transaction with a snapshot that may be older than a move. Then
// it may be refused, to be tried again.
func (b *bundle) taskOrRefusal(
	app *pgx.Conn, r *rand.Rand,
) (ids []asyncflow.TaskID, refused int32) {
	ctx := context.WithoutCancel(b.t.Context())
	isolation := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead}[r.IntN(2)]
	tx, err := app.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	if !assert.NoError(b.t, err) {
		return nil, 0
	}
	for range 1 + r.IntN(3) {
		id, err := b.bySQL(tx, `'pipe', '1'`)
		if isolation == pgx.RepeatableRead && sqlState(err) == pgerrcode.SerializationFailure {
			assert.NoError(b.t, tx.Rollback(ctx))
			return nil, 1
		}
		if !assert.NoError(b.t, err, isolation) {
			return nil, 0
		}
		ids = append(ids, id)
	}
	assert.NoError(b.t, tx.Commit(ctx))
	return ids, 0
}
