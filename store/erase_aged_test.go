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
	"github.com/asyncflow/asyncflow/store"
)

// keepHour is a type in which contents are kept for an hour.
func keepHour() asyncflow.TaskType {
	t := single()
	t.ContextRetention = asyncflow.NewDuration(time.Hour)
	return t
}

// ageAll moves everything of the type pipe to an earlier time.
func (b *bundle) ageAll(d time.Duration) {
	b.t.Helper()
	for _, position := range b.known().Rolls() {
		b.exec(b.at(position, `UPDATE {task} SET created_at = created_at - make_interval(secs => $1)
			WHERE type = {number}`), d.Seconds())
		b.exec(b.at(position, `UPDATE {journal} SET at = at - make_interval(secs => $1)
			WHERE type = {number}`), d.Seconds())
	}
	for _, table := range []string{"content_cursors", "content_waits"} {
		b.exec(b.at(0, `UPDATE tenant_acme.`+table+` SET since = since - make_interval(secs => $1)
			WHERE type = {number} AND since < 'infinity'`), d.Seconds())
	}
}

// eraseOld takes steps of the job erase until none is due. It returns how many tasks they erased,
// and when the next step is due.
func (b *bundle) eraseOld() (sum int, next time.Time) {
	b.t.Helper()
	_, _, err := b.BeginAging(b.t.Context(), tenant)
	require.NoError(b.t, err)
	for range 100 {
		step, err := b.EraseAged(b.t.Context(), tenant, "pipe", nil)
		require.NoError(b.t, err)
		sum += step.Done
		if !step.More {
			return sum, step.Next
		}
	}
	require.Fail(b.t, "steps without end")
	return sum, next
}

// erasesAged checks how many tasks the job erases now.
func (b *bundle) erasesAged(want int) (next time.Time) {
	b.t.Helper()
	sum, next := b.eraseOld()
	require.Equal(b.t, want, sum)
	return next
}

func doneWith(output string) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(output)}
}

// The contents of a final task go that long after its end, and not earlier, as by a call. Live
// tasks and other types keep theirs.
func TestEraseAged(t *testing.T) { eachSet(t, testEraseAged) }

func testEraseAged(t *testing.T, b *bundle) {
	b.byHand()
	b.put(keepHour())
	other := single()
	other.Name = "other"
	b.put(other)
	kept := secretTask()
	kept.Type = "other"
	id := b.submit(secretTask())[0].ID
	b.end(b.known(), doneWith(`"`+marker+`"`))
	b.exec(b.at(1, `UPDATE {journal} SET at = at + interval '20 s' WHERE type = {number}`))
	b.erasesAged(0)
	next := b.erasesAged(0)
	ended := b.task(id).FinishedAt
	require.NotContains(t, next.String(), "0001")
	require.False(t, next.After(ended.Add(time.Hour)), "it is looked at in time")

	b.ageAll(time.Hour - time.Minute)
	next = b.erasesAged(0)
	require.Contains(t, string(b.task(id).Context), marker)
	require.WithinDuration(t, b.task(id).FinishedAt.Add(time.Hour), next, time.Minute)
	b.ageAll(time.Minute)
	next = b.erasesAged(0)
	require.WithinDuration(t, b.task(id).FinishedAt.Add(time.Hour), next, time.Second)
	require.Contains(t, string(b.task(id).Context), marker)
	require.Equal(t, 0, b.count(`SELECT count(*) FROM tenant_acme.content_waits`),
		"ordinary tasks get no row")
	b.ageAll(20 * time.Second)
	due, err := b.DryRunAged(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Equal(t, 1, due)
	live := b.submit(newTask(`"live"`))[0].ID
	b.erasesAged(1)
	assert.Empty(t, b.withMarker())
	after := b.task(id)
	require.NotNil(t, after.Options.Erased)
	assert.Equal(t, asyncflow.RetentionErases, after.Options.Erased.By)
	assert.False(t, after.Options.Erased.At.Before(after.FinishedAt.Add(time.Hour)))
	assert.Equal(t, asyncflow.StatusSucceeded, after.Status)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	assert.Equal(t, asyncflow.CodeErased, asyncflow.CodeOf(err), err)
	_, err = b.Rerun(t.Context(), tenant, id)
	assert.Equal(t, asyncflow.CodeErased, asyncflow.CodeOf(err), err)
	assert.JSONEq(t, `"live"`, string(b.task(live).Context))

	b.submit(kept)
	known, err := b.Catalog.Type(tenant, "other")
	require.NoError(t, err)
	b.end(known, doneWith(`1`))
	b.ageAll(30 * 24 * time.Hour)
	assert.Empty(t, b.AgingTypes("other"))
	assert.Equal(t, []string{"pipe"}, b.AgingTypes(tenant))
	step, err := b.EraseAged(t.Context(), tenant, "other", nil)
	require.NoError(t, err)
	assert.Equal(t, store.AgedStep{}, step)
	b.erasesAged(0)
	assert.NotEmpty(t, b.withMarker(), "of the type that keeps contents")
	assert.JSONEq(t, `"live"`, string(b.task(live).Context))
}

// A task that ends long after the cursors passed it is found at its time, in an old roll, too.
// Tasks that came to a roll after the cursors are found once it is sealed. After that no step reads
// the roll again.
func TestAgedLongTasks(t *testing.T) { eachSet(t, agedLongTasks) }

func agedLongTasks(t *testing.T, b *bundle) {
	b.put(keepHour())
	waiting := newTask(`"` + marker + `"`)
	waiting.Delay = asyncflow.NewDuration(30 * 24 * time.Hour)
	long := b.submit(waiting)[0].ID
	b.submit(newTask(`1`), newTask(`2`))
	b.failAll()
	bySQL, err := b.bySQL(b.app(), `'pipe', '"by SQL"'`)
	require.NoError(t, err)
	b.failAll()
	b.ageAll(2 * time.Hour)
	b.erasesAged(3)
	require.NotNil(t, b.task(bySQL).Options.Erased)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.content_waits`))

	missed := b.submit(newTask(`"missed"`))[0].ID
	b.failAll()
	b.ageAll(2 * time.Hour)
	b.exec(`UPDATE tenant_acme.content_cursors SET passed = upto - 1`)
	b.erasesAged(0)
	b.rollAndClear()
	b.ageAll(2 * time.Hour)
	b.erasesAged(1)
	require.NotNil(t, b.task(missed).Options.Erased)

	b.ageAll(30 * time.Minute)
	_, err = b.Cancel(t.Context(), tenant, long, "")
	require.NoError(t, err)
	b.ageAll(time.Hour - time.Minute)
	b.erasesAged(0)
	require.NotEmpty(t, b.withMarker())
	b.ageAll(time.Minute)
	b.erasesAged(1)
	require.Empty(t, b.withMarker())
	require.Equal(t, 0, b.count(`SELECT count(*) FROM tenant_acme.content_waits`))
	require.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.content_cursors
		WHERE since = 'infinity' AND closing`), "the roll is done")

	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))
	require.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.content_cursors`))
	b.erasesAged(0)
}

// However many tasks took long, one that was done at once is erased at most a hundredth of the time
// later.
func TestAgedIsNotHeldUp(t *testing.T) {
	b := setup(t)
	kind := keepHour()
	kind.ContextRetention = asyncflow.NewDuration(10 * time.Hour)
	const late = 6 * time.Minute // a hundredth of that
	b.put(kind)
	for i := range 8 {
		b.submit(newTask(fmt.Sprint(i)))
	}
	b.failAll()
	submitted := b.Clock.Now().Add(-10*time.Hour - late)
	b.exec(b.at(1, `UPDATE {task} SET created_at = $1`), submitted)
	// The first seven took 4, 8, 12, … minutes, the last one no time.
	b.exec(b.at(1, `UPDATE {journal} j SET at = $1::timestamptz + n % 8 * interval '4 minutes'
		FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM {task}) t
		WHERE t.id = j.id`), submitted)
	b.erasesAged(2)
	require.Equal(t, 6, b.count(`SELECT count(*) FROM tenant_acme.content_waits`))
}

// Sealed and compacted rolls are like others; what a compaction left out is forgotten.
func TestAgedInCompactedRolls(t *testing.T) { eachSet(t, agedInCompactedRolls) }

func agedInCompactedRolls(t *testing.T, b *bundle) {
	b.put(keepHour())
	waiting := newTask(`"` + marker + `"`)
	waiting.Delay = asyncflow.NewDuration(30 * 24 * time.Hour)
	long := b.submit(waiting)[0].ID
	gone := b.submit(newTask(`"gone"`))[0].ID
	b.ageAll(2 * time.Hour)
	b.erasesAged(0) // both are live
	b.failAll()
	b.rollAndClear()
	b.idle(false)
	require.True(t, b.mark(1))
	require.True(t, b.compact(1, b.Clock.Now()))
	_, err := b.Task(t.Context(), tenant, gone)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	_, err = b.Cancel(t.Context(), tenant, long, "")
	require.NoError(t, err)
	b.ageAll(2 * time.Hour)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.content_waits`))
	// A node of the version before leaves the rows of tasks that it compacts or drops.
	b.exec(b.at(0, `INSERT INTO {content_waits} SELECT {number}, n, '2001-01-01'
		FROM unnest($1::bigint[]) AS u (n)`), []int64{gone.Number, 99 << 40})
	b.erasesAged(1)
	require.Empty(t, b.withMarker())
	require.Equal(t, 0, b.count(`SELECT count(*) FROM tenant_acme.content_waits`))
}

// A step is bounded in tasks and in bytes. Steps of two nodes at once, and of a node after one that
// died, erase each task once.
func TestAgedInSteps(t *testing.T) {
	b := setup(t)
	b.put(keepHour())
	tasks := make([]asyncflow.NewTask, 250)
	for i := range tasks {
		tasks[i] = newTask(fmt.Sprintf(`"%s %d"`, marker, i))
	}
	b.submit(tasks...)
	require.Len(t, b.failAll(), 250)
	b.ageAll(2 * time.Hour)
	types, _, err := b.BeginAging(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, []string{"pipe"}, types)
	step, err := b.EraseAged(t.Context(), tenant, "pipe", nil)
	require.NoError(t, err)
	require.Equal(t, store.AgedStep{Done: 100, More: true, Roll: 1, Locked: true}, step)

	b.exec(b.at(1, `UPDATE {task} SET context = '"' || repeat('x', 9 << 20) || '"'
		WHERE options IS NULL AND id = ANY (ARRAY(SELECT id FROM {task} WHERE options IS NULL
		  ORDER BY id LIMIT 2))`))
	step, err = b.EraseAged(t.Context(), tenant, "pipe", nil)
	require.NoError(t, err)
	require.Equal(t, store.AgedStep{Done: 1, More: true, Roll: 1, Locked: true}, step)

	// A node dies within a step.
	held, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `LOCK TABLE tenant_acme.content_waits IN SHARE MODE`)
	require.NoError(t, err)
	dies := make(chan error, 1)
	go func() {
		for err := error(nil); ; { // it gives up after a while
			if _, err = b.EraseAged(t.Context(), tenant, "pipe", nil); err != nil {
				dies <- err
				return
			}
		}
	}()
	eventually(t, "the node has died within a step", func() bool { // not between two
		b.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		return len(dies) > 0
	})
	require.Error(t, receive(t, dies))
	require.NoError(t, held.Rollback(t.Context()))
	require.Equal(t, 149, b.count(b.at(1,
		`SELECT count(*) FROM {task} WHERE options -> 'erased' IS NULL`)))

	second := open(t, b.url, "node-2")
	var wait sync.WaitGroup
	sums := [2]int{}
	for i, node := range []*bundle{b, second} {
		wait.Go(func() {
			for more := true; more; {
				step, err := node.EraseAged(t.Context(), tenant, "pipe", nil)
				if !assert.NoError(t, err) {
					return
				}
				sums[i] += step.Done
				more = step.More
			}
		})
	}
	waitAll(t, &wait)
	left, _ := b.eraseOld() // perhaps both met the other
	require.Equal(t, 149, sums[0]+sums[1]+left)
	require.Empty(t, b.withMarker())
}

// A child is erased after the end of its parent, and a task with an end that isn't told yet after
// that is told.
func TestAgedWhatIsNeeded(t *testing.T) {
	b := setupFanOut(t)
	spec := b.known().TaskType
	spec.ContextRetention = asyncflow.NewDuration(time.Hour)
	b.put(spec)
	parent := b.submit(newTask(`{"items":["` + marker + `","b"]}`))[0].ID
	l := b.leaseAll(b.known(), 1)[0]
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
	b.followUp()
	for _, l := range b.leaseAll(b.known(), 2) {
		b.settle(b.known(), l, doneWith(`"`+marker+`"`))
	}
	b.ageAll(2 * time.Hour)
	next := b.erasesAged(0)
	require.WithinDuration(t, b.Clock.Now().Add(time.Hour), next, time.Minute)
	b.followUp()
	second := b.leaseAll(b.known(), 1)[0]
	b.ageAll(2 * time.Hour)
	b.erasesAged(0)
	b.settle(b.known(), second, goodEnd)
	b.ageAll(2 * time.Hour)
	b.erasesAged(3)
	require.Equal(t, asyncflow.StatusSucceeded, b.task(parent).Status)
	require.Empty(t, b.withMarker())
}

// Another retention counts from the same ends, from the answer on. One that was taken away and
// given again goes on.
func TestAgedByAnotherRetention(t *testing.T) {
	b := setup(t)
	spec := keepHour()
	b.put(spec)
	with := func(keep time.Duration) {
		spec.ContextRetention = asyncflow.NewDuration(keep)
		b.put(spec)
	}
	waiting := newTask(`"live"`)
	waiting.Delay = asyncflow.NewDuration(30 * 24 * time.Hour)
	b.submit(waiting, newTask(`1`))
	first := b.failAll()[0]
	b.ageAll(30 * time.Minute)
	b.erasesAged(0)
	with(3 * time.Hour)
	b.ageAll(time.Hour)
	b.erasesAged(0)
	require.JSONEq(t, `1`, string(b.task(first).Context))
	with(time.Hour)
	b.erasesAged(1)
	with(0)
	b.submit(newTask(`2`))
	b.failAll()
	b.ageAll(24 * time.Hour)
	b.erasesAged(0)
	with(2 * time.Hour)
	b.erasesAged(1)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.content_waits`), "the live one")

	change, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	b.submit(newTask(`3`))
	b.failAll()
	b.ageAll(24 * time.Hour)
	_, err = change.Exec(t.Context(), `UPDATE tenant_acme.task_types SET version = version`)
	require.NoError(t, err)
	sum, _ := b.eraseOld() // its retention may be another one by then
	require.NoError(t, change.Rollback(t.Context()))
	require.Zero(t, sum)
	b.erasesAged(1)
}

// While a node of an older version runs, which would redrive an erased task, nothing is erased.
func TestAgedNeedsNewNodes(t *testing.T) {
	b := setup(t)
	spec := keepHour()
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('old', 'api', '0.0.9', now(), now())`)
	_, _, err := b.PutTaskType(t.Context(), tenant, spec)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "context_retention")
	b.exec(`DELETE FROM asyncflow.nodes WHERE id = 'old'`)
	b.put(spec)
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at)
		VALUES ('old', 'api', '0.0.9', now(), now())`)
	_, _, err = b.BeginAging(t.Context(), tenant)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), err)
}

// How late the job is shows, also of contents that nobody began to erase.
func TestOverdueContents(t *testing.T) {
	b := setup(t)
	b.put(keepHour())
	overdue := func() time.Duration {
		late, err := b.OverdueContents(t.Context(), tenant)
		require.NoError(t, err)
		return late
	}
	b.submit(newTask(`1`))
	b.failAll()
	require.Zero(t, overdue())
	b.erasesAged(0)
	b.ageAll(3 * time.Hour)
	require.InDelta(t, 2*time.Hour, overdue(), float64(time.Minute))
	b.erasesAged(1)
	require.Zero(t, overdue())
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	require.Equal(t, 0, b.count(`SELECT count(*) FROM tenant_acme.content_cursors`))
}

// A transaction that holds a roll keeps erasures of that roll waiting, and none of other rolls:
// neither of tasks that a cursor passes, nor of tasks that were left earlier.
func TestAgedBesideHeldRoll(t *testing.T) { eachSet(t, agedBesideHeldRoll) }

func agedBesideHeldRoll(t *testing.T, b *bundle) {
	b.put(keepHour())
	waiting := newTask(`"waits"`)
	waiting.Delay = asyncflow.NewDuration(30 * 24 * time.Hour)
	b.submit(newTask(`1`), waiting)
	b.failAll()
	b.rollAndClear()
	late := b.submit(waiting)[0].ID
	second := b.submit(newTask(`2`))[0].ID
	b.failAll()
	b.ageAll(2 * time.Hour)
	b.exec(b.at(1, `INSERT INTO {content_waits} SELECT {number}, id, now() - interval '3 hours'
		FROM {task} WHERE type = {number}`))
	_, err := b.Cancel(t.Context(), tenant, late, "")
	require.NoError(t, err)
	b.exec(b.at(late.Position(), `INSERT INTO {content_waits} VALUES ({number}, $1,
		now() - interval '2 hours')`), late.Number)
	b.exec(b.at(late.Position(), `UPDATE {journal} SET at = at - interval '2 hours'
		WHERE type = {number} AND id = $1`), late.Number)

	held, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Rollback(context.Background()) })
	_, err = held.Exec(t.Context(), b.at(0, `SELECT FROM {rolls}
		WHERE table_set = $1 AND position = 1 FOR KEY SHARE`), b.known().Set().Name)
	require.NoError(t, err)
	_, _, err = b.BeginAging(t.Context(), tenant)
	require.NoError(t, err)
	var without []int
	sum := 0
	for range 20 {
		step, err := b.EraseAged(t.Context(), tenant, "pipe", without)
		require.NoError(t, err)
		sum += step.Done
		if step.Held {
			without = append(without, step.Roll)
			require.Zero(t, step.Done)
		} else if !step.More {
			break
		}
	}
	require.Equal(t, []int{1}, without)
	require.Equal(t, 2, sum)
	require.NotNil(t, b.task(second).Options.Erased)
	require.NotNil(t, b.task(late).Options.Erased)
	require.NoError(t, held.Rollback(t.Context()))
	b.erasesAged(1)
}
