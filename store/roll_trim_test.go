package store_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// tooMany is more live tasks than a compacted roll keeps.
const tooMany = 10_001

// fillWaiting adds tasks to the first roll that wait for an hour.
func (b *bundle) fillWaiting(n int) {
	b.t.Helper()
	b.exec(b.at(1, `INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT {number}, (1::bigint << 40) + 1500000 + n, now(), now(), '1'
		FROM generate_series(1, $1) n`), n)
	b.exec(b.at(0, `INSERT INTO {wait} (type, id, seq, stage, attempt, order_time, until, reason)
		SELECT {number}, (1::bigint << 40) + 1500000 + n, 1, 'first', 1, now(),
		  now() + interval '1 h', 'delayed' FROM generate_series(1, $1) n`), n)
}

// trim takes the steps of a pass over a roll, as if it were due and a retention that began at a
// time were over.
func (b *bundle) trim(position int, since time.Time) bool {
	b.t.Helper()
	b.exec(b.at(0, `UPDATE {rolls} SET trim_at = now() - interval '1 s' WHERE position = $1`),
		position)
	trimmed := false
	for more := true; more; trimmed = trimmed || more {
		var err error
		more, err = b.TrimRoll(b.t.Context(), b.known().Set(), position, since)
		require.NoError(b.t, err)
	}
	return trimmed
}

// gone requires that there is no such task, for readers and for redrives.
func (b *bundle) gone(id asyncflow.TaskID) {
	b.t.Helper()
	_, err := b.Task(b.t.Context(), tenant, id)
	require.Equal(b.t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), id.String())
	_, err = b.Redrive(b.t.Context(), tenant, id, store.Redrive{})
	require.Equal(b.t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), id.String())
}

// A roll with too many live tasks to be compacted loses its ended ones all the same, but for those
// that live ones need. Once the live ones are few, its space is free, too.
func TestTrimRolls(t *testing.T) { eachSet(t, trimRolls) }

func trimRolls(t *testing.T, b *bundle) {
	b.put(twoStages())
	keyed := newTask(`"keyed"`)
	keyed.Options.Key = "k"
	over := b.submit(keyed)[0].ID
	wanted := b.submit(newTask(`"wanted"`))[0].ID
	needed := b.submit(newTask(`"needed"`))[0].ID
	waiting := b.submit(waitsForKey("later", needed))[0].ID
	for range 2 { // both stages
		for _, l := range b.lease(b.known(), 1000) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	b.followUp()
	b.fill(20_000)
	b.fillWaiting(tooMany)
	b.rollAndClear()
	late := b.submit(waitsForKey("never", wanted))[0].ID
	b.leaveRows(over)
	size := b.at(1, `SELECT tenant_acme.table_size('{task}', true) +
		tenant_acme.table_size('{journal}', true)`)
	full := b.count(size)

	before := b.Clock.Now()
	b.idle(false)
	require.False(t, b.mark(1), "they are too many")
	planned, err := b.PlanTrim(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, planned)
	planned, err = b.PlanTrim(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.False(t, planned, "it is planned")
	trimmed, err := b.TrimRoll(t.Context(), b.known().Set(), 1, b.Clock.Now())
	require.NoError(t, err)
	require.False(t, trimmed, "it isn't due")

	require.True(t, b.trim(1, before.Add(-time.Hour)))
	require.Equal(t, asyncflow.StatusSucceeded, b.task(over).Status, "its retention isn't over")
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(over)
	require.Equal(t, 3+tooMany, b.count(b.at(1, `SELECT count(*) FROM {task}`)))
	require.Zero(t, b.count(b.at(1, `SELECT count(*) FROM {journal}
		WHERE id >= (1::bigint << 40) + 500000`)))
	require.Equal(t, 4, b.count(b.at(0, `SELECT count(*) FROM {edges}`)), "of the live ones")
	require.Zero(t, b.count(b.at(0, `SELECT (SELECT count(*) FROM {fan_outs})
		+ (SELECT count(*) FROM {past_keys}) + (SELECT count(*) FROM {checkpoints})`)))
	require.Equal(t, asyncflow.StatusSucceeded, b.task(wanted).Status, "a later task needs it")
	require.Equal(t, asyncflow.StatusSucceeded, b.task(needed).Status)
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
	require.Equal(t, asyncflow.StatusWaiting, b.task(late).Status)
	require.False(t, b.submit(keyed)[0].Existing, "a key ends with its task")
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {rolls}
		WHERE trim_at > now() + interval '50 min' AND trim_type IS NULL AND trimmed`)),
		"the next pass")
	require.Equal(t, 2, b.count(b.at(1, `SELECT count(*) FROM pg_class
		WHERE oid IN ('{task}'::regclass, '{journal}'::regclass)
		  AND 'autovacuum_vacuum_threshold=0' = ANY (reloptions)`)), "Postgres vacuums them soon")

	b.exec(b.at(0, `DELETE FROM {wait}
		WHERE id > (1::bigint << 40) + 1500000 AND id < 2::bigint << 40`))
	b.exec(b.at(1, `DELETE FROM {task} WHERE id > (1::bigint << 40) + 1500000`))
	require.True(t, b.mark(1), "they are few")
	require.Greater(t, b.count(size), full/2)
	kept := b.count(b.at(1, `SELECT count(*) FROM {task}`))
	require.True(t, b.compact(1, b.Clock.Now()), "the space is given back, although no task goes")
	require.Equal(t, kept, b.count(b.at(1, `SELECT count(*) FROM {task}`)))
	require.Less(t, b.count(size), 200<<10)
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {rolls}
		WHERE position = 1 AND trim_at IS NULL AND NOT trimmed`)))

	last := newTask(`"later"`)
	last.Options.Key = "later"
	b.submit(last)
	for range 2 {
		for _, l := range b.lease(b.known(), 1000) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	b.comesTo(waiting, asyncflow.StatusPending)
	leases := b.leaseAll(b.known(), 1)
	require.Contains(t, string(leases[0].Context), `"id":"`+needed.String()+`","output":`)
}

// A task on which one depends that was taken from the line, but isn't leased yet, stays. It goes
// once that is over.
func TestTrimKeepsDependenciesOfPendingTasks(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	needed := b.submit(newTask(`"needed"`))[0].ID
	for range 2 {
		for _, l := range b.lease(b.known(), 10) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	b.rollAndClear()
	dependent := newTask(`"own"`)
	dependent.DependsOn = []asyncflow.Dependency{{Task: needed}}
	pending := b.submit(dependent)[0].ID
	b.comesTo(pending, asyncflow.StatusPending)
	require.True(t, b.trim(1, b.Clock.Now()))
	b.task(needed)
	b.failAll()
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(needed)
}

// Children stay as long as their parent is there, as a redrive of it needs their results. They go
// together.
func TestTrimKeepsChildren(t *testing.T) {
	b := setupFanOut(t)
	parent := b.submit(newTask(`1`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
		Kind:      asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Shards: 3}, Count: 3}})
	b.followUp()
	children := b.leaseAll(b.known(), 3)
	for _, l := range children {
		b.settle(b.known(), l, goodEnd)
	}
	b.followUp()
	b.comesTo(parent, asyncflow.StatusPending)
	ended := b.Clock.Now()
	lease := b.leaseAll(b.known(), 1)[0]
	b.roll()
	_, err := b.DrainRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	_, err = b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, b.mark(1))
	require.False(t, b.compact(1, b.Clock.Now()), "a live task needs them")
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {rolls} WHERE trim_at <= now()`)),
		"so the roll is trimmed")
	require.True(t, b.trim(1, b.Clock.Now()))
	b.settle(b.known(), lease, badEnd)
	require.True(t, b.trim(1, ended))
	for _, l := range children {
		b.task(l.ID)
	}
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(parent)
	for _, l := range children {
		b.gone(l.ID)
	}
	require.Zero(t, b.count(b.at(0, `SELECT count(*) FROM {fan_outs}`)))
}

// A failed task that blocks its flow key stays, and one that starts others which aren't made yet,
// and one with an end that isn't told yet.
func TestTrimKeepsWhatIsLeftToDo(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &blocks
	b.put(spec)
	blocker := b.submit(keyed("a", `"first"`))[0].ID
	next := b.submit(keyed("a", `"next"`))[0].ID
	starting := b.submit(newTask(`1`))[0].ID
	untold := b.submit(newTask(`2`))[0].ID
	ended := b.submit(newTask(`3`))[0].ID
	for _, l := range b.admitAll() {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	b.rollAndClear()
	b.exec(b.at(0, `INSERT INTO {spawns} (type, id, seq, depth, count, hash, tasks)
		SELECT {number}, $1, 1, 1, 1, '', '[]'`), starting.Number)
	b.exec(b.at(0, `INSERT INTO {outbox} (kind, due, type, id)
		SELECT 'final', now() + interval '1 h', {number}, $1`), untold.Number)
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(ended)
	for _, id := range []asyncflow.TaskID{blocker, starting, untold} {
		require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	}
	require.Equal(t, asyncflow.WaitFlow, b.task(next).WaitsFor)
	_, err := b.Redrive(t.Context(), tenant, blocker, store.Redrive{})
	require.NoError(t, err)
}

// Of a redrive and a trimming at once one wins: a task is redriven, or gone with all that it had.
func TestTrimBesideRedrives(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	var ids []asyncflow.TaskID
	for range 40 {
		ids = append(ids, b.submit(newTask(`1`))[0].ID)
	}
	b.failAll()
	b.rollAndClear()
	var redrives sync.WaitGroup
	errs := make([]error, len(ids))
	redrives.Go(func() {
		for i, id := range slices.Backward(ids) {
			_, errs[i] = b.Redrive(t.Context(), tenant, id, store.Redrive{})
		}
	})
	eventually(t, "the roll is trimmed", func() bool { return b.trim(1, b.Clock.Now()) })
	waitAll(t, &redrives)
	left := 0
	for i, id := range ids {
		if asyncflow.CodeOf(errs[i]) == asyncflow.CodeNotFound {
			b.gone(id)
			continue
		}
		require.NoError(t, errs[i])
		require.Equal(t, asyncflow.StatusPending, b.task(id).Status)
		left++
	}
	require.Equal(t, left, b.count(b.at(1, `SELECT count(*) FROM {task}`)))
	require.Equal(t, left, b.count(b.at(1, `SELECT count(DISTINCT id) FROM {journal}`)))
}

// A begun redrive wins: the step waits no longer than for a moment, and does nothing.
func TestTrimWaitsForRedrives(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	ended := b.submit(newTask(`1`))[0].ID
	b.failAll()
	b.rollAndClear()
	b.exec(b.at(0, `UPDATE {rolls} SET trim_at = now() WHERE position = 1`))
	redrive, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = redrive.Exec(t.Context(), b.at(0, `SELECT FROM {rolls} WHERE position = 1 FOR SHARE`))
	require.NoError(t, err)
	trimmed, err := b.TrimRoll(t.Context(), b.known().Set(), 1, b.Clock.Now())
	require.NoError(t, err)
	require.False(t, trimmed)
	b.task(ended)
	require.NoError(t, redrive.Rollback(t.Context()))
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(ended)
}

// A step happens once, or is taken again, whichever statement its node dies at, also if only the
// answer is lost.
func TestTrimSurvivesCrashes(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(twoStages())
	var ids []asyncflow.TaskID
	for range 2 * 40 {
		ids = append(ids, b.submit(newTask(`1`))[0].ID)
	}
	b.failAll()
	b.rollAndClear()
	second, line := mortal(t, b)
	second.known()
	n := 0
	for at, lost := range line.deaths(t, 8) {
		// One more task is old enough.
		require.Less(t, n, len(ids))
		b.exec(b.at(1, `UPDATE {journal} SET at = now() - interval '2 h' WHERE id = $1`),
			ids[n].Number)
		n++
		b.exec(b.at(0, `UPDATE {rolls} SET trim_at = now() - interval '1 s', trim_type = NULL,
			trim_id = NULL WHERE position = 1`))
		line.arm(at, lost, true)
		_, err := second.TrimRoll(t.Context(), b.known().Set(), 1,
			b.Clock.Now().Add(-time.Hour))
		died := line.mend()
		require.True(t, died || err == nil)
		require.Equal(t, b.count(b.at(1, `SELECT count(*) FROM {task}`)),
			b.count(b.at(1, `SELECT count(DISTINCT id) FROM {journal}`)))
		eventually(t, "Postgres has noticed the death", func() bool {
			return b.trim(1, b.Clock.Now().Add(-time.Hour))
		})
		b.gone(ids[n-1])
		b.task(ids[n])
	}
}

// A pass goes on where the last step ended, whichever node took it. The next pass begins anew.
func TestTrimGoesOn(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.fill(1_700)
	b.fillWaiting(tooMany)
	b.rollAndClear()
	since := b.Clock.Now()
	b.exec(b.at(0, `UPDATE {rolls} SET trim_type = {number}, trim_id = (1::bigint << 40) + 500400
		WHERE position = 1`))
	left := b.at(1, `SELECT count(*) FROM {task}`)
	require.True(t, b.trim(1, since))
	require.Equal(t, 400+tooMany, b.count(left))
	require.True(t, b.trim(1, since))
	require.Equal(t, tooMany, b.count(left))
}

// A task with a large context is deleted, too, by a step of its own.
func TestTrimHasBounds(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.submit(newTask(`1`))[0].ID
	large := b.submit(newTask(`2`))[0].ID
	b.failAll()
	b.rollAndClear()
	b.exec(b.at(1, `UPDATE {task} SET context = '"' || repeat('x', 17 << 20) || '"' WHERE id = $1`),
		large.Number)
	require.True(t, b.trim(1, b.Clock.Now()))
	b.gone(first)
	b.gone(large)
}
