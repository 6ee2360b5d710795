package store_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// tallied are the sums of a type's tallies.
type tallied struct {
	Submitted, Attempts, Failures, Snoozes, Succeeded, Failed, Cancelled int64
}

// tallies returns the sums of a type, and the number of their rows.
func (b *bundle) tallies(tenant, name string) (sums tallied, rows int) {
	b.t.Helper()
	err := b.db.QueryRow(b.t.Context(), `
		SELECT count(*), coalesce(sum(submitted), 0)::bigint, coalesce(sum(attempts), 0)::bigint,
		  coalesce(sum(failures), 0)::bigint, coalesce(sum(snoozes), 0)::bigint,
		  coalesce(sum(succeeded), 0)::bigint, coalesce(sum(failed), 0)::bigint,
		    coalesce(sum(cancelled), 0)::bigint
		FROM tenant_`+tenant+`.tallies WHERE type = $1`, name).
		Scan(&rows, &sums.Submitted, &sums.Attempts, &sums.Failures, &sums.Snoozes, &sums.Succeeded,
			&sums.Failed, &sums.Cancelled)
	require.NoError(b.t, err)
	return sums, rows
}

// stats returns the counts of a type of the tenant.
func (b *bundle) stats(name string) store.Stats {
	b.t.Helper()
	all, err := b.Stats(b.t.Context(), tenant, name)
	require.NoError(b.t, err)
	require.Len(b.t, all, 1)
	require.Equal(b.t, name, all[0].Type)
	return all[0]
}

// checkTallies asserts that tasks that were submitted and aren't final are live.
func (b *bundle) checkTallies(name string) {
	b.t.Helper()
	sums, _ := b.tallies(tenant, name)
	s := b.stats(name)
	require.Equal(b.t, []int64{sums.Succeeded, sums.Failed, sums.Cancelled},
		[]int64{s.Succeeded, s.Failed, s.Cancelled})
	require.Equal(b.t, sums.Submitted-s.Succeeded-s.Failed-s.Cancelled,
		s.Waiting+s.Pending+s.Running, "submitted less final, and live tasks")
	require.LessOrEqual(b.t, sums.Failures, sums.Attempts)
	require.LessOrEqual(b.t, s.Expired, s.Failed)
	require.Equal(b.t, b.expiredTasks(name), s.Expired)
}

// expiredTasks returns how many tasks of a type expired, by their journals.
func (b *bundle) expiredTasks(name string) (n int64) {
	b.t.Helper()
	t := b.kind(name)
	for _, position := range t.Rolls() {
		var some int64
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), t.SQL(position, `SELECT count(*)
			FROM {task} t, LATERAL (SELECT outcome FROM {journal}
			  WHERE type = t.type AND id = t.id ORDER BY seq DESC LIMIT 1) j
			WHERE t.type = $1 AND j.outcome = 'expired'`), t.Number()).Scan(&some))
		n += some
	}
	return n
}

// leaseAll leases n tasks; some may be due in a moment.
func (b *bundle) leaseAll(pipe *store.Type, n int) []asyncflow.Lease {
	b.t.Helper()
	var all []asyncflow.Lease
	leased := assert.Eventually(b.t, func() bool {
		all = append(all, b.lease(pipe, n-len(all))...)
		return len(all) == n
	}, patience, 20*time.Millisecond, "the tasks are due")
	if !leased {
		require.FailNow(b.t, "a lease finds nothing", b.standing(pipe))
	}
	return all
}

func (b *bundle) loseAll(pipe *store.Type, n int) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(b.t, err)
	rescued, err := b.Rescue(b.t.Context(), pipe)
	require.NoError(b.t, err)
	require.Equal(b.t, n, rescued)
}

func TestSubmitsAreCounted(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	delayed, keyed, bad := newTask(`1`), newTask(`2`), newTask(`"\u0000"`)
	delayed.Delay = asyncflow.NewDuration(time.Hour)
	keyed.Options.Key = "k"
	b.submit(newTask(`0`))
	assert.Equal(t, tallied{Submitted: 1}, first(b.tallies(tenant, "pipe")))
	b.submit(newTask(`0`), newTask(`0`), delayed)
	assert.Equal(t, tallied{Submitted: 4}, first(b.tallies(tenant, "pipe")))
	b.submit(keyed, keyed)
	b.submit(keyed)
	sums, rows := b.tallies(tenant, "pipe")
	assert.Equal(t, tallied{Submitted: 5}, sums, "a key counts once")
	assert.LessOrEqual(t, rows, 5, "a transaction adds a row, and none when it counts nothing")
	again := b.insertions(pipe, `3`, `4`)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: again[:1]}}))
	require.NoError(t, b.InsertAgain(t.Context(), pipe, again))
	assert.Equal(t, tallied{Submitted: 7}, first(b.tallies(tenant, "pipe")),
		"present tasks don't count again")
	results := b.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`4`), bad})
	require.NoError(t, results[0].Err)
	accepted := int64(8)
	if results[1].Err == nil {
		accepted++
	}
	assert.Equal(t, tallied{Submitted: accepted}, first(b.tallies(tenant, "pipe")),
		"of a batch that was split, each part counts once")
	s := b.stats("pipe")
	assert.Equal(t, []int64{1, accepted - 1, 0}, []int64{s.Waiting, s.Pending, s.Running})
	b.checkTallies("pipe")
}

func first[A, B any](a A, _ B) A { return a }

// Every way in which an attempt or a task can end is counted.
func TestEndsAreCounted(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	for i := range spec.Stages {
		spec.Stages[i].Retry.MaxAttempts = 2
	}
	pipe := b.put(spec)
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
	one := func() asyncflow.Lease {
		b.submit(newTask(`1`))
		return b.leaseAll(pipe, 1)[0]
	}
	for _, step := range []struct {
		name string
		do   func()
		want tallied
	}{
		{"released", func() {
			l := one()
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
			b.settle(pipe, b.leaseAll(pipe, 1)[0],
				asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		}, tallied{Submitted: 1, Attempts: 1, Failures: 1, Failed: 1}},
		{"both stages done, each told twice", func() {
			for range 2 {
				l := one()
				b.settle(pipe, l, done)
				b.settle(pipe, l, done) // as after a commit with a lost answer
				l = b.leaseAll(pipe, 1)[0]
				b.settle(pipe, l, done)
				b.settle(pipe, l, done)
				b.settle(pipe, l, failed) // stale
			}
		}, tallied{Submitted: 2, Attempts: 4, Succeeded: 2}},
		{"failed until there is no attempt left", func() {
			b.settle(pipe, one(), failed)
			b.settle(pipe, b.leaseAll(pipe, 1)[0], failed)
		}, tallied{Submitted: 1, Attempts: 2, Failures: 2, Failed: 1}},
		{"cancelled by the worker", func() {
			b.settle(pipe, one(), asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled})
		}, tallied{Submitted: 1, Cancelled: 1}},
		{"cancelled twice by a caller", func() {
			id := one().ID
			for range 2 {
				_, err := b.Cancel(t.Context(), tenant, id, "no")
				require.NoError(t, err)
			}
		}, tallied{Submitted: 1, Cancelled: 1}},
		{"lost until there is no attempt left", func() {
			one()
			b.loseAll(pipe, 1)
			b.leaseAll(pipe, 1)
			b.loseAll(pipe, 1)
		}, tallied{Submitted: 1, Attempts: 2, Failures: 2, Failed: 1}},
		{"a late report, told twice", func() {
			l := one()
			b.loseAll(pipe, 1)
			for range 2 {
				_, taken, err := b.SettleLate(t.Context(), pipe, l.ID, l.Seq,
					asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
				require.NoError(t, err)
				require.True(t, taken)
			}
		}, tallied{Submitted: 1, Attempts: 2, Failures: 2, Failed: 1}},
		{"redriven, and cancelled, and redriven", func() {
			id := one().ID
			b.loseAll(pipe, 1)
			b.leaseAll(pipe, 1)
			b.loseAll(pipe, 1) // failed
			_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.NoError(t, err)
			_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
			_, err = b.Cancel(t.Context(), tenant, id, "no")
			require.NoError(t, err)
			_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.NoError(t, err)
			l := b.leaseAll(pipe, 1)[0]
			b.settle(pipe, l, done)
			b.settle(pipe, b.leaseAll(pipe, 1)[0], done)
		}, tallied{Submitted: 1, Attempts: 4, Failures: 2, Succeeded: 1}},
	} {
		before, _ := b.tallies(tenant, "pipe")
		step.do()
		sums, _ := b.tallies(tenant, "pipe")
		assert.Equal(t, step.want, tallied{sums.Submitted - before.Submitted,
			sums.Attempts - before.Attempts, sums.Failures - before.Failures,
			sums.Snoozes - before.Snoozes, sums.Succeeded - before.Succeeded,
			sums.Failed - before.Failed, sums.Cancelled - before.Cancelled}, step.name)
		b.checkTallies("pipe")
		b.checkTokens("pipe")
	}
}

// A batch adds one row.
func TestABatchAddsOneRow(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	tasks := make([]asyncflow.NewTask, 100)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	b.submit(tasks...)
	_, rows := b.tallies(tenant, "pipe")
	assert.Equal(t, 1, rows)
	b.leaseAll(pipe, 100)
	b.loseAll(pipe, 100)
	sums, rows := b.tallies(tenant, "pipe")
	assert.Equal(t, 2, rows)
	assert.Equal(t, tallied{Submitted: 100, Attempts: 100, Failures: 100}, sums)
	var settled sync.WaitGroup
	for _, l := range b.leaseAll(pipe, 100) {
		settled.Add(1)
		b.Settle(tenant, asyncflow.Settlement{Lease: l,
			Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeRejected},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Fail}},
			func(r store.Settled) { assert.Equal(t, store.Settled{}, r); settled.Done() })
	}
	waitAll(t, &settled)
	sums, rows = b.tallies(tenant, "pipe")
	assert.Less(t, rows, 52)
	assert.Equal(t, tallied{Submitted: 100, Attempts: 200, Failures: 200, Failed: 100}, sums)
}

func TestStatsByTypeAndTenant(t *testing.T) {
	b := setupTwo(t)
	all, err := b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	assert.Empty(t, all)
	want := []store.Stats{}
	for n := range 51 {
		spec := twoStages()
		spec.Name = fmt.Sprintf("pipe%02d", n)
		b.put(spec)
		for range n % 3 {
			task := newTask(`1`)
			task.Type, task.Delay = spec.Name, asyncflow.NewDuration(time.Hour)
			b.submit(task)
		}
		want = append(want, store.Stats{Type: spec.Name, Waiting: int64(n % 3), Rolls: 1,
			Rates: store.Rates{Submitted: float64(n%3) / 60}})
	}
	_, _, err = b.PutTaskType(t.Context(), "other", twoStages())
	require.NoError(t, err)
	results := b.Submit(t.Context(), "other", []asyncflow.NewTask{newTask(`1`)})
	require.NoError(t, results[0].Err)
	_, err = b.Pause(t.Context(), tenant, "pipe50", "")
	require.NoError(t, err)
	want[50].Paused = true
	all, err = b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	assert.Equal(t, want, all)
	all, err = b.Stats(t.Context(), "other", "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, int64(1), all[0].Pending)
	_, err = b.Stats(t.Context(), tenant, "pipe")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// Types that share tables are counted by one statement, which doesn't grow with them: empty ones
// cost next to nothing.
func TestStatsOfManyTypesTakeOneStatement(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	for i := range 60 {
		spec.Name = fmt.Sprintf("empty-%02d", i)
		b.put(spec)
		if i == 0 {
			require.Len(t, b.StatsStatements(tenant), 1)
		}
	}
	own := withOwnSet(twoStages())
	own.Name = "own"
	b.put(own)
	spec.Name = "pipe"
	b.put(spec)
	b.submit(newTask(`1`))
	task := newTask(`2`)
	task.Type = "own"
	b.submit(task)
	statements := b.StatsStatements(tenant)
	require.Len(t, statements, 1)
	assert.Less(t, len(statements[0]), 5000)
	assert.Equal(t, 2, strings.Count(statements[0], "ready_"), "the shared table and the own one")

	all, err := b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.Len(t, all, 62)
	assert.True(t, slices.IsSortedFunc(all, func(a, b store.Stats) int {
		return strings.Compare(a.Type, b.Type)
	}))
	for _, one := range all {
		pending := int64(0)
		if one.Type == "own" || one.Type == "pipe" {
			pending = 1
		}
		assert.Equal(t, pending, one.Pending, one.Type)
	}
}

// Rates look back a minute, and a redrive doesn't lower them.
func TestRates(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	_, err := b.db.Exec(t.Context(),
		`INSERT INTO tenant_acme.tallies (type, at, submitted, attempts, failures, succeeded, failed,
			  cancelled) VALUES
		('pipe', now() - interval '90 s', 6000, 6000, 6000, 6000, 6000, 6000),
		('pipe', now() - interval '30 s', 60, 30, 12, 6, 3, 3),
		('pipe', now(), 0, 0, 0, 0, -3, 0), ('pipe', now(), 0, 0, 0, 0, 0, -3)`)
	require.NoError(t, err)
	s := b.stats("pipe")
	assert.Equal(t, store.Rates{Submitted: 1, Attempts: 0.5, Failures: 0.2, Finished: 0.2}, s.Rates)
	assert.Equal(t, []int64{6006, 6000, 6000}, []int64{s.Succeeded, s.Failed, s.Cancelled})
}

func TestOldestDue(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[1].Priority = 1800
	pipe := b.put(spec)
	assert.Zero(t, b.stats("pipe").OldestDue)
	soon := newTask(`"soon"`)
	soon.Delay = asyncflow.NewDuration(30 * time.Second)
	b.submit(soon)
	s := b.stats("pipe")
	assert.Equal(t, int64(1), s.Pending)
	assert.Zero(t, s.OldestDue, "it isn't due yet")
	urgent := newTask(`"urgent"`)
	urgent.Options.Priority = asyncflow.Priority{3600, 1800}
	id := b.submit(urgent)[0].ID
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, task.CreatedAt, b.stats("pipe").OldestDue, "a head start is no delay")
	b.settle(pipe, b.leaseAll(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	attempts, err := b.Attempts(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, attempts[0].At, b.stats("pipe").OldestDue,
		"it got there when the stage before was done")
	b.settle(pipe, b.leaseAll(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	assert.Zero(t, b.stats("pipe").OldestDue)
	_, err = b.db.Exec(t.Context(),
		`UPDATE tenant_acme.task_1 SET order_time = now() - interval '1 min',
			created_at = now() - interval '1 h' WHERE context = '"soon"'`)
	require.NoError(t, err)
	var due time.Time
	require.NoError(t, b.db.QueryRow(t.Context(),
		`UPDATE tenant_acme.ready_1 SET order_time = now() - interval '1 min'
			RETURNING order_time`).Scan(&due))
	assert.Equal(t, due, b.stats("pipe").OldestDue, "a delayed task is due from its time on")
}

// A node that doesn't know yet that a type is gone counts the others.
func TestStatsAfterADelete(t *testing.T) {
	b := setup(t)
	far, err := store.Open(t.Context(), store.Config{URL: b.url, Node: "deaf",
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(far.Close)
	spec := twoStages()
	b.put(withOwnSet(spec))
	spec.Name = "stays"
	b.put(spec)
	require.NoError(t, far.Catalog.Refresh(t.Context()))
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	all, err := far.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "stays", all[0].Type)
}

// A type that is created again counts from zero, also when a fold was under way.
func TestDeletedTalliesDontComeBack(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	b.settle(pipe, b.leaseAll(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	fold, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	takeLock(t, fold, "fold", 0)
	_, err = fold.Exec(t.Context(), `DELETE FROM tenant_acme.tallies`)
	require.NoError(t, err)
	_, err = fold.Exec(t.Context(),
		`INSERT INTO tenant_acme.tallies (type, at, submitted) VALUES ('pipe', now(), 1)`)
	require.NoError(t, err)
	deleted := make(chan error, 1)
	go func() {
		err := b.DeleteTaskType(t.Context(), tenant, "pipe", false)
		for sqlState(err) == pgerrcode.LockNotAvailable { // it waits for a moment at a time
			err = b.DeleteTaskType(t.Context(), tenant, "pipe", false)
		}
		deleted <- err
	}()
	eventually(t, "the delete waits for the fold", func() bool { return b.waiting() > 0 })
	require.NoError(t, fold.Commit(t.Context()))
	require.NoError(t, receive(t, deleted))
	b.put(twoStages())
	assert.Equal(t, store.Stats{Type: "pipe", Rolls: 1}, b.stats("pipe"))
}

// waiting counts connections that wait for a lock.
func (b *bundle) waiting() (n int) {
	b.t.Helper()
	err := b.db.QueryRow(b.t.Context(),
		`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
	require.NoError(b.t, err)
	return n
}
