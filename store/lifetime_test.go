package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// within is a task with a lifetime.
func within(start, end time.Duration) asyncflow.NewTask {
	task := newTask("1")
	if start != 0 {
		task.StartBy = asyncflow.DeadlineAfter(start)
	}
	if end != 0 {
		task.EndBy = asyncflow.DeadlineAfter(end)
	}
	return task
}

// lapse moves a time of a task's lifetime to a second ago, wherever it stands.
func (b *bundle) lapse(id asyncflow.TaskID, fields ...string) {
	b.t.Helper()
	at := b.Clock.Now().Add(-time.Second).UTC()
	for _, field := range fields {
		for _, table := range []string{"{task}", "{journal}"} {
			b.exec(b.at(id.Position(), `UPDATE `+table+` SET options = jsonb_set(options::jsonb,
				'{lifetime,`+field+`}', to_jsonb($2::text))::json
				WHERE type = {number} AND id = $1 AND options -> 'lifetime' -> '`+field+`'
				  IS NOT NULL`), id.Number, at.Format(time.RFC3339Nano))
		}
		b.exec(b.at(0, `UPDATE {lifetimes} SET expires_at = $2
			WHERE type = {number} AND id = $1 AND (start IS NOT NULL OR NOT $3)`), id.Number, at,
			field == "start_by")
	}
}

// expireTasks runs the job expire for the type pipe until nothing is due. Another node may hold the
// lock of the job, or a lock of a row, until its connection is found to be dead.
func (b *bundle) expireTasks() {
	b.t.Helper()
	eventually(b.t, "no lifetime is over", func() bool {
		_, err := b.ExpireTasks(b.t.Context(), b.known())
		require.NoError(b.t, err)
		var due bool
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), b.at(0, `SELECT EXISTS (
			SELECT FROM {lifetimes} WHERE type = {number} AND expires_at <= $1)`),
			b.Clock.Now()).Scan(&due))
		return !due
	})
}

// lifetimes returns for how many tasks there is a row in lifetimes.
func (b *bundle) lifetimes() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(),
		b.at(0, `SELECT count(*) FROM {lifetimes} WHERE type = {number}`)).Scan(&n))
	return n
}

// expired checks that a task expired.
func (b *bundle) expired(id asyncflow.TaskID, why string) {
	b.t.Helper()
	task := b.task(id)
	require.Equal(b.t, asyncflow.StatusFailed, task.Status, id)
	attempts, err := b.Attempts(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	last := attempts[len(attempts)-1]
	require.Equal(b.t, asyncflow.OutcomeExpired, last.Outcome)
	require.Contains(b.t, last.Error, "expired: it had not "+why+" by ")
}

// A task that isn't begun by its start_by fails, wherever it waits; a begun one goes on.
func TestExpireStarts(t *testing.T) { eachSet(t, testExpireStarts) }

func testExpireStarts(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	delayed := within(time.Hour, 0)
	delayed.Delay = asyncflow.NewDuration(time.Hour)
	all := b.submit(within(time.Hour, 0), delayed, within(time.Hour, 0), within(time.Hour, 0),
		newTask("1"))
	pending, waiting, begun, later, plain := all[0].ID, all[1].ID, all[2].ID, all[3].ID, all[4].ID
	require.Equal(t, 4, b.lifetimes(), "only tasks with a lifetime have a row")

	leases := map[asyncflow.TaskID]asyncflow.Lease{}
	for _, l := range b.lease(pipe, 10) {
		leases[l.ID] = l
	}
	b.settle(pipe, leases[begun], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "x"})
	for _, id := range []asyncflow.TaskID{pending, later, plain} {
		b.settle(pipe, leases[id], asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
	}
	require.Equal(t, 3, b.lifetimes(), "it has begun, and has no end_by")
	b.lapse(pending, "start_by")
	b.lapse(waiting, "start_by")
	b.expireTasks()
	b.expired(pending, "begun")
	b.expired(waiting, "begun")
	assert.Equal(t, asyncflow.StatusPending, b.task(begun).Status)
	assert.Equal(t, asyncflow.StatusPending, b.task(later).Status, "its time has not come")
	assert.Equal(t, asyncflow.StatusPending, b.task(plain).Status)
	assert.Equal(t, 1, b.lifetimes())
	b.checkTokens("pipe")
	b.checkTallies("pipe")
}

// At its end_by a task fails that is not final: its attempt no longer counts, nor does a report.
func TestExpireEnds(t *testing.T) { eachSet(t, testExpireEnds) }

func testExpireEnds(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	all := b.submit(within(0, time.Hour), within(0, time.Hour), within(time.Hour, 2*time.Hour))
	leases := map[asyncflow.TaskID]asyncflow.Lease{}
	for _, l := range b.lease(pipe, 10) {
		leases[l.ID] = l
	}
	running, done, both := all[0].ID, all[1].ID, all[2].ID
	b.settle(pipe, leases[both], asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "x"})
	b.settle(pipe, leases[done], doneWith(`2`))
	l := b.lease(pipe, 10)
	for _, one := range l {
		if one.ID == done {
			b.settle(pipe, one, doneWith(`3`))
		}
	}
	require.Equal(t, asyncflow.StatusSucceeded, b.task(done).Status)
	require.Equal(t, 2, b.lifetimes(), "the end of a task deletes its row")

	// A report after end_by doesn't count, although the job did not run yet.
	late := leases[running]
	late.Options.Lifetime = &asyncflow.Lifetime{EndBy: b.Clock.Now()}
	v := asyncflow.Decide(pipe.TaskType, late, doneWith(`2`), b.Clock.Now())
	require.True(t, v.Expired)
	require.Equal(t, asyncflow.StatusFailed, v.Final())

	b.lapse(running, "end_by")
	b.lapse(both, "end_by")
	b.expireTasks()
	b.expired(running, "ended")
	b.expired(both, "ended")
	r := b.settle(pipe, leases[running], doneWith(`2`))
	assert.Equal(t, store.Settled{Stale: true, Written: asyncflow.OutcomeExpired}, r)
	assert.Zero(t, b.lifetimes())
	b.checkTokens("pipe")
	b.checkTallies("pipe")
}

// A redrive of an expired task needs another lifetime if the old one is a time; durations count
// anew.
func TestExpireRedrive(t *testing.T) { eachSet(t, testExpireRedrive) }

func testExpireRedrive(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	fixed := newTask("1")
	fixed.EndBy = asyncflow.DeadlineAt(b.Clock.Now().Add(-time.Second))
	all := b.submit(fixed, within(time.Hour, 0))
	b.lapse(all[1].ID, "start_by")
	b.expireTasks()
	b.expired(all[0].ID, "ended")
	b.expired(all[1].ID, "begun")

	redrive := func(id asyncflow.TaskID, how store.Redrive) error {
		_, err := b.Redrive(t.Context(), tenant, id, how)
		return err
	}
	err := redrive(all[0].ID, store.Redrive{})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "give end_by")
	require.NoError(t, redrive(all[0].ID, store.Redrive{EndBy: asyncflow.DeadlineAfter(time.Hour)}))
	require.NoError(t, redrive(all[1].ID, store.Redrive{}))
	require.Equal(t, 2, b.lifetimes())
	b.expireTasks()
	for _, l := range b.lease(pipe, 10) {
		why, _ := pipe.Overdue(&l, b.Clock.Now())
		require.Empty(t, why)
		require.NotNil(t, l.Options.Lifetime)
	}
	b.lapse(all[0].ID, "end_by")
	b.expireTasks()
	b.expired(all[0].ID, "ended")
	b.checkTallies("pipe")
}

// A stage's start_by counts from when its task is due there, in each visit.
func TestExpireStageStarts(t *testing.T) { eachSet(t, testExpireStageStarts) }

func testExpireStageStarts(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages[1].StartBy = asyncflow.NewDuration(time.Hour)
	pipe := b.put(spec)
	id := b.submit(newTask("1"))[0].ID
	require.Zero(t, b.lifetimes())
	b.settle(pipe, b.lease(pipe, 1)[0], doneWith(`2`))
	require.Equal(t, 1, b.lifetimes())
	b.lapse(id, "start_by")
	l := b.lease(pipe, 1)[0]
	why, ask := pipe.Overdue(&l, b.Clock.Now())
	require.Empty(t, why)
	require.Equal(t, asyncflow.Certain, ask)
	why, ask = pipe.Overdue(&l, l.DueAt.Add(time.Hour))
	require.Contains(t, why, "expired: it had not begun by ")
	require.Equal(t, asyncflow.BegunInStage, ask)
	why, err := b.SetBegun(t.Context(), pipe, &l, l.DueAt.Add(time.Hour))
	require.NoError(t, err)
	require.NotEmpty(t, why, "it had begun in another stage")
	b.expireTasks() // it is leased: whether it is begun, its attempt shows
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
	b.late("2 hours")
	b.expireTasks()
	b.expired(id, "begun")
	b.checkTokens("pipe")
}

// An attempt of the stage before is none of a stage that on_failure leads to.
func TestExpireStageAfterFailure(t *testing.T) { eachSet(t, testExpireStageAfterFailure) }

func testExpireStageAfterFailure(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages[0].OnFailure = &asyncflow.StageFailure{Next: "second"}
	spec.Stages[1].StartBy = asyncflow.NewDuration(time.Hour)
	pipe := b.put(spec)
	all := b.submit(newTask("1"), newTask("1"))
	for _, l := range b.leaseAll(pipe, 2) {
		b.settle(pipe, l, badEnd)
	}
	for _, l := range b.leaseAll(pipe, 2) {
		require.Equal(t, "second", l.Stage)
		at := l.DueAt.Add(time.Hour)
		why, err := b.SetBegun(t.Context(), pipe, &l, at)
		require.NoError(t, err)
		require.NotEmpty(t, why)
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}
		if l.ID == all[1].ID {
			o = asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed, RetryAfter: time.Hour}
		}
		b.settle(pipe, l, o)
	}
	b.late("2 hours")
	b.expireTasks()
	b.expired(all[0].ID, "begun")
	require.NotEqual(t, asyncflow.StatusFailed, b.task(all[1].ID).Status, "it had begun there")
	b.checkTallies("pipe")
}

// late makes the tasks of the type pipe due earlier, and the job look at them now.
func (b *bundle) late(by string) {
	b.t.Helper()
	for _, position := range b.known().Live() {
		b.exec(b.at(position, `UPDATE {ready} SET since = coalesce(since, order_time) - $1::interval
			WHERE type = {number}`), by)
	}
	b.exec(b.at(0, `UPDATE {wait} SET since = coalesce(since, order_time) - $1::interval
		WHERE type = {number}`), by)
	b.exec(b.at(0, `UPDATE {lifetimes} SET expires_at = '2001-01-01' WHERE type = {number}`))
}

// Children end with a parent that expires, and count as failures of theirs.
func TestExpireParent(t *testing.T) { eachSet(t, testExpireParent) }

func testExpireParent(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages[0].FanOut = &asyncflow.FanOut{Shards: 3}
	pipe := b.put(spec.WithDefaults())
	id := b.submit(within(0, time.Hour))[0].ID
	l := b.lease(pipe, 1)[0]
	rule := pipe.FansOut(l)
	require.NotNil(t, rule)
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: *rule, Count: 3}})
	var children []asyncflow.Lease
	eventually(t, "children", func() bool {
		children = append(children, b.lease(pipe, 10)...)
		return len(children) == 3
	})
	b.lapse(id, "end_by")
	b.expireTasks()
	b.expired(id, "ended")
	for _, c := range children {
		eventually(t, fmt.Sprint(c.ID), func() bool {
			return b.task(c.ID).Status == asyncflow.StatusCancelled
		})
	}
	b.checkTokens("pipe")
}
