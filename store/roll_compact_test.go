package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// mark tries to note the live tasks of a roll.
func (b *bundle) mark(position int) bool {
	b.t.Helper()
	marked, err := b.MarkRemaining(b.t.Context(), b.known().Set(), position)
	require.NoError(b.t, err)
	return marked
}

// compact tries to compact a roll, as if a retention that began at a time were over.
func (b *bundle) compact(position int, since time.Time) bool {
	b.t.Helper()
	compacted, err := b.CompactRoll(b.t.Context(), b.known().Set(), position, since)
	require.NoError(b.t, err)
	return compacted
}

// waitsForKey returns a task that waits for a key, and for a task.
func waitsForKey(key string, on asyncflow.TaskID) asyncflow.NewTask {
	task := newTask(`"own"`)
	task.DependsOn = []asyncflow.Dependency{{Type: "pipe", Key: key}, {Task: on}}
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	return task
}

// fill adds finished tasks to the first roll, about 100 bytes each.
func (b *bundle) fill(n int) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), b.at(1, `
		INSERT INTO {task} (type, id, created_at, order_time, context)
		SELECT {number}, (1::bigint << 40) + 500000 + n, now(), now(), '1' FROM generate_series(1, $1) n`),
		n)
	require.NoError(b.t, err)
	_, err = b.db.Exec(b.t.Context(), b.at(1, `
		INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, final)
		SELECT {number}, (1::bigint << 40) + 500000 + n, 1, now(), 'first', 1, 'done', 'succeeded'
		FROM generate_series(1, $1) n`), n)
	require.NoError(b.t, err)
}

// A task that waits keeps no other task than those it needs: once their retention is over, the
// tasks that ended are gone from its roll and from the later ones, and so is the space. The waiting
// task goes on, with the output of its dependency.
func TestCompactRolls(t *testing.T) { eachSet(t, compactRolls) }

func compactRolls(t *testing.T, b *bundle) {
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
	b.rollAndClear()
	second := b.submit(newTask(`"second"`))[0].ID
	b.rollAndClear()
	late := b.submit(waitsForKey("never", wanted))[0].ID
	size := b.at(1, `SELECT tenant_acme.table_size('{task}', true) +
		tenant_acme.table_size('{journal}', true)`)
	require.Greater(t, b.count(size), 2<<20)

	before := b.Clock.Now()
	b.idle(false)
	require.True(t, b.mark(1))
	require.False(t, b.mark(1), "it is noted")
	idle, err := b.IdleRoll(t.Context(), b.known().Set(), 2)
	require.NoError(t, err)
	require.True(t, idle)
	require.False(t, b.drop(b.Clock.Now()), "a task waits")
	for position := 1; position <= 2; position++ {
		require.False(t, b.compact(position, before.Add(-time.Hour)), "tasks are kept")
		require.True(t, b.compact(position, b.Clock.Now()))
		require.False(t, b.compact(position, b.Clock.Now()), "it has been compacted")
	}
	require.Less(t, b.count(size), 200<<10)
	require.Equal(t, asyncflow.StatusSucceeded, b.task(wanted).Status, "a later task needs it")
	for _, id := range []asyncflow.TaskID{over, second} {
		_, err := b.Task(t.Context(), tenant, id)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
		_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
	require.Equal(t, asyncflow.StatusSucceeded, b.task(needed).Status)
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 4)
	b.exec(b.at(0, `UPDATE {edges} SET on_id = $1, status = NULL WHERE on_id = $2`), over.Number,
		wanted.Number)
	b.exec(b.at(0, `INSERT INTO {outbox} (kind, due, type, id) SELECT 'look', now(), {number}, $1`),
		late.Number)
	b.comesTo(late, asyncflow.StatusFailed) // a dependency that isn't there is gone
	require.False(t, b.submit(keyed)[0].Existing, "a key ends with its task")
	_, err = b.db.Exec(t.Context(), b.at(1, `INSERT INTO {task}
		SELECT type, id + 1000000, created_at, order_time, options, context FROM {task}`))
	require.ErrorContains(t, err, `"sealed"`)

	later := newTask(`"later"`)
	later.Options.Key = "later"
	b.submit(later)
	for range 2 {
		for _, l := range b.lease(b.known(), 1000) {
			b.settle(b.known(), l, goodEnd)
		}
	}
	b.comesTo(waiting, asyncflow.StatusPending)
	leases := b.leaseAll(b.known(), 1)
	require.Equal(t, waiting, leases[0].ID)
	require.Contains(t, string(leases[0].Context), `"id":"`+needed.String()+`","output":`)
	b.settle(b.known(), leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))
	require.True(t, b.drop(b.Clock.Now()))
	require.Equal(t, []int{3, 3, 3}, b.positions())
}

// A redrive keeps the tasks of its roll, also if the task ended again before anybody looked.
func TestCompactAfterARedrive(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	failed := b.submit(newTask(`1`))[0].ID
	b.failAll()
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	b.submit(later)
	b.rollAndClear()
	require.True(t, b.mark(1))
	_, err := b.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	require.Equal(t, []asyncflow.TaskID{failed}, b.failAll())
	require.False(t, b.compact(1, b.Clock.Now()), "nobody has looked")
	require.True(t, b.mark(1))

	// A node of the version before redrives it.
	left := b.at(0, `SELECT remaining_since FROM {rolls} WHERE position = 1`)
	var since, now time.Time
	require.NoError(t, b.db.QueryRow(t.Context(), left).Scan(&since))
	_, err = b.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	b.exec(b.at(0, `UPDATE {rolls} SET remaining_since = $1, remaining_types = '{}',
		remaining_ids = '{}' WHERE position = 1`), since)
	require.False(t, b.compact(1, b.Clock.Now()))
	require.NoError(t, b.db.QueryRow(t.Context(), left).Scan(&now))
	require.Greater(t, now, since, "its live tasks are noted anew")
	require.Equal(t, []asyncflow.TaskID{failed}, b.failAll())
}

// The children of a task that remains stay, as it may read their results. An hour later the roll is
// tried again.
func TestCompactKeepsChildren(t *testing.T) {
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
	lease := b.leaseAll(b.known(), 1)[0]
	b.roll()
	_, err := b.DrainRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	_, err = b.ClearRoll(t.Context(), b.known().Set(), 1)
	require.NoError(t, err)
	require.True(t, b.mark(1))
	require.False(t, b.compact(1, b.Clock.Now()))
	b.task(children[0].ID)
	due := b.at(0, `SELECT count(*) FROM {rolls} WHERE remaining_since > now() + interval '55 min'`)
	require.Equal(t, 1, b.count(due), "it is due again in an hour")
	b.settle(b.known(), lease, badEnd)
	b.idle(true)
	require.False(t, b.compact(1, b.Clock.Now().Add(2*time.Hour)), "the parent has ended just now")
	require.True(t, b.compact(1, b.Clock.Now().Add(2*time.Hour)))
	_, err = b.Task(t.Context(), tenant, children[0].ID)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// A backup delays the step: pg_dump locks all tables before it reads them. What belongs to the
// tasks in other tables stays meanwhile.
func TestCompactBesideABackup(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(twoStages())
	ended := b.submit(newTask(`1`))[0].ID
	b.failAll()
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	waiting := b.submit(later)[0].ID
	b.rollAndClear()
	b.leaveRows(ended)
	require.True(t, b.mark(1))
	backup, err := b.db.Acquire(t.Context())
	require.NoError(t, err)
	defer backup.Release()
	_, err = backup.Exec(t.Context(), b.at(1, `BEGIN; LOCK TABLE {task} IN ACCESS SHARE MODE`))
	require.NoError(t, err)
	require.False(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, asyncflow.StatusFailed, b.task(ended).Status)
	require.Equal(t, 4, b.rowsAround())
	_, err = backup.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)
	require.True(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
	require.Zero(t, b.rowsAround())
}

// leaveRows inserts a row for a task into each table with rows of tasks of all rolls.
func (b *bundle) leaveRows(id asyncflow.TaskID) {
	b.t.Helper()
	b.exec(b.at(0, `INSERT INTO {edges} (type, id, n, on_type, on_id, on_failure, status)
		SELECT {number}, $1, 1, {number}, $1, 'fail', 'succeeded'`), id.Number)
	b.exec(b.at(0, `INSERT INTO {fan_outs} (type, id, seq, waits, stage, rule, count, closed)
		SELECT {number}, $1, 1, 1, 'first', '{}', 1, true`), id.Number)
	b.exec(b.at(0, `INSERT INTO {past_keys} (type, key, id) SELECT {number}, 'past', $1`), id.Number)
	b.exec(b.at(0, `INSERT INTO {checkpoints} (type, id, seq, stage, written_at, check_at, document)
		SELECT {number}, $1, 1, 'first', now(), 'infinity', '1'`), id.Number)
}

// rowsAround counts the rows of leaveRows.
func (b *bundle) rowsAround() int {
	b.t.Helper()
	return b.count(b.at(0, `SELECT (SELECT count(*) FROM {edges}) + (SELECT count(*) FROM {fan_outs})
		+ (SELECT count(*) FROM {past_keys}) + (SELECT count(*) FROM {checkpoints})`))
}

// A failed task that blocks its flow key stays: a redrive of it frees the key.
func TestCompactKeepsBlockers(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Flow = &blocks
	b.put(spec)
	blocker := b.submit(keyed("a", `"first"`))[0].ID
	next := b.submit(keyed("a", `"next"`))[0].ID
	ended := b.submit(newTask(`1`))[0].ID
	for _, l := range b.admitAll() {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	b.rollAndClear()
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	_, err := b.Task(t.Context(), tenant, ended)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	require.Equal(t, asyncflow.WaitFlow, b.task(next).WaitsFor)
	_, err = b.Redrive(t.Context(), tenant, blocker, store.Redrive{})
	require.NoError(t, err)
}

// Where no task ended, nothing is written anew, and the roll is looked at again after another
// retention.
func TestCompactWritesNothingInVain(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	b.submit(later)
	b.rollAndClear()
	file := b.at(1, `SELECT pg_relation_filenode('{task}')::int`)
	before := b.count(file)
	require.True(t, b.mark(1))
	since := b.Clock.Now()
	require.False(t, b.compact(1, since))
	require.Equal(t, before, b.count(file))
	require.False(t, b.compact(1, since), "it was looked at")
	var renewed time.Time
	require.NoError(t, b.db.QueryRow(t.Context(),
		b.at(0, `SELECT remaining_since FROM {rolls} WHERE position = 1`)).Scan(&renewed))
	require.Greater(t, renewed, since)
}

// A task that was noted as live and is over by now goes, too, while another one still waits.
func TestCompactForgetsNotedTasks(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	ended := b.submit(later)[0].ID
	waiting := b.submit(later)[0].ID
	b.rollAndClear()
	require.True(t, b.mark(1))
	_, err := b.Cancel(t.Context(), tenant, ended, "")
	require.NoError(t, err)
	require.False(t, b.compact(1, b.Clock.Now()), "its retention counts from now")
	require.Equal(t, asyncflow.StatusCancelled, b.task(ended).Status)
	require.True(t, b.compact(1, b.Clock.Now()))
	_, err = b.Task(t.Context(), tenant, ended)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	require.Equal(t, asyncflow.StatusWaiting, b.task(waiting).Status)
}

// What belongs to erased tasks in other tables is deleted in small steps. A redrive of a task that
// remains doesn't end that.
func TestCompactTidiesUp(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	failed := b.submit(newTask(`1`))[0].ID
	b.failAll()
	dependent := newTask(`"later"`)
	dependent.Delay = asyncflow.NewDuration(time.Hour)
	dependent.DependsOn = []asyncflow.Dependency{{Task: failed, OnFailure: asyncflow.DependentRuns}}
	b.submit(dependent)
	b.fill(1)
	b.rollAndClear()
	const many = 60_000 // more than the steps of one call
	b.exec(b.at(0, `INSERT INTO {past_keys} (type, key, id)
		SELECT {number}, n::text, (1::bigint << 40) + 900000 + n FROM generate_series(1, 60000) n`))
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	left := b.at(0, `SELECT count(*) FROM {past_keys}`)
	require.Equal(t, many-50_000, b.count(left))
	_, err := b.Redrive(t.Context(), tenant, failed, store.Redrive{})
	require.NoError(t, err)
	require.False(t, b.mark(1), "it is being tidied up")
	require.True(t, b.compact(1, b.Clock.Now()))
	require.Zero(t, b.count(left))
	require.Equal(t, 1, b.count(b.at(0, `SELECT count(*) FROM {edges}`)), "of a task that remains")
	require.True(t, b.mark(1))
}

// A roll in which too much remains stays as it is.
func TestCompactHasBounds(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	ended := b.submit(newTask(`1`))[0].ID
	b.failAll()
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	waiting := b.submit(later)[0].ID
	b.rollAndClear()
	b.leaveRows(ended)
	require.True(t, b.mark(1))
	b.exec(b.at(1, `UPDATE {task} SET context = '"' || repeat('x', 17 << 20) || '"' WHERE id = $1`),
		waiting.Number)
	require.False(t, b.compact(1, b.Clock.Now()))
	require.Equal(t, asyncflow.StatusFailed, b.task(ended).Status)
	require.Equal(t, 4, b.rowsAround())

	b.exec(b.at(1, `UPDATE {task} SET context = '1' WHERE id = $1`), waiting.Number)
	b.exec(b.at(0, `UPDATE {rolls} SET remaining_since = NULL WHERE position = 1`))
	b.exec(b.at(0, `INSERT INTO {wait} (type, id, seq, stage, attempt, order_time, until, reason)
		SELECT {number}, (1::bigint << 40) + 500000 + n, 1, 'first', 1, now(), now() + interval '1 h',
		  'delayed' FROM generate_series(1, 10000) n`))
	require.False(t, b.mark(1))
}
