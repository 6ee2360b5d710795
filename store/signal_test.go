package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// approval is a type in which the second stage waits for a signal.
func approval() asyncflow.TaskType {
	t := twoStages()
	t.Stages = []asyncflow.Stage{t.Stages[0], waiting("wait", "approved"), t.Stages[1]}
	return t.WithDefaults()
}

// waiting is a stage that waits for a signal for an hour.
func waiting(name, signal string) asyncflow.Stage {
	return asyncflow.Stage{Name: name, Mode: asyncflow.ModeWait,
		Wait: &asyncflow.Wait{Signal: signal, Timeout: asyncflow.NewDuration(time.Hour)}}
}

// await makes the next task in line wait for its signal, as a dispatcher does.
func (b *bundle) await() {
	b.t.Helper()
	l := b.leaseAll(b.known(), 1)[0]
	wait := b.known().WaitOf(l.Stage)
	require.NotNil(b.t, wait, l.Stage)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeAwaits, Awaits: wait})
}

// signal sends a signal to a task.
func (b *bundle) signal(id asyncflow.TaskID, name, data string) asyncflow.SentSignal {
	b.t.Helper()
	sent, err := b.SendSignal(b.t.Context(), tenant, asyncflow.Signal{Name: name,
		Task: id.String(), Data: json.RawMessage(data)})
	require.NoError(b.t, err)
	return sent
}

// beforeWait submits a task that passed its first stage.
func (b *bundle) beforeWait(task asyncflow.NewTask) asyncflow.TaskID {
	b.t.Helper()
	id := b.submit(task)[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("wait", `"first"`))
	return id
}

// timeUp ends the time of all waits.
func (b *bundle) timeUp() {
	b.t.Helper()
	b.exec(`UPDATE tenant_acme.signal_waits SET until = until - interval '2 h'`)
	_, _, err := b.SweepFollowUps(b.t.Context(), tenant)
	require.NoError(b.t, err)
	b.followUp()
}

// left returns how many signals, and waits for them, are left.
func (b *bundle) leftSignals() []int {
	b.t.Helper()
	return []int{b.count(`SELECT count(*) FROM tenant_acme.signals WHERE NOT taken`),
		b.count(`SELECT count(*) FROM tenant_acme.signal_waits`)}
}

// A signal that comes before its task waits, or after, moves it on with its data.
func TestASignalMovesATaskOn(t *testing.T) { eachSet(t, testASignalMovesATaskOn) }

func testASignalMovesATaskOn(t *testing.T, b *bundle) {
	b.put(approval())
	for _, early := range []bool{true, false} {
		id := b.beforeWait(newTask(`{"n": 1}`))
		if early {
			b.signal(id, "approved", `{"by":  "anna", "n": 1e2}`)
			b.followUp()
		}
		b.await()
		if !early {
			b.followUp()
			task := b.comesTo(id, asyncflow.StatusWaiting)
			require.Equal(t, asyncflow.WaitSignal, task.WaitsFor)
			require.Equal(t, "approved", task.Signal.Name)
			require.WithinDuration(t, b.Clock.Now().Add(time.Hour), task.Signal.Until, time.Minute)
			sent := b.signal(id, "approved", `{"by":  "anna", "n": 1e2}`)
			require.Equal(t, []any{id.String(), false}, []any{sent.Task, sent.Existing})
			require.WithinDuration(t, b.Clock.Now().Add(asyncflow.DefaultKeep), sent.KeptUntil,
				time.Minute)
		}
		b.followUp()
		l := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, []any{"second", 1}, []any{l.Stage, l.Attempt})
		require.Equal(t, `{"by":  "anna", "n": 1e2}`, string(l.Context), "byte for byte")
		require.Equal(t, []int{0, 0}, b.leftSignals())
		b.settle(b.known(), l, goodEnd)
		attempts, err := b.Attempts(t.Context(), tenant, id)
		require.NoError(t, err)
		require.Len(t, attempts, 4)
		require.Equal(t, []any{asyncflow.OutcomeSignalled, "signal:approved"},
			[]any{attempts[2].Outcome, attempts[2].Endpoint})
	}
	require.Equal(t, tallied{Submitted: 2, Attempts: 4, Succeeded: 2}, sumTallies(b))
	b.checkTokens("pipe")
}

// Signals of one name queue in their order: one visit takes one.
func TestSignalsQueue(t *testing.T) {
	b := setup(t)
	spec := approval()
	spec.Stages[1].Next = []string{"wait2"}
	spec.Stages = append(spec.Stages, waiting("wait2", "approved"))
	spec.Stages[2].Next = []string{asyncflow.NextFinish}
	spec.Stages[3].Next = []string{"second"}
	b.put(spec)
	id := b.beforeWait(newTask(`1`))
	for i := range 3 {
		b.signal(id, "approved", fmt.Sprint(i))
	}
	b.await()
	b.followUp()
	b.await()
	b.followUp()
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []string{"second", "1"}, []string{l.Stage, string(l.Context)})
	require.Equal(t, []int{1, 0}, b.leftSignals())
}

// A signal to a key is for the task that holds it, held it, or will hold it.
func TestSignalsByKey(t *testing.T) {
	b := setup(t)
	b.put(approval())
	send := func(key string) (asyncflow.SentSignal, error) {
		return b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved", Type: "pipe",
			Key: key, Data: json.RawMessage(`"` + key + `"`)})
	}
	task := func(key string) asyncflow.NewTask {
		one := newTask(`1`)
		one.Options.Key = key
		return one
	}
	moves := func(key string) {
		t.Helper()
		b.followUp()
		l := b.leaseAll(b.known(), 1)[0]
		require.Equal(t, []string{"second", `"` + key + `"`}, []string{l.Stage, string(l.Context)})
		b.settle(b.known(), l, goodEnd)
	}
	sent, err := send("early")
	require.NoError(t, err)
	require.Empty(t, sent.Task)
	b.followUp()
	b.beforeWait(task("early"))
	b.await()
	moves("early")

	id := b.beforeWait(task("now"))
	b.await()
	sent, err = send("now")
	require.NoError(t, err)
	require.Equal(t, id.String(), sent.Task)
	moves("now")

	id = b.beforeWait(task("past"))
	b.await()
	b.exec(`UPDATE tenant_acme.idempotency_keys SET expires_at = '-infinity'`)
	_, err = b.ExpireKeys(t.Context(), tenant)
	require.NoError(t, err)
	sent, err = send("past")
	require.NoError(t, err)
	require.Equal(t, id.String(), sent.Task)
	moves("past")

	_, err = send("past")
	require.Equal(t, asyncflow.CodeTaskOver, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, id.String()+" is over")
	require.Equal(t, []int{0, 0}, b.leftSignals())
}

// The submit of a key's task and its signal don't see each other: whichever is committed last finds
// the other one.
func TestASignalBesideTheSubmitOfItsKey(t *testing.T) {
	b := setup(t)
	spec := approval()
	spec.Stages = spec.Stages[1:]
	b.put(spec)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	var to *string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT tenant_acme.send_signal('approved', '7',
		type => 'pipe', key => 'k')`).Scan(&to))
	require.Nil(t, to)
	task := newTask(`1`)
	task.Options.Key = "k"
	b.submit(task)
	b.await()
	b.followUp()
	require.NoError(t, tx.Commit(t.Context()))
	b.followUp()
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []string{"second", "7"}, []string{l.Stage, string(l.Context)})
}

// A signal in a transaction that is rolled back is none.
func TestSignalsBySQL(t *testing.T) {
	b := setup(t)
	b.put(approval())
	app := b.app()
	id := b.beforeWait(newTask(`1`))
	b.await()
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		_, err := app.Exec(t.Context(), `BEGIN`)
		require.NoError(t, err)
		var got string
		require.NoError(t, app.QueryRow(t.Context(), `SELECT tenant_acme.send_signal('approved',
			'{"a":  1}', task => $1)`, id.String()).Scan(&got))
		require.Equal(t, id.String(), got)
		_, err = app.Exec(t.Context(), end)
		require.NoError(t, err)
		b.followUp()
		if end == "ROLLBACK" {
			require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status)
		}
	}
	require.Equal(t, `{"a":  1}`, string(b.leaseAll(b.known(), 1)[0].Context))
	for call, state := range map[string]string{
		`'approved', task => 'pipe.1.7'`:                                       "42704",
		`'approved', type => 'nil', key => 'k'`:                                "42704",
		`'refused', type => 'pipe', key => 'k'`:                                "22023",
		`'approved'`:                                                           "22023",
		`'approved', type => 'pipe', key => 'k', keep => '31 days'`:            "22023",
		`'approved', type => 'pipe', key => 'k', task => 'pipe.1.1'`:           "22023",
		`NULL, type => 'pipe', key => 'k'`:                                     "22023",
		`'approved', type => 'pipe', key => 'k', idempotency_key => 'link/x'`:  "22023",
		`'approved', to_json(repeat('x', 300000)), type => 'pipe', key => 'k'`: "54000",
	} {
		_, err := app.Exec(t.Context(), `SELECT tenant_acme.send_signal(`+call+`)`)
		require.Equal(t, state, sqlState(err), "%s: %v", call, err)
	}
}

// A task for which no signal came in time fails, or goes on as its stage says. A signal that was
// committed before counts.
func TestAWaitTimesOut(t *testing.T) { eachSet(t, testAWaitTimesOut) }

func testAWaitTimesOut(t *testing.T, b *bundle) {
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.await()
	b.followUp()
	b.timeUp()
	task := b.comesTo(id, asyncflow.StatusFailed)
	require.Equal(t, `wait_timeout: the signal "approved" didn't come in time`, task.Error)
	require.Equal(t, "wait", task.Stage)

	id = b.beforeWait(newTask(`1`))
	b.await()
	b.signal(id, "approved", `2`)
	b.timeUp()
	require.Equal(t, `2`, string(b.leaseAll(b.known(), 1)[0].Context))

	spec := approval()
	spec.Stages[1].Wait.OnTimeout = &asyncflow.StageFailure{Next: "escalate"}
	spec.Stages[2].Next = []string{asyncflow.NextFinish}
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "escalate"})
	b.put(spec.WithDefaults())
	id = b.beforeWait(newTask(`1`))
	b.await()
	b.timeUp()
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []string{"escalate", `"first"`}, []string{l.Stage, string(l.Context)})
	require.Equal(t, []store.Visit{visit("first", 1, 1), visit("wait", 1, 0),
		visit("escalate", 1, 1)}, b.task(id).Path)
	b.settle(b.known(), l, goodEnd)
	require.Equal(t, []int{0, 0}, b.leftSignals())
	b.checkTokens("pipe")
}

// The same signal again is sent once; another one with its idempotency key is refused.
func TestASignalIsSentOnce(t *testing.T) {
	b := setup(t)
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	signal := asyncflow.Signal{Name: "approved", Task: id.String(), Data: json.RawMessage(`1`),
		IdempotencyKey: "k"}
	first, err := b.SendSignal(t.Context(), tenant, signal)
	require.NoError(t, err)
	again := func() {
		t.Helper()
		second, err := b.SendSignal(t.Context(), tenant, signal)
		require.NoError(t, err)
		require.True(t, second.Existing)
		second.Existing = false
		require.Equal(t, first, second)
	}
	again()
	require.Equal(t, []int{1, 0}, b.leftSignals())
	b.await()
	b.followUp()
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	require.Equal(t, []int{0, 0}, b.leftSignals())
	again()
	signal.Data = json.RawMessage(`2`)
	_, err = b.SendSignal(t.Context(), tenant, signal)
	require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(err), "%v", err)
	b.exec(`UPDATE tenant_acme.signals SET kept_until = '-infinity'`)
	n, err := b.ForgetSignals(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// Cancel, change, redrive: a task that waits for a signal is live, and waits anew when it is
// redriven.
func TestTasksThatWaitForSignals(t *testing.T) { eachSet(t, testTasksThatWaitForSignals) }

func testTasksThatWaitForSignals(t *testing.T, b *bundle) {
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.await()
	_, err := b.Change(t.Context(), tenant, id,
		asyncflow.Patch{RunAt: b.Clock.Now().Add(time.Hour)})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "it waits for a signal")
	n, err := b.Promote(t.Context(), b.known(), []string{"wait"})
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	_, err = b.SendSignal(t.Context(), tenant,
		asyncflow.Signal{Name: "approved", Task: id.String()})
	require.Equal(t, asyncflow.CodeTaskOver, asyncflow.CodeOf(err), "%v", err)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.await()
	require.Equal(t, asyncflow.WaitSignal, b.task(id).WaitsFor)
	b.timeUp()
	b.comesTo(id, asyncflow.StatusFailed)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "first"})
	require.NoError(t, err)
	b.signal(id, "approved", `5`)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("wait", `"again"`))
	b.await()
	b.followUp()
	require.Equal(t, `5`, string(b.leaseAll(b.known(), 1)[0].Context))
	b.checkTokens("pipe")
}

// A stage that changes its mode or signal while tasks wait in it takes them along.
func TestAWaitThatChanges(t *testing.T) {
	b := setup(t)
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.await()
	b.followUp()
	known := func() { // to all nodes, after a while
		b.exec(`UPDATE tenant_acme.outbox SET due = '-infinity'`)
		b.followUp()
	}
	spec := approval()
	spec.Stages[1].Wait.Signal = "released"
	b.put(spec)
	require.Equal(t, "released", b.task(id).Signal.Name)
	known()
	spec = approval()
	spec.Stages[1] = asyncflow.Stage{Name: "wait"}
	b.put(spec.WithDefaults())
	known()
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, []string{"wait", `"first"`}, []string{l.Stage, string(l.Context)})
	b.checkTokens("pipe")
}

// What is kept is bounded.
func TestSignalsAreBounded(t *testing.T) {
	b := setup(t)
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.exec(`INSERT INTO tenant_acme.signals (type, task, name, bytes, sent_at, kept_until, hash)
		SELECT number, $1, 'approved', 0, now(), now() + interval '1 h', '' FROM tenant_acme.task_types,
		  generate_series(1, 1000)`, id.Number)
	send := func(task asyncflow.TaskID) error {
		_, err := b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
			Task: task.String(), Data: json.RawMessage(`"long"`)})
		return err
	}
	err := send(id)
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the task has 1000 signals")
	other := b.beforeWait(newTask(`1`))
	require.NoError(t, send(other))
	b.exec(`UPDATE tenant_acme.signals SET bytes = 268436 WHERE bytes = 0`)
	b.exec(`UPDATE tenant_acme.signal_counts SET counted_to = -1000`) // it counts anew
	err = send(other)
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the limit is 268435456")

	b.exec(`DELETE FROM tenant_acme.signals`)
	b.exec(`INSERT INTO tenant_acme.signals (type, task, name, bytes, sent_at, kept_until, hash)
		SELECT number, n, 'approved', 0, now(), now() + interval '1 h', '' FROM tenant_acme.task_types,
		  generate_series(1, 99990) n`)
	for range 10 {
		require.NoError(t, send(other))
	}
	err = send(other)
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the tenant has 100000 signals")
}

// Taken signals stay for their idempotency keys; the keys are bounded, too. A repeat, and a signal
// without a key, need no room for one.
func TestSignalsWithKeysAreBounded(t *testing.T) {
	longform.Only(t) // a million rows
	b := setup(t)
	b.put(approval())
	id := b.submit(newTask(`1`))[0].ID
	b.exec(`INSERT INTO tenant_acme.signals (type, task, name, bytes, sent_at, kept_until, hash,
		  idempotency_key, taken)
		SELECT number, n, 'approved', 0, now(), now() + interval '1 h', '', n, true
		FROM tenant_acme.task_types, generate_series(1, 999999) n`)
	send := func(key string) error {
		_, err := b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
			Task: id.String(), IdempotencyKey: key})
		return err
	}
	require.NoError(t, send("one"))
	err := send("two")
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "the tenant has 1000000 signals with an idempotency key")
	require.NoError(t, send("one"), "again")
	for range 2 {
		require.NoError(t, send(""))
		b.exec(`UPDATE tenant_acme.signal_counts SET counted_to = -1000`)
	}
	require.Error(t, send("two"))
}

// What a signal costs doesn't grow with the signals that are kept: they are counted once in many.
// Two transactions that send signals don't depend on each other.
func TestSignalsAreCountedRarely(t *testing.T) {
	b := setup(t)
	b.put(approval())
	ids := []asyncflow.TaskID{b.submit(newTask(`1`))[0].ID, b.submit(newTask(`1`))[0].ID}
	b.exec(`INSERT INTO tenant_acme.signals (type, task, name, bytes, sent_at, kept_until, hash)
		SELECT number, n, 'approved', 0, now(), now() + interval '1 h', '' FROM tenant_acme.task_types,
		  generate_series(1, 90000) n`)
	const send = `SELECT tenant_acme.send_signal('approved', task => $1)`
	within := func(do func(pgx.Tx)) {
		require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			do(tx)
			return nil
		}))
	}
	within(func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), send, ids[0].String())
		require.NoError(t, err)
		require.GreaterOrEqual(t, signalsRead(t, tx), 90_000)
	})
	within(func(tx pgx.Tx) {
		before := signalsRead(t, tx) // perhaps Postgres did not count them elsewhere yet
		for i := range 100 {
			_, err := tx.Exec(t.Context(), send, ids[i%2].String())
			require.NoError(t, err)
		}
		require.Less(t, signalsRead(t, tx)-before, 100*100)
	})
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	var open []pgx.Tx
	for _, id := range ids {
		conn, err := pgx.Connect(t.Context(), b.url)
		require.NoError(t, err)
		defer conn.Close(context.WithoutCancel(t.Context()))
		tx, err := conn.BeginTx(t.Context(), serializable)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), send, id.String())
		require.NoError(t, err)
		open = append(open, tx)
	}
	for _, tx := range open {
		require.NoError(t, tx.Commit(t.Context()))
	}
}

func sumTallies(b *bundle) (sum tallied) {
	b.t.Helper()
	return first(b.tallies(tenant, "pipe"))
}

// What a caller of send_signal brings of its own changes nothing. Without the grant it may not.
func TestSignalsBySQLAreNotMisled(t *testing.T) {
	b := setup(t)
	b.put(approval())
	app := b.app()
	for _, sql := range []string{
		`CREATE TEMP TABLE task_types (name text, spec json)`,
		`CREATE TEMP TABLE signals (type int, task bigint, key text, taken bool)`,
		`CREATE TEMP TABLE submit_limits (refusal text, context_bytes bigint, pending_tasks bigint)`,
		`CREATE TEMP TABLE signal_counts (counted_to bigint, kept bigint, bytes bigint, keyed bigint)`,
		`CREATE TEMP SEQUENCE signals_seq_seq`,
		`CREATE TEMP TABLE outbox (kind text, due timestamptz, type int, id bigint)`,
		`CREATE TEMP TABLE idempotency_keys (type text, key text, id bigint)`,
		`GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC`,
		`CREATE FUNCTION pg_temp.signal_check(text, json, text, text, text, interval, text, bigint)
		  RETURNS text[] LANGUAGE sql AS 'SELECT NULL::text[]'`,
		`SET search_path = pg_temp, pg_catalog, tenant_acme`,
		`SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'`,
	} {
		_, err := app.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	send := func() string {
		_, err := app.Exec(t.Context(), `SELECT tenant_acme.send_signal('approved', type => 'pipe',
			key => 'k', keep => '90 min')`)
		return sqlState(err)
	}
	require.Empty(t, send())
	require.Equal(t, []int{1, 0}, b.leftSignals())
	var role string
	require.NoError(t, app.QueryRow(t.Context(), `SELECT current_user::text`).Scan(&role))
	require.NoError(t, b.RevokeSubmit(t.Context(), tenant, role))
	require.Equal(t, "42501", send())
	require.NoError(t, b.GrantSubmit(t.Context(), tenant, role))
	require.Empty(t, send())
}

// The signals of a deleted type go, and a batch reads none of other types.
func TestSignalsOfADeletedType(t *testing.T) {
	pgtest.NotOnCitus(t, countedThere)
	b := setup(t)
	b.put(approval())
	gone := approval()
	gone.Name = "gone"
	number := b.put(gone).Number()
	rows := func(name string, n int) {
		b.exec(fmt.Sprintf(`INSERT INTO tenant_acme.signals (type, task, key, name, bytes, sent_at,
			  kept_until, hash, idempotency_key, taken)
			SELECT number, CASE WHEN n %% 3 > 0 THEN n END, CASE WHEN n %% 3 = 0 THEN n END,
			  'approved', 0, now(), now() + interval '1 h', '', CASE WHEN n %% 2 = 0 THEN n END,
			  n %% 6 = 4
			FROM tenant_acme.task_types, generate_series(1, %d) n WHERE name = '%s'`, n, name))
	}
	rows("pipe", 30_000)
	rows("gone", 3000)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "gone", false))
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL enable_seqscan = off;
			SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off`)
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), b.known().SQL(0, settings.DeleteSignalsSQL), number, 1000)
		require.NoError(t, err)
		require.EqualValues(t, 1000, tag.RowsAffected())
		require.Less(t, signalsRead(t, tx), 10_000)
		return nil
	})
	require.NoError(t, err)
	var at store.Deleting
	for more := true; more; more = at.More {
		at, err = b.DeleteRows(t.Context(), tenant, at)
		require.NoError(t, err)
	}
	require.Equal(t, 30_000, b.count(`SELECT count(*) FROM tenant_acme.signals`))
}

// signalsRead returns how many rows and entries of indexes this session read of signals.
func signalsRead(t *testing.T, tx pgx.Tx) (n int) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), `
		SELECT pg_stat_get_xact_tuples_returned(max(indrelid::oid)) +
		  sum(pg_stat_get_xact_tuples_returned(indexrelid))
		FROM pg_index WHERE indrelid = 'tenant_acme.signals'::regclass`).Scan(&n))
	return n
}

// A follow-up whose COMMIT has no answer may have put tasks in line. Its node looks for them at
// once: nothing else would tell it of them.
func TestAFollowUpWithoutAnAnswerIsAnnounced(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(approval())
	second, line := mortal(t, b)
	heard := make(chan struct{}, 1)
	listen(t, second.Store, func(store.TypeKey, time.Time) {
		select {
		case heard <- struct{}{}:
		default:
		}
	}, func() {})
	for at, cut := 1, true; cut; at++ {
		id := b.beforeWait(newTask(`1`))
		b.await()
		b.followUp()
		b.signal(id, "approved", "2")
		line.arm(at, true, false)
		_, err := second.FollowUp(t.Context(), tenant) // it tries again once
		require.NoError(t, err)
		cut = line.mend()
		// The transaction that was cut may hold its rows for another moment.
		eventually(t, "it goes on", func() bool {
			_, err := second.FollowUp(t.Context(), tenant)
			return err == nil && b.task(id).Status == asyncflow.StatusPending
		})
		select {
		case <-heard:
		case <-time.After(patience):
			t.Fatalf("cut at statement %d: nobody hears of %s", at, id)
		}
		b.settle(b.known(), b.leaseAll(b.known(), 1)[0], badEnd)
	}
}
