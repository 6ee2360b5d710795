package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// tick runs rounds through the schedules until none is due, and returns how many tasks they
// submitted.
func (b *bundle) tick() (tasks int) {
	b.t.Helper()
	var failed []string
	for {
		step, err := b.TickSchedules(b.t.Context(), tenant, b.Submit, failed)
		require.NoError(b.t, err)
		tasks, failed = tasks+step.Tasks, append(failed, step.Failed...)
		if step.Schedules == 0 {
			return tasks
		}
	}
}

// overdue sets a minutely schedule's next tick to d before the last due tick, and returns the
// last due tick.
func (b *bundle) overdue(name string, d time.Duration) time.Time {
	b.t.Helper()
	starts := b.schedule(name).StartsAt
	last := starts.Add(b.Clock.Now().Sub(starts).Truncate(time.Minute))
	b.exec(`UPDATE tenant_acme.schedules SET next_at = $2 WHERE name = $1`, name, last.Add(-d))
	return last
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// keys returns the keys of all tasks, sorted.
func (b *bundle) keys() (keys []string) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(),
		`SELECT coalesce(options->>'key', '') FROM tenant_acme.task_1 ORDER BY 1`)
	require.NoError(b.t, err)
	keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return keys
}

func tickKey(name string, tick time.Time) string {
	return "schedule/" + name + "/" + tick.UTC().Format(time.RFC3339)
}

// A due tick gets its task: of the template, with a key that names the tick.
func TestTick(t *testing.T) {
	b := setupTwo(t)
	pipe := b.put(twoStages())
	s := b.minutely()
	s.Priority, s.Retry = asyncflow.Priority{60}, &asyncflow.RetryPolicy{MaxAttempts: 7}
	s.Labels = asyncflow.Labels{User: "ada", Tags: []string{"eu"},
		Metadata: map[string]string{"order": "17"}}
	s.OnFinal = b.told()
	b.putSchedule(s)
	first, err := b.FirstTicks(t.Context(), []string{tenant, "other"})
	require.NoError(t, err)
	assert.Len(t, first, 1)
	assert.True(t, first[tenant].Equal(b.schedule(s.Name).NextAt))
	assert.Zero(t, b.tick(), "it is not due")
	last := b.overdue(s.Name, 0)
	first, err = b.FirstTicks(t.Context(), []string{tenant})
	require.NoError(t, err)
	assert.True(t, first[tenant].Equal(last))
	assert.Equal(t, 1, b.tick())
	assert.Zero(t, b.tick())
	stored := b.schedule(s.Name)
	assert.Equal(t, []time.Time{last, last.Add(time.Minute)},
		[]time.Time{stored.LastAt.UTC(), stored.NextAt.UTC()})
	task, err := b.Task(t.Context(), tenant, stored.LastID)
	require.NoError(t, err)
	assert.Equal(t,
		asyncflow.Options{Key: tickKey(s.Name, last), Priority: s.Priority, Retry: s.Retry,
			Labels: s.Labels, OnFinal: s.OnFinal},
		task.Options)
	leases := b.lease(pipe, 10)
	require.Len(t, leases, 1)
	assert.Equal(t, `{"a": 1.0}`, string(leases[0].Context))
	assert.Equal(t, 1,
		b.count(`SELECT count(*) FROM tenant_acme.idempotency_keys
			WHERE expires_at < now() + interval '25 h'`), "the key has done its duty")
}

// If a node dies between the submit of a task and the update of its schedule, there is no second
// task, however long ago it was, and whatever was changed since.
func TestTickAfterACrash(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	s := b.minutely()
	b.putSchedule(s)
	last := b.overdue(s.Name, 0)
	b.exec(`CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'crash'; END $$`)
	b.exec(`CREATE TRIGGER crash BEFORE UPDATE ON tenant_acme.schedules
		FOR EACH ROW EXECUTE FUNCTION crash()`)
	_, err := b.TickSchedules(t.Context(), tenant, b.Submit, nil)
	require.ErrorContains(t, err, "crash")
	require.Equal(t, []string{tickKey(s.Name, last)}, b.keys(), "the task is there")
	require.Equal(t, last, b.schedule(s.Name).NextAt.UTC(), "and its schedule knows nothing of it")
	assert.Equal(t, 1,
		b.count(`SELECT count(*) FROM tenant_acme.idempotency_keys
			WHERE expires_at > now() + interval '179 d'`))
	b.exec(`DROP TRIGGER crash ON tenant_acme.schedules`)
	assert.Equal(t, 1, b.tick())
	stored := b.schedule(s.Name)
	assert.Equal(t, last, stored.LastAt.UTC())
	id := stored.LastID
	b.overdue(s.Name, 0) // again, and now with another context
	s.Context = json.RawMessage(`2`)
	b.putSchedule(s)
	assert.Equal(t, 1, b.tick())
	assert.Equal(t, id, b.schedule(s.Name).LastID)
	assert.Equal(t, []string{tickKey(s.Name, last)}, b.keys())
}

// While tasks can't be written, a round ends before Postgres ends its idle transaction: the
// schedule says why there is no task, and gets one later.
func TestTickWhileTasksCannotBeWritten(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	s := b.minutely()
	b.putSchedule(s)
	last := b.overdue(s.Name, 0)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE tenant_acme.task_1`)
	require.NoError(t, err)
	eventually(t, "the schedule says why", func() bool {
		step, err := b.TickSchedules(t.Context(), tenant, b.Submit, nil)
		return err == nil && slices.Equal(step.Failed, []string{s.Name})
	})
	failed := b.schedule(s.Name)
	assert.NotEmpty(t, failed.LastError)
	assert.Equal(t, last, failed.NextAt.UTC())
	require.NoError(t, tx.Rollback(t.Context()))
	eventually(t, "it has its task", func() bool { return b.tick() > 0 })
	assert.Empty(t, b.schedule(s.Name).LastError)
	assert.Len(t, b.keys(), 1)
}

// Nodes that tick the same schedules, die in the middle and come back make one task for each
// tick.
func TestTicksOfSeveralNodes(t *testing.T) {
	longform.Costly(t)
	schedules, seconds := longform.Size(3, 6), longform.Size(150, 400)
	brief := longform.Size(4, 8) // the number of short lives of each node
	b := setup(t)
	b.put(twoStages())
	first := b.Clock.Now().Truncate(time.Second).Add(-time.Duration(seconds) * time.Second)
	s := asyncflow.Schedule{Type: "pipe", Context: json.RawMessage(`1`),
		Every: asyncflow.NewDuration(time.Second), StartsAt: first,
		CatchUp: asyncflow.CatchUpAll, CatchUpLimit: 1000}.WithDefaults()
	for i := range schedules {
		s.Name = fmt.Sprint("s", i)
		b.putSchedule(s)
	}
	b.exec(`UPDATE tenant_acme.schedules SET next_at = $1`, first)
	var nodes sync.WaitGroup
	var cut atomic.Int32
	behind := func() bool {
		return b.count(`SELECT count(*) FROM tenant_acme.schedules
			WHERE next_at < now() - interval '2 s'`) > 0
	}
	for n := range 3 {
		nodes.Go(func() {
			for life := range brief {
				cfg := store.Config{URL: b.url, Node: fmt.Sprintf("node-%d-%d", n, life), Pool: 2,
					HotPool: 2, NoRoles: pgtest.NoRoles()}
				node, err := store.Open(t.Context(), cfg)
				if !assert.NoError(t, err) {
					return
				}
				committer := dispatcher.NewCommitter(node, nil)
				lives := time.Duration(20+50*((3*n+life)%7)) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), lives)
				for ctx.Err() == nil {
					if _, err := node.TickSchedules(ctx, tenant, committer.Submit,
						nil); err != nil {
						cut.Add(1)
					}
				}
				cancel()
				committer.Close()
				node.Close()
			}
		})
	}
	waitAll(t, &nodes)
	// One that stays goes on until all is done, also what a node that died still locks.
	require.Eventually(t, func() bool { b.tick(); return !behind() }, patience, 10*time.Millisecond)
	t.Logf("%d rounds were cut off", cut.Load())
	keys := b.keys()
	assert.Len(t, slices.Compact(slices.Clone(keys)), len(keys), "a tick with two tasks")
	for i := range schedules {
		last := b.schedule(fmt.Sprint("s", i))
		want := int(last.LastAt.Sub(first)/time.Second) + 1
		assert.GreaterOrEqual(t, want, seconds)
		n := 0
		for _, key := range keys {
			if strings.HasPrefix(key, "schedule/"+last.Name+"/") {
				n++
			}
		}
		assert.Equal(t, want, n, "of %s: a tick without a task", last.Name)
	}
	b.checkTokens("pipe")
}

// A round skips schedules that another node holds locked. It submits nothing after the answer to a
// deletion, a pause or a change of the type.
func TestTickGivesWay(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.putSchedule(b.minutely())
	b.overdue("minutely", 0)
	for _, lock := range []string{"schedules WHERE name = 'minutely'",
		"task_types WHERE name = 'pipe'"} {
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.`+lock+` FOR UPDATE`)
		require.NoError(t, err)
		step, err := b.TickSchedules(t.Context(), tenant, b.Submit, nil)
		require.NoError(t, err)
		assert.Equal(t, store.Ticked{}, step, lock)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	assert.Equal(t, 1, b.tick())
}

func TestCatchUp(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for name, c := range map[string]struct {
		policy asyncflow.CatchUp
		limit  int
		late   time.Duration
		want   int // tasks, the latest ones
	}{
		"none":      {asyncflow.CatchUpNone, 1, 10 * time.Minute, 0},
		"last":      {asyncflow.CatchUpLast, 1, 10 * time.Minute, 1},
		"all":       {asyncflow.CatchUpAll, 100, 10 * time.Minute, 11},
		"all-up-to": {asyncflow.CatchUpAll, 4, 10 * time.Minute, 4},
		// more than one round takes
		"all-of-a-day": {asyncflow.CatchUpAll, 1000, 24 * time.Hour, 1000},
		"on-time":      {asyncflow.CatchUpNone, 1, 0, 1},
	} {
		s := b.minutely()
		s.Name, s.CatchUp, s.CatchUpLimit = name, c.policy, c.limit
		b.putSchedule(s)
		last := b.overdue(name, c.late)
		assert.Equal(t, c.want, b.tick(), name)
		var want, got []string
		for i := range c.want {
			want = append(want, tickKey(name, last.Add(-time.Duration(c.want-1-i)*time.Minute)))
		}
		for _, key := range b.keys() {
			if strings.HasPrefix(key, "schedule/"+name+"/") {
				got = append(got, key)
			}
		}
		assert.Equal(t, want, got, name)
		assert.Equal(t, last.Add(time.Minute), b.schedule(name).NextAt.UTC(), name)
	}
}

func TestOverlap(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for name, c := range map[string]struct {
		overlap asyncflow.Overlap
		final   bool // the task before
		want    []asyncflow.Status
		skipped int64
	}{
		"queue": {asyncflow.OverlapQueue, false,
			[]asyncflow.Status{"pending", "pending"}, 0},
		"skip": {asyncflow.OverlapSkip, false, []asyncflow.Status{"pending"}, 1},
		"skip-none": {asyncflow.OverlapSkip, true,
			[]asyncflow.Status{"cancelled", "pending"}, 0},
		"replace": {asyncflow.OverlapReplace, false,
			[]asyncflow.Status{"cancelled", "pending"}, 0},
		"replace-none": {asyncflow.OverlapReplace, true,
			[]asyncflow.Status{"cancelled", "pending"}, 0},
	} {
		s := b.minutely()
		s.Name, s.Overlap = name, c.overlap
		b.putSchedule(s)
		before := b.submit(b.schedule(name).Task())[0]
		b.exec(`UPDATE tenant_acme.schedules SET last_id = $2 WHERE name = $1`, name,
			before.ID.Number)
		if c.final {
			_, err := b.Cancel(t.Context(), tenant, before.ID, "by hand")
			require.NoError(t, err)
		}
		last := b.overdue(name, 0)
		b.tick()
		stored := b.schedule(name)
		var got []asyncflow.Status
		for _, id := range []asyncflow.TaskID{before.ID, stored.LastID} {
			task, err := b.Task(t.Context(), tenant, id)
			require.NoError(t, err)
			got = append(got, task.Status)
			if name == "replace" && id == before.ID {
				assert.Equal(t, "replaced by the next task of schedule replace", task.Error)
			}
		}
		if before.ID == stored.LastID {
			got = got[:1]
		}
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.skipped, stored.Skipped, name)
		assert.Equal(t, c.skipped > 0, stored.SkippedAt.Equal(last), name)
		assert.Equal(t, last.Add(time.Minute), stored.NextAt.UTC(), name)
	}
	b.checkTokens("pipe")
}

// When it catches up, a schedule that skips or replaces makes one task.
func TestOverlapWhileCatchingUp(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for name, wanted := range map[asyncflow.Overlap]int{asyncflow.OverlapSkip: 5,
		asyncflow.OverlapReplace: 0} {
		s := b.minutely()
		s.Name, s.Overlap, s.CatchUp = string(name), name, asyncflow.CatchUpAll
		b.putSchedule(s)
		last := b.overdue(s.Name, 5*time.Minute)
		assert.Equal(t, 1, b.tick(), name)
		stored := b.schedule(s.Name)
		assert.Equal(t, last.Add(-time.Duration(wanted)*time.Minute), stored.LastAt.UTC(), name)
		assert.EqualValues(t, 5, stored.Skipped, name)
	}
}

// A failing schedule doesn't affect others: it stays due, and gets its task later.
func TestTickThatFails(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	other := withOwnSet(twoStages())
	other.Name = "other"
	table := fill(b.put(other), 2, "{task}")
	for i := range 60 {
		s := b.minutely()
		s.Name, s.Type = fmt.Sprint("s", i), []string{"pipe", "other"}[i%2]
		b.putSchedule(s)
		b.overdue(s.Name, 0)
	}
	b.exec(`ALTER TABLE ` + table + ` RENAME TO away`)
	assert.Equal(t, 30, b.tick())
	assert.Equal(t, 30, b.count(`SELECT count(*) FROM tenant_acme.schedules WHERE next_at < now()`))
	failed, err := b.Schedule(t.Context(), tenant, "s1")
	require.NoError(t, err)
	assert.NotEmpty(t, failed.LastError)
	since := failed.FailedAt
	assert.False(t, since.IsZero())
	assert.Equal(t, 30, b.count(`SELECT count(*) FROM tenant_acme.schedules WHERE last_error = ''`))
	b.tick()
	failed, err = b.Schedule(t.Context(), tenant, "s1")
	require.NoError(t, err)
	assert.Equal(t, since, failed.FailedAt, "since it failed first")
	b.exec(`ALTER TABLE tenant_acme.away RENAME TO task_other_2`)
	assert.Equal(t, 30, b.tick())
	assert.Len(t, b.keys(), 30)
	healed, err := b.Schedule(t.Context(), tenant, "s1")
	require.NoError(t, err)
	assert.Empty(t, healed.LastError)
	assert.Zero(t, healed.FailedAt)
}

// Another type or other times drop the due ticks of the old ones; another context doesn't.
func TestChangeOfADueSchedule(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	s := b.minutely()
	b.putSchedule(s)
	b.overdue(s.Name, 0)
	s.EndsAt = s.StartsAt.AddDate(1, 0, 0)
	b.putSchedule(s)
	assert.Zero(t, b.tick())
	b.overdue(s.Name, 0)
	s.Context = json.RawMessage(`2`)
	b.putSchedule(s)
	assert.Equal(t, 1, b.tick())
	assert.NotZero(t, b.schedule(s.Name).LastID)
	other := twoStages()
	other.Name = "other"
	b.put(other)
	s.Type = "other"
	b.overdue(s.Name, 0)
	assert.Zero(t, b.putSchedule(s).LastID)
	assert.Zero(t, b.tick())
	require.NoError(t, b.DeleteSchedule(t.Context(), tenant, s.Name))
}

// The lifetime of a schedule's task counts from its tick. A tick that comes too late for it is
// submitted, and fails as expired: it doesn't stop the schedule.
func TestTickWithLifetime(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	s := b.minutely()
	s.StartBy, s.EndBy = within(time.Hour, 2*time.Hour).StartBy, within(0, 2*time.Hour).EndBy
	b.putSchedule(s)
	last := b.overdue(s.Name, 0)
	require.Equal(t, 1, b.tick())
	task := b.task(b.schedule(s.Name).LastID)
	assert.Equal(t, []time.Time{last.Add(time.Hour), last.Add(2 * time.Hour)},
		[]time.Time{task.Options.Lifetime.StartBy.UTC(), task.Options.Lifetime.EndBy.UTC()})
	require.Len(t, b.lease(pipe, 10), 1)

	s.Name, s.StartBy = "late", within(time.Millisecond, 0).StartBy
	b.putSchedule(s)
	b.overdue(s.Name, 0)
	require.Equal(t, 1, b.tick())
	stored := b.schedule(s.Name)
	assert.Empty(t, stored.LastError)
	b.expireTasks()
	b.expired(stored.LastID, "begun")
}
