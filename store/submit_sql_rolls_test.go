package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// begin begins a transaction by hand, with its snapshot taken.
func begin(t *testing.T, conn *pgx.Conn, isolation string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL "+isolation+"; SELECT FROM pg_class")
	require.NoError(t, err)
}

// rollAndClear opens the next roll, and drops the ready table of the previous one; its tasks fail.
func (b *bundle) rollAndClear() {
	b.t.Helper()
	b.roll()
	b.failAll()
	drained, err := b.DrainRoll(b.t.Context(), b.known().Set())
	require.NoError(b.t, err)
	require.True(b.t, drained)
	cleared, err := b.ClearRoll(b.t.Context(), b.known().Set(), b.known().Begin-1)
	require.NoError(b.t, err)
	require.True(b.t, cleared)
}

// failAll leases all due tasks, makes them fail for good, and returns their ids.
func (b *bundle) failAll() (ids []asyncflow.TaskID) {
	b.t.Helper()
	leases := b.lease(b.known(), 1000)
	b.settleAll(b.known(), leases, rejected)
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	return ids
}

// A transaction that began before a roll submits to the roll that is open now, whatever its
// snapshot shows.
func TestSQLSubmitMeetsNoSeal(t *testing.T) { eachSet(t, sqlSubmitMeetsNoSeal) }

func sqlSubmitMeetsNoSeal(t *testing.T, b *bundle) {
	b.put(twoStages())
	app := b.app()
	for _, isolation := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		b.submit(newTask(`1`))
		begin(t, app, isolation)
		b.rollAndClear()
		b.rollAndClear() // the roll that is open in the snapshot is two back
		var ids []asyncflow.TaskID
		for _, more := range []string{``, `, key => 'a key in ` + isolation + `'`,
			`, run_at => clock_timestamp() + interval '1h'`} {
			id, err := b.bySQL(app, `'pipe', '1'`+more)
			require.NoError(t, err, isolation)
			assert.Equal(t, b.known().End, id.Position(), isolation)
			ids = append(ids, id)
		}
		_, err := app.Exec(t.Context(), "COMMIT")
		require.NoError(t, err, isolation)
		assert.Equal(t, ids[:2], b.failAll(), isolation)
		assert.Equal(t, asyncflow.StatusWaiting, b.task(ids[2]).Status)
	}
}

// A roll is not sealed before the transactions end that wrote to it.
func TestSQLSubmitHoldsItsRoll(t *testing.T) { eachSet(t, sqlSubmitHoldsItsRoll) }

func sqlSubmitHoldsItsRoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	app := b.app()
	begin(t, app, "REPEATABLE READ")
	first, err := b.bySQL(app, `'pipe', '1'`)
	require.NoError(t, err)
	opened, err := b.OpenRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.True(t, opened)
	sealed, err := b.SealRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.False(t, sealed, "it is in use")
	second, err := b.bySQL(app, `'pipe', '2'`)
	require.NoError(t, err)
	assert.Empty(t, b.failAll())
	_, err = app.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	sealed, err = b.SealRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, sealed)
	third, err := b.bySQL(app, `'pipe', '3'`)
	require.NoError(t, err)
	assert.Equal(t, 2, third.Position())
	assert.ElementsMatch(t, []asyncflow.TaskID{first, second, third},
		append(b.failAll(), b.failAll()...))
}

// A deleted type is unknown; nobody can submit to one that only an old snapshot shows.
func TestSQLSubmitToADeletedType(t *testing.T) { eachSet(t, sqlSubmitToADeletedType) }

func sqlSubmitToADeletedType(t *testing.T, b *bundle) {
	b.put(twoStages())
	app := b.app()
	begin(t, app, "REPEATABLE READ")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	_, err := b.bySQL(app, `'pipe', '1'`)
	assert.Equal(t, pgerrcode.SerializationFailure, sqlState(err), "%v", err)
	_, err = app.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	_, err = b.bySQL(app, `'pipe', '1'`)
	assert.Equal(t, pgerrcode.UndefinedObject, sqlState(err), "%v", err)
	assert.ErrorContains(t, err, "there is no task type pipe")
	b.put(twoStages())
	id, err := b.bySQL(app, `'pipe', '1'`)
	require.NoError(t, err)
	assert.Equal(t, []asyncflow.TaskID{id}, b.failAll())
}

// While a type rolls again and again, transactions of all kinds and a node submit to it:
// committed tasks are leased once, and no others.
func TestSQLSubmitsAndRollsAtOnce(t *testing.T) {
	longform.Costly(t)
	eachSet(t, sqlSubmitsAndRollsAtOnce)
}

func sqlSubmitsAndRollsAtOnce(t *testing.T, b *bundle) {
	b.put(twoStages())
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	committed, leased := &ledger{ids: map[asyncflow.TaskID]int{}},
		&ledger{ids: map[asyncflow.TaskID]int{}}
	var submitting, rest sync.WaitGroup
	var rolls atomic.Int32
	for i := range 4 {
		app := b.app()
		submitting.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for rolls.Load() < 5 && ctx.Err() == nil {
				committed.add(b.someTasks(app, r)...)
			}
		})
	}
	submitting.Go(func() {
		for rolls.Load() < 5 && ctx.Err() == nil {
			committed.add(b.submit(newTask(`1`), withKey(fmt.Sprint(rand.Uint64()), `2`))[0].ID)
		}
	})
	done := make(chan struct{})
	rest.Go(func() {
		for n := 0; n < 3; { // until it finds nothing any more
			ids := b.failAll()
			leased.add(ids...)
			select {
			case <-done:
				if len(ids) == 0 {
					n++
				}
			default:
			}
		}
	})
	rest.Go(func() {
		for rolls.Load() < 5 && ctx.Err() == nil {
			if b.rollStep() {
				rolls.Add(1)
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
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, len(leased.ids), stats[0].Failed)
}

// ledger records what a test did itself.
type ledger struct {
	mu  sync.Mutex
	ids map[asyncflow.TaskID]int
}

func (l *ledger) add(ids ...asyncflow.TaskID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.ids[id]++
	}
}

// someTasks submits some tasks in one transaction, and returns those that it committed.
func (b *bundle) someTasks(app *pgx.Conn, r *rand.Rand) (ids []asyncflow.TaskID) {
	ctx := context.WithoutCancel(b.t.Context())
	isolation := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead}[r.IntN(2)]
	tx, err := app.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	if !assert.NoError(b.t, err) {
		return nil
	}
	for range 1 + r.IntN(4) {
		inner, err := tx.Begin(ctx)
		assert.NoError(b.t, err)
		args := `'pipe', '1'`
		if r.IntN(2) == 0 {
			args += fmt.Sprintf(`, key => '%d'`, r.Uint64())
		}
		id, err := b.bySQL(inner, args)
		if isolation == pgx.RepeatableRead && sqlState(err) == pgerrcode.SerializationFailure {
			assert.NoError(b.t, tx.Rollback(ctx)) // its snapshot is older than the tables
			return nil
		}
		assert.NoError(b.t, err)
		if r.IntN(4) == 0 {
			assert.NoError(b.t, inner.Rollback(ctx))
			continue
		}
		assert.NoError(b.t, inner.Commit(ctx))
		ids = append(ids, id)
	}
	if r.IntN(4) == 0 {
		assert.NoError(b.t, tx.Rollback(ctx))
		return nil
	}
	assert.NoError(b.t, tx.Commit(ctx))
	return ids
}

// rollStep takes the rolls of the type one step further, and reports whether it opened one.
func (b *bundle) rollStep() bool {
	set := b.known().Set()
	b.stepRolls(set)
	if set.Begin < set.End {
		return false
	}
	opened, err := b.OpenRoll(b.t.Context(), set)
	assert.NoError(b.t, err)
	return opened
}

// stepRolls takes the rolls of a table set one step further, as far as they can be without a new
// one. It drops none.
func (b *bundle) stepRolls(set *store.TableSet) {
	ctx := b.t.Context()
	rolls, err := b.Rolls(ctx, set.Tenant)
	assert.NoError(b.t, err)
	for _, r := range rolls {
		var err error
		switch live := r.Position < set.End || set.Closed; {
		case r.Set != set.Name || !live:
		case r.Position == set.Begin && r.SealedAt.IsZero():
			_, err = b.SealRoll(ctx, set, r.Position)
		case r.Position == set.Begin:
			_, err = b.DrainRoll(ctx, set)
		case r.Position < set.Begin && !r.ReadyDropped:
			_, err = b.ClearRoll(ctx, set, r.Position)
		case r.ReadyDropped && r.IdleSince.IsZero():
			_, err = b.IdleRoll(ctx, set, r.Position)
		}
		assert.NoError(b.t, err)
	}
}
