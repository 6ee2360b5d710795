package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// marker stands in all contents that a test erases.
const marker = "ada-lovelace"

// withMarker returns the tables of the tenant with the marker in any column of any row.
func (b *bundle) withMarker() (tables []string) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `SELECT tablename FROM pg_tables
		WHERE schemaname = 'tenant_acme' ORDER BY 1`)
	require.NoError(b.t, err)
	var all []string
	for rows.Next() {
		var name string
		require.NoError(b.t, rows.Scan(&name))
		all = append(all, name)
	}
	require.NoError(b.t, rows.Err())
	for _, name := range all {
		if b.count(fmt.Sprintf(`SELECT count(*) FROM tenant_acme.%q t WHERE t::text LIKE '%%%s%%'`,
			name, marker)) > 0 {
			tables = append(tables, name)
		}
	}
	return tables
}

func (b *bundle) erase(id asyncflow.TaskID) store.Task {
	b.t.Helper()
	task, err := b.Erase(b.t.Context(), tenant, id, "privacy")
	require.NoError(b.t, err)
	return task
}

func (b *bundle) refusesErasure(code asyncflow.Code, id asyncflow.TaskID) {
	b.t.Helper()
	_, err := b.Erase(b.t.Context(), tenant, id, "privacy")
	require.Equal(b.t, code, asyncflow.CodeOf(err), err)
}

// secretTask is a task with the marker wherever a submitter may put it.
func secretTask() asyncflow.NewTask {
	task := newTask(`{"who":"` + marker + `"}`)
	task.Options.Key = "order-1"
	task.Options.Labels = asyncflow.Labels{User: marker, Tags: []string{marker, "erased"},
		Metadata: map[string]string{"who": marker}}
	return task
}

// Nothing is left of an erased task of what its submitter, its workers and its receivers said, in
// any table. It stays, with how it ended.
func TestErase(t *testing.T) { eachSet(t, testErase) }

func testErase(t *testing.T, b *bundle) {
	b.byHand()
	told := b.told()
	told.URL += "?who=" + marker
	pipe := b.put(twoStages())
	task := secretTask()
	task.Options.OnFinal = told
	id := b.submit(task)[0].ID
	b.refusesErasure(asyncflow.CodeConflict, id)
	_, err := b.Change(t.Context(), tenant, id,
		asyncflow.Patch{Context: json.RawMessage(`{"edited":"` + marker + `"}`)})
	require.NoError(t, err)
	l := b.leaseAll(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: marker + ": no"})
	l = b.leaseAll(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`"` + marker + `"`)})
	l = b.leaseAll(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: marker})
	b.refusesErasure(asyncflow.CodeConflict, id) // its end is to be told
	b.followUp()
	b.exec(b.at(0, `INSERT INTO {checkpoints} VALUES ({number}, $1, 3, 'second', now(), now(), $2)`),
		id.Number, marker)
	b.exec(b.at(0, `INSERT INTO {signals} (type, task, name, data, bytes, sent_at, kept_until, hash)
		VALUES ({number}, $1, 'approved', $2, 1, now(), now() + interval '1 h', '')`), id.Number, marker)
	require.NotEmpty(t, b.withMarker())
	before := b.task(id)

	after := b.erase(id)
	// The address stays with the notification until that is delivered.
	assert.Equal(t, 1, len(b.withMarker()), b.withMarker())
	require.NotNil(t, after.Options.Erased)
	assert.Equal(t, "privacy", after.Options.Erased.By)
	assert.WithinDuration(t, time.Now(), after.Options.Erased.At, patience)
	assert.Nil(t, after.Context)
	assert.Empty(t, after.Error)
	assert.True(t, after.Options.Labels.IsZero())
	assert.Equal(t, []any{before.Status, before.Stage, before.Attempt, before.CreatedAt,
		before.FinishedAt, before.Options.Key}, []any{after.Status, after.Stage, after.Attempt,
		after.CreatedAt, after.FinishedAt, after.Options.Key})
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Len(t, attempts, 4)
	for _, a := range attempts {
		assert.Empty(t, a.Error)
		assert.Nil(t, a.Output)
	}
	journal, err := b.JournalOf(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, after.Options.Erased, journal.Erased)
	assert.Empty(t, journal.Trace)
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 9})
	require.NoError(t, err)
	assert.Equal(t, after.Options.Erased, list[0].Options.Erased)
	watched, _, _, err := b.Watch(t.Context(), tenant, id, store.AttemptPage{Limit: 9})
	require.NoError(t, err)
	assert.Equal(t, after.Options.Erased, watched.Options.Erased)

	again, err := b.Erase(t.Context(), tenant, id, "another")
	require.NoError(t, err)
	assert.Equal(t, after, again, "a second call changes nothing")
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{Context: json.RawMessage(`1`)})
	assert.Equal(t, asyncflow.CodeErased, asyncflow.CodeOf(err))
	_, err = b.Rerun(t.Context(), tenant, id)
	assert.Equal(t, asyncflow.CodeErased, asyncflow.CodeOf(err))
	missing := id
	missing.Number += 1000
	b.refusesErasure(asyncflow.CodeNotFound, missing)
	missing.Number += 9 << 40
	b.refusesErasure(asyncflow.CodeNotFound, missing)

	event := b.task(after.Notifications[0])
	assert.Equal(t, asyncflow.StatusPending, event.Status)
	assert.Contains(t, string(event.Context), `"status":"failed"`)
	target, err := b.Catalog.Type(tenant, after.Notifications[0].Type)
	require.NoError(t, err)
	b.settle(target, b.leaseAll(target, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	b.erase(after.Notifications[0])
	assert.Empty(t, b.withMarker())
	for _, doc := range []json.RawMessage{task.Context, json.RawMessage(`null`)} {
		task.Context = doc
		resubmitted := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
		assert.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(resubmitted.Err),
			"the key still stands for it, and doesn't run twice")
		_, err := b.bySQL(b.app(), `'pipe', '`+string(doc)+`', key => 'order-1'`)
		assert.ErrorContains(t, err, "which has another context")
	}
}

// Erased with a task are its notifications that ended.
func TestEraseDeliveredNotifications(t *testing.T) {
	b := setup(t)
	b.byHand()
	told := b.told()
	told.URL += "?who=" + marker
	pipe := b.put(single())
	task := secretTask()
	task.Options.OnFinal = told
	id := b.submit(task)[0].ID
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`"` + marker + `"`)})
	b.followUp()
	note := b.task(id).Notifications[0]
	target, err := b.Catalog.Type(tenant, note.Type)
	require.NoError(t, err)
	b.settle(target, b.leaseAll(target, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`"` + marker + `"`)})
	b.erase(id)
	assert.Empty(t, b.withMarker())
	assert.Nil(t, b.task(id).Result)
	assert.NotNil(t, b.task(note).Options.Erased)
}

// A task is not erased while the on_final of its type is being followed: the node that does it may
// have read the result.
func TestEraseBeforeItsEndIsTold(t *testing.T) {
	b := setup(t)
	b.byHand()
	spec := single()
	spec.OnFinal = b.told()
	kind := b.put(spec)
	id := b.submit(secretTask())[0].ID
	b.end(kind, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`"` + marker + `"`)})
	b.refusesErasure(asyncflow.CodeConflict, id)
	follow, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	tag, err := follow.Exec(t.Context(), `DELETE FROM tenant_acme.outbox WHERE kind = 'final'`)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	_, refused := b.Erase(t.Context(), tenant, id, "privacy")
	require.NoError(t, follow.Rollback(t.Context()))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(refused), refused)
	b.followUp()
	note := b.task(id).Notifications[0]
	require.Contains(t, string(b.task(note).Context), marker)
	b.erase(id)
	assert.NotContains(t, string(b.task(note).Context), marker)
	assert.Empty(t, b.withMarker())
}

// An erasure doesn't wait long for whoever else holds the tables.
func TestEraseWhileLocked(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.failAll()
	job, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = job.Exec(t.Context(), `SELECT FROM tenant_acme.rolls FOR UPDATE`)
	require.NoError(t, err)
	_, err = b.Erase(t.Context(), tenant, id, "privacy")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), err)
	require.ErrorContains(t, err, "locked by a background job")
	require.NoError(t, job.Rollback(t.Context()))
	b.erase(id)
}

// Sealed and compacted rolls take erasures like others, and the tables are vacuumed soon.
func TestEraseInOldRolls(t *testing.T) { eachSet(t, eraseInOldRolls) }

func eraseInOldRolls(t *testing.T, b *bundle) {
	b.put(twoStages())
	sealed := b.submit(secretTask())[0].ID
	kept := newTask(`"` + marker + `"`)
	needed := b.submit(kept)[0].ID
	waiting := b.submit(waitsForKey("later", needed))[0].ID
	settleBoth := func() {
		for range 2 {
			for _, l := range b.lease(b.known(), 1000) {
				b.settle(b.known(), l, goodEnd)
			}
		}
		b.followUp()
	}
	settleBoth()
	other := b.submit(newTask(`2`))[0].ID
	settleBoth()
	b.rollAndClear()
	b.erase(sealed)
	assert.Equal(t, 1, b.count(b.at(1, `SELECT count(*) FROM {task} WHERE context LIKE '%`+marker+
		`%'`)), "that of another task")
	assert.Equal(t, 2, b.count(b.at(1, `SELECT count(*) FROM pg_class WHERE oid IN
		('{task}'::regclass, '{journal}'::regclass)
		AND 'autovacuum_vacuum_threshold=0' = ANY (reloptions)`)))

	b.idle(false)
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	_, err := b.Task(t.Context(), tenant, other)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "the roll is compacted")
	b.erase(needed)
	assert.Empty(t, b.withMarker())
	assert.Equal(t, asyncflow.StatusSucceeded, b.task(needed).Status)

	// The one that waits gets null in place of the result.
	later := newTask(`"later"`)
	later.Options.Key = "later"
	b.submit(later)
	settleBoth()
	b.comesTo(waiting, asyncflow.StatusPending)
	leases := b.leaseAll(b.known(), 1)
	assert.Contains(t, string(leases[0].Context), `"id":"`+needed.String()+`","output":null`)
}

// A child keeps its result while its parent waits. The parent's copies go with the parent; children
// go by a filter.
func TestEraseFanOut(t *testing.T) {
	b := setupFanOut(t)
	parent := b.submit(newTask(`{"items":["` + marker + `","b"]}`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items",
			Shared: "/items"}, Count: 2}})
	b.followUp()
	children := b.leaseAll(b.known(), 2)
	for _, l := range children {
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
			Output: json.RawMessage(`"` + marker + `"`)})
	}
	b.refusesErasure(asyncflow.CodeConflict, children[0].ID)
	b.followUp()
	second := b.leaseAll(b.known(), 1)[0]
	b.refusesErasure(asyncflow.CodeConflict, children[0].ID) // the stage may ask for its result
	b.settle(b.known(), second, goodEnd)
	require.Equal(t, asyncflow.StatusSucceeded, b.task(parent).Status)
	b.erase(parent)
	assert.Equal(t, 0, b.count(b.at(1, fmt.Sprintf(`SELECT count(*) FROM {journal} j
		WHERE id = %d AND j::text LIKE '%%%s%%'`, parent.Number, marker))))
	assert.NotEmpty(t, b.withMarker(), "children keep what they have")
	redrive, err := b.db.Begin(t.Context()) // of the parent, which redrives its children
	require.NoError(t, err)
	_, err = redrive.Exec(t.Context(), b.at(0, `SELECT FROM {fan_outs} FOR UPDATE`))
	require.NoError(t, err)
	_, refused := b.Erase(t.Context(), tenant, children[0].ID, "privacy")
	require.NoError(t, redrive.Rollback(t.Context()))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(refused), refused)
	_, due := b.start(store.EraseTasks, store.NewOperation{By: "privacy",
		Filter: store.Filter{Parent: parent}})
	assert.Equal(t, []any{store.OperationDone, int64(2), int64(2), int64(0)},
		figures(b.finish(due)))
	assert.Empty(t, b.withMarker())
	assert.Equal(t, 2, b.task(parent).Children.Succeeded)
	results, n, err := b.ChildResults(t.Context(), tenant, parent, 0, 0, 10)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Nil(t, results[0].Output)
}

// A vote that came after the decision goes with the task, or with one of the votes on it, and none
// is kept after that.
func TestEraseLateVotes(t *testing.T) {
	t.Run("with the vote", func(t *testing.T) {
		eraseLateVotes(t, func(_, vote asyncflow.TaskID) asyncflow.TaskID { return vote })
	})
	t.Run("with the task", func(t *testing.T) {
		eraseLateVotes(t, func(task, _ asyncflow.TaskID) asyncflow.TaskID { return task })
	})
}

func eraseLateVotes(t *testing.T, erased func(task, vote asyncflow.TaskID) asyncflow.TaskID) {
	b := setup(t)
	b.byHand()
	spec := single()
	spec.Stages[0].Mode = asyncflow.ModeClaim
	spec.Stages[0].Quorum = &asyncflow.Quorum{Votes: 1, MaxVotes: 1}
	kind := b.put(spec)
	vote := func() (task, vote asyncflow.Lease) {
		task = b.leaseAll(kind, 1)[0]
		b.settle(kind, task, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{FanOut: *kind.FansOut(task), Count: 1}})
		b.followUp()
		ask := &store.ClaimAsk{Claimer: "anna", N: 1}
		_, err := b.LeaseForClaims(t.Context(), kind, kind.Stages[0].Name,
			[]*store.ClaimAsk{ask}, 1, 1<<20)
		require.NoError(t, err)
		b.settle(kind, ask.Leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
			Endpoint: asyncflow.ClaimedBy("anna", ""), Output: json.RawMessage(`"cat"`)})
		b.followUp()
		require.Equal(t, asyncflow.StatusSucceeded, b.task(task.ID).Status)
		return task, ask.Leases[0]
	}
	late := func(vote asyncflow.Lease, claimer string) {
		decided, err := b.LateVote(t.Context(), kind, vote.ID, vote.Seq, claimer,
			json.RawMessage(`"`+marker+`"`))
		require.NoError(t, err)
		require.True(t, decided)
	}
	b.submit(newTask(`1`))
	task, cast := vote()
	b.submit(newTask(`2`))
	other, kept := vote()
	late(cast, "bob")
	late(kept, "bob")
	votes := func(id asyncflow.TaskID) []asyncflow.Vote {
		v, err := b.Votes(t.Context(), tenant, id)
		require.NoError(t, err)
		return v.Late
	}
	require.Len(t, votes(task.ID), 1)
	b.lateVoteAtOnce(erased(task.ID, cast.ID), cast, func() { late(cast, "dave") })
	assert.Empty(t, votes(task.ID))
	late(cast, "carol")
	assert.Empty(t, votes(task.ID), "after the erasure")
	assert.Len(t, votes(other.ID), 1, "of another task")
	b.erase(other.ID)
	assert.Empty(t, b.withMarker())
}

// lateVoteAtOnce erases a task with a late vote while further ones come: none is left.
func (b *bundle) lateVoteAtOnce(id asyncflow.TaskID, vote asyncflow.Lease, late func()) {
	b.t.Helper()
	votes := func() int { return b.count(`SELECT count(*) FROM tenant_acme.votes`) }
	before := votes()
	// While an erasure holds the row, nothing is kept, and nobody waits.
	erasure, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = erasure.Exec(b.t.Context(), b.at(1, `UPDATE {task} SET context = context
		WHERE id = $1`), id.Number)
	require.NoError(b.t, err)
	late()
	require.NoError(b.t, erasure.Rollback(b.t.Context()))
	require.Equal(b.t, before, votes())

	// An erasure waits for the late vote that holds the row, and deletes it.
	first, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = first.Exec(b.t.Context(), b.at(1, `SELECT FROM {task} WHERE id = $1 FOR SHARE`),
		id.Number)
	require.NoError(b.t, err)
	done := make(chan error, 1)
	go func() {
		for {
			_, err := b.Erase(b.t.Context(), tenant, id, "privacy")
			if asyncflow.CodeOf(err) != asyncflow.CodeUnavailable { // the machine is slow
				done <- err
				return
			}
		}
	}()
	eventually(b.t, "the erasure waits for the vote", func() bool {
		return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	_, err = first.Exec(b.t.Context(), b.at(0, `INSERT INTO {votes} (type, claimer, key, late, at)
		VALUES ({number}, 'erin', $1, '1', now())`), vote.Options.Child.VoteKey())
	require.NoError(b.t, err)
	require.NoError(b.t, first.Commit(b.t.Context()))
	require.NoError(b.t, receive(b.t, done))
	require.Equal(b.t, before-1, votes(), "that of another task is left")
}

// An operation erases the final tasks of a filter, and comes to no task twice.
func TestEraseTasks(t *testing.T) { eachSet(t, eraseTasks) }

func eraseTasks(t *testing.T, b *bundle) {
	b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 250)
	for i := range tasks {
		tasks[i] = newTask(`1`)
		tasks[i].Options.Labels.User = marker
	}
	b.submit(tasks...)
	b.failAll()
	live := newTask(`2`)
	live.Options.Labels.User = marker
	id := b.submit(live)[0].ID
	n, err := b.CountTasks(t.Context(), tenant, store.NewOperation{Kind: store.EraseTasks,
		Filter: store.Filter{Type: "pipe", Labels: store.LabelFilter{User: marker}}})
	require.NoError(t, err)
	assert.Equal(t, int64(250), n)
	_, due := b.start(store.EraseTasks, store.NewOperation{By: "privacy",
		Filter: store.Filter{Labels: store.LabelFilter{User: marker}}})
	assert.Equal(t, 100, b.step(due).Done, "a step is bounded")
	assert.Equal(t, []any{store.OperationDone, int64(250), int64(250), int64(0)},
		figures(b.finish(due)))
	assert.Nil(t, b.task(id).Options.Erased, "a live one has its contents")
	assert.Equal(t, 1, b.count(b.at(1, `SELECT count(*) FROM {task} WHERE options->>'user' <> ''`)))
	o, _ := b.start(store.EraseTasks, store.NewOperation{})
	assert.Equal(t, int64(0), o.Total, "erased tasks are not counted again")
}

// Of an erasure and a redrive of a task at once, one wins: no task runs without its context.
func TestEraseOrRedrive(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 60)
	for i := range tasks {
		tasks[i] = newTask(`"kept"`)
	}
	b.submit(tasks...)
	ids := b.failAll()
	require.Len(t, ids, len(tasks))
	both := [2]int{}
	for _, id := range ids {
		var wait sync.WaitGroup
		var erased, redriven error
		start := make(chan struct{})
		wait.Add(2)
		go func() {
			defer wait.Done()
			<-start
			_, erased = b.Erase(context.WithoutCancel(t.Context()), tenant, id, "")
		}()
		go func() {
			defer wait.Done()
			<-start
			_, redriven = b.Redrive(context.WithoutCancel(t.Context()), tenant, id, store.Redrive{})
		}()
		close(start)
		waitAll(t, &wait)
		task := b.task(id)
		if erased == nil {
			both[0]++
			require.Equal(t, asyncflow.CodeErased, asyncflow.CodeOf(redriven), redriven)
			require.Equal(t, asyncflow.StatusFailed, task.Status)
			continue
		}
		both[1]++
		require.NoError(t, redriven)
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(erased), erased)
		require.JSONEq(t, `"kept"`, string(task.Context))
	}
	t.Log("erased, redriven:", both)
}

// While a node of an older version runs, nothing is erased: it would redrive an erased task.
func TestEraseNeedsNewNodes(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.failAll()
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('old', 'api', '0.0.9', now(), now())`)
	_, err := b.Erase(t.Context(), tenant, id, "")
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "erasure, which a running node of an older version (0.0.9)")
	_, err = b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.EraseTasks,
		Filter: store.Filter{Type: "pipe"}})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
}
