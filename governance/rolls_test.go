package governance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// roll runs the job and returns how many steps it took.
func (b *bundle) roll(t *testing.T) int {
	t.Helper()
	n, err := b.jobs["roll"].Run(t.Context())
	require.NoError(t, err)
	return n
}

func (b *bundle) rolls(t *testing.T) []store.Roll {
	t.Helper()
	rolls, err := b.Rolls(t.Context(), tenant)
	require.NoError(t, err)
	return rolls
}

// back moves one of the times of all rolls back.
func back(t *testing.T, url, column, by string) {
	exec(t, url,
		fmt.Sprintf(`UPDATE tenant_acme.rolls SET %[1]s = %[1]s - interval '%[2]s'`, column, by))
}

// The job takes a full roll through its steps, each after every node got time to hear of the
// previous one.
func TestRollJob(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	spec := asyncflow.TaskType{Name: "pipe", RollRows: 1000,
		Retention: asyncflow.NewDuration(time.Hour),
		Stages:    []asyncflow.Stage{{Name: "only"}}}
	_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	known := func() *store.Type {
		pipe, err := b.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		return pipe
	}
	submit := func(n int) {
		tasks := make([]asyncflow.NewTask, n)
		for i := range tasks {
			tasks[i] = asyncflow.NewTask{Type: "pipe", Context: []byte(`1`)}
		}
		for _, r := range b.Submit(t.Context(), tenant, tasks) {
			require.NoError(t, r.Err)
		}
	}
	submit(999)
	exec(t, url, `UPDATE tenant_acme.rolls SET next_number = 100000`)
	require.Zero(t, b.roll(t), "numbers have gaps: it is judged by its size")
	submit(1)
	require.Equal(t, 1, b.roll(t), "opened")
	require.Equal(t, 2, known().End)
	require.Zero(t, b.roll(t), "not every node knows of it yet")
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Zero(t, b.roll(t), "tasks are left")
	for left := 1000; left > 0; {
		leases, _, err := b.Lease(t.Context(), known(), 1000)
		require.NoError(t, err)
		left -= len(leases)
		for _, l := range leases {
			settle(t, b, known(), l)
		}
	}
	require.Equal(t, 1, b.roll(t), "drained")
	require.Equal(t, 2, known().Begin)
	require.Zero(t, b.roll(t), "not every node knows of that yet")
	back(t, url, "drained_at", "10 s")
	require.Equal(t, 1, b.roll(t), "cleared")
	require.Equal(t, 1, b.roll(t), "idle")
	require.Zero(t, b.roll(t), "its tasks are kept for an hour")
	back(t, url, "sealed_at", "2 h")
	require.Zero(t, b.roll(t), "its tasks have ended just now")
	back(t, url, "idle_since", "2 h")
	require.Equal(t, 1, b.roll(t), "dropped")
	rolls := b.rolls(t)
	require.Len(t, rolls, 1)
	assert.Equal(t, 2, rolls[0].Position)
}

// An old roll that isn't empty is followed by another, but not while its lock is taken.
func TestRollJobByAge(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	back(t, url, "opened_at", "31 days")
	require.Zero(t, b.roll(t), "it is empty")
	leases := b.submitAndLease(t, pipe, 1)
	require.Equal(t, 1, b.roll(t))
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Equal(t, 1, b.roll(t), "drained: what is leased holds nothing")
	settle(t, b, pipe, leases[0])
	task, err := b.Task(t.Context(), tenant, leases[0].ID)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
}

// A type with a new searchable field gets the next roll soon, but not one for each change.
func TestRollJobOpensForSearchableFields(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	searchable := func(fields ...string) {
		b.put(t, asyncflow.TaskType{Name: "pipe", Searchable: fields})
	}
	back(t, url, "opened_at", "11 min")
	require.Zero(t, b.roll(t))
	searchable("user")
	require.Equal(t, 1, b.roll(t), "opened, without any task")
	require.Len(t, b.rolls(t), 2)
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Equal(t, 1, b.roll(t), "drained")
	searchable("user", "tags")
	back(t, url, "drained_at", "10 s")
	require.Equal(t, 1, b.roll(t), "cleared, but the open one is younger than 10 minutes")
	require.Len(t, b.rolls(t), 2)
	back(t, url, "opened_at", "10 min")
	b.roll(t)
	rolls := b.rolls(t)
	require.Equal(t, 3, rolls[len(rolls)-1].Position)
	back(t, url, "opened_at", "1 h")
	b.roll(t)
	b.roll(t)
	rolls = b.rolls(t)
	require.Equal(t, 3, rolls[len(rolls)-1].Position, "all fields count")
}

// In another incarnation of the database each type gets a roll, even without tasks.
func TestRollJobInAnotherIncarnation(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	require.Zero(t, b.roll(t))
	exec(t, url, `UPDATE tenant_acme.rolls SET history = 'lost'`)
	require.Equal(t, 1, b.roll(t), "opened")
	require.Zero(t, b.roll(t))
	rolls := b.rolls(t)
	require.Len(t, rolls, 2)
	assert.True(t, rolls[0].Lost)
	assert.False(t, rolls[1].Lost)
}

// While tasks come and go, the rolls of a tenant are left alone as long as none can become full,
// unless its configuration changes or announcements may have been missed, as in a failover.
func TestRollJobLeavesBusyTenantsAlone(t *testing.T) {
	t.Parallel()
	for why, news := range map[string]func(*testing.T, *bundle){
		"the configuration has changed": func(t *testing.T, b *bundle) { b.pipe(t, "other") },
		"announcements may have been missed": func(t *testing.T, b *bundle) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- b.Run(ctx) }() // it begins to listen
			t.Cleanup(func() {
				cancel()
				require.NoError(t, <-done)
			})
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t, prepare)
			b := setupOn(t, store.Config{URL: url, Node: "a", Notify: true}, governance.Config{})
			b.gov.LeaveRollsAlone()
			b.pipe(t, "pipe")
			require.Zero(t, b.roll(t))
			require.NoError(t, b.Submit(t.Context(), tenant,
				[]asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)}})[0].Err)
			exec(t, url, `UPDATE tenant_acme.rolls SET history = 'lost'`)
			require.Zero(t, b.roll(t), "no roll can become full within a minute")
			news(t, b)
			require.Eventually(t, func() bool { return b.roll(t) == 1 }, governance.CalmRolls/2,
				10*time.Millisecond)
		})
	}
}

// A task that waits, for others or for its time, keeps the tables of its roll. The job looks at
// that roll when the task goes on, not at each run.
func TestRollJobLeavesWaitingTasksAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.pipe(t, "other")
	waiting := b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
		DependsOn: []asyncflow.Dependency{{Type: "other", Key: "never"}}}})[0]
	require.NoError(t, waiting.Err)
	back(t, url, "opened_at", "31 days")
	require.Equal(t, 1, b.roll(t), "opened")
	back(t, url, "opened_at", "10 s")
	require.Equal(t, 1, b.roll(t), "sealed")
	require.Equal(t, 1, b.roll(t), "drained")
	back(t, url, "drained_at", "10 s")
	require.Equal(t, 1, b.roll(t), "cleared")
	require.Equal(t, 1, b.roll(t), "the waiting task is noted")

	b.gov.LeaveRollsAlone()
	require.Zero(t, b.roll(t), "a task waits")
	exec(t, url, `UPDATE tenant_acme.rolls SET history = 'lost' WHERE position = 2`)
	require.Zero(t, b.roll(t), "nobody looks")
	exec(t, url, `UPDATE tenant_acme.rolls SET history = r.history FROM tenant_acme.rolls r
		WHERE r.position = 1`)
	_, err := b.Cancel(t.Context(), tenant, waiting.ID, "")
	require.NoError(t, err)
	b.gov.VisitBusyRolls()
	require.Eventually(t, func() bool { return b.roll(t) == 1 }, 2*time.Minute, 10*time.Millisecond)
	assert.NotZero(t, b.rolls(t)[0].IdleSince)
}

// A waiting task keeps its own roll and the next ones, but not the ended tasks in them.
func TestRollJobCompacts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.pipe(t, "other")
	var ended []asyncflow.TaskID
	end := func() {
		leases := b.submitAndLease(t, pipe, 1)
		settle(t, b, pipe, leases[0])
		ended = append(ended, leases[0].ID)
	}
	settled := func() { // takes all steps that are due, with the time that they need
		t.Helper()
		for n := 1; n > 0; {
			n = b.roll(t)
			exec(t, url, `UPDATE tenant_acme.rolls SET drained_at = drained_at - interval '1 h',
				sealed_at = sealed_at - interval '1 h', opened_at = opened_at - interval '1 h'`)
			n += b.roll(t)
		}
	}
	waiting := b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`),
		DependsOn: []asyncflow.Dependency{{Type: "other", Key: "never"}}}})[0]
	require.NoError(t, waiting.Err)
	for range 2 {
		end()
		back(t, url, "opened_at", "31 days")
		settled()
	}
	require.Len(t, b.rolls(t), 3)
	for _, id := range ended {
		_, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err, "it is kept for half a year")
	}
	back(t, url, "remaining_since", "181 days")
	settled()
	require.Len(t, b.rolls(t), 3)
	for _, id := range ended {
		_, err := b.Task(t.Context(), tenant, id)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}

	_, err := b.Cancel(t.Context(), tenant, waiting.ID, "")
	require.NoError(t, err)
	settled()
	back(t, url, "idle_since", "181 days")
	settled()
	require.Len(t, b.rolls(t), 1, "dropped")
}

// A roll with too many waiting tasks to be compacted is trimmed, once the retention of tasks is
// over that ended before it was drained. Between two passes it is left alone.
func TestRollJobTrims(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	leases := b.submitAndLease(t, pipe, 1)
	settle(t, b, pipe, leases[0])
	exec(t, url, `INSERT INTO tenant_acme.wait
		(type, id, seq, stage, attempt, order_time, until, reason)
		SELECT number, (1::bigint << 40) + 1500000 + n, 1, 'only', 1, now(),
		  now() + interval '1 year', 'delayed'
		FROM tenant_acme.task_types, generate_series(1, 10001) n WHERE name = 'pipe'`)
	back(t, url, "opened_at", "31 days")
	for range 3 { // opened, sealed, drained
		b.roll(t)
		back(t, url, "opened_at", "1 h")
	}
	back(t, url, "drained_at", "10 s")
	require.Equal(t, 1, b.roll(t), "cleared")
	require.Zero(t, b.rolls(t)[0].TrimAt)
	require.Equal(t, 1, b.roll(t), "the trimming is planned")
	r := b.rolls(t)[0]
	require.Equal(t, r.DrainedAt.Add(180*24*time.Hour), r.TrimAt)
	rolls, _, err := b.TypeRolls(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Equal(t, r.TrimAt, rolls[len(rolls)-1].CompactsAt)
	require.Zero(t, b.roll(t), "it isn't due")
	_, err = b.Task(t.Context(), tenant, leases[0].ID)
	require.NoError(t, err)

	exec(t, url, `UPDATE tenant_acme.journal_1 SET at = at - interval '181 days'`)
	back(t, url, "trim_at", "181 days")
	b.gov.VisitBusyRolls()
	require.Equal(t, 1, b.roll(t), "trimmed")
	_, err = b.Task(t.Context(), tenant, leases[0].ID)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	r = b.rolls(t)[0]
	require.WithinDuration(t, b.Clock.Now().Add(24*time.Hour), r.TrimAt, time.Hour, "the next pass")
	require.Zero(t, b.roll(t))
}

// A roll that could become full soon isn't left alone.
func TestRollJobLooksAtSmallRolls(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.gov.LeaveRollsAlone()
	pipe := b.put(t, asyncflow.TaskType{Name: "pipe", RollRows: 1000,
		Stages: []asyncflow.Stage{{Name: "only"}}})
	for b.roll(t) > 0 {
	}
	b.submitAndLease(t, pipe, 1000)
	require.Eventually(t, func() bool { return b.roll(t) == 1 }, governance.CalmRolls/2,
		10*time.Millisecond)
}

func settle(t *testing.T, b *bundle, pipe *store.Type, l asyncflow.Lease) {
	t.Helper()
	done := make(chan store.Settled, 1)
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	b.Settle(tenant,
		asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(pipe.TaskType, l, o,
				b.Clock.Now())}, func(r store.Settled) { done <- r })
	require.NoError(t, (<-done).Err)
}

// The job gives a type tables of its own once it asks for them, opens the next shared roll, so that
// the type needn't look at both for long, and keeps the roll that it left for its retention. When
// it no longer asks for them, it goes back at its next roll, and its tables are dropped.
func TestRollJobMovesTypes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	put := func(name string, retention time.Duration) {
		t.Helper()
		spec := asyncflow.TaskType{Name: name, Retention: asyncflow.NewDuration(retention),
			Stages: []asyncflow.Stage{{Name: "only"}}}
		_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
		require.NoError(t, err)
	}
	submit := func(name string) asyncflow.TaskID {
		t.Helper()
		r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: name, Context: []byte(`1`)}})[0]
		require.NoError(t, r.Err)
		return r.ID
	}
	cancel := func(id asyncflow.TaskID) {
		t.Helper()
		_, err := b.Cancel(t.Context(), tenant, id, "")
		require.NoError(t, err)
	}
	settled := func() { // takes all steps that are due, with the time that they need
		t.Helper()
		for n := 1; n > 0; {
			n = b.roll(t)
			exec(t, url, `UPDATE tenant_acme.rolls SET drained_at = drained_at - interval '1 h',
				sealed_at = sealed_at - interval '1 h', opened_at = opened_at - interval '1 h'`)
			n += b.roll(t)
		}
	}
	year := 360 * 24 * time.Hour
	put("stays", 0)
	put("moves", 0)
	kept, old := submit("moves"), submit("stays")
	cancel(kept)
	cancel(old)
	put("moves", year)
	settled()
	moves, err := b.Catalog.Type(tenant, "moves")
	require.NoError(t, err)
	require.Equal(t, "moves", moves.Set().Name)
	require.Equal(t, 2, b.Catalog.SetsOf(tenant)[""].End, "the roll that it left is not open")
	require.Equal(t, 2, b.Catalog.SetsOf(tenant)[""].Begin)
	require.Equal(t, 2, submit("moves").Position())

	back(t, url, "idle_since", "200 days")
	settled()
	for _, id := range []asyncflow.TaskID{kept, old} {
		_, err = b.Task(t.Context(), tenant, id)
		require.NoError(t, err, "one of its types keeps its tasks for a year")
	}
	back(t, url, "idle_since", "200 days")
	settled()
	for _, id := range []asyncflow.TaskID{kept, old} {
		_, err = b.Task(t.Context(), tenant, id)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}

	put("moves", asyncflow.DefaultRetention)
	back(t, url, "opened_at", "40 days")
	settled()
	moves, err = b.Catalog.Type(tenant, "moves")
	require.NoError(t, err)
	require.True(t, moves.Set().Shared())
	require.Equal(t, 3, submit("moves").Position(), "the shared set had to go ahead")
}

// Rows of a deleted type vanish from the shared tables.
func TestRollJobDeletesRows(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	for _, name := range []string{"goes", "stays"} {
		spec := asyncflow.TaskType{Name: name, Stages: []asyncflow.Stage{{Name: "only"}}}
		_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
		require.NoError(t, err)
		tasks := make([]asyncflow.NewTask, 1000)
		for i := range tasks {
			tasks[i] = asyncflow.NewTask{Type: name, Context: []byte(`1`)}
		}
		for range 3 {
			for _, r := range b.Submit(t.Context(), tenant, tasks) {
				require.NoError(t, r.Err)
			}
		}
	}
	exec(t, url, `DELETE FROM tenant_acme.ready_1
		WHERE type = (SELECT number FROM tenant_acme.task_types WHERE name = 'goes')`)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "goes", false))
	b.roll(t)
	require.Equal(t, 3000, count(t, url, `SELECT count(*) FROM tenant_acme.task_1`))
	require.Zero(t, count(t, url, `SELECT count(*) FROM tenant_acme.deleted_types`))
	require.Zero(t, b.roll(t))
}

// count returns the number that a statement returns.
func count(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
	return n
}
