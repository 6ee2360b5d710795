package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// waitByHand makes leased tasks wait for a signal, as a node does.
const waitByHand = `
WITH l AS (DELETE FROM tenant_acme.lease RETURNING type, id, seq, stage, attempt),
w AS (INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time, reason, until)
  SELECT l.type, l.id, l.seq, l.stage, l.attempt, (SELECT next_time FROM tenant_acme.journal_1 j
    WHERE j.type = l.type AND j.id = l.id ORDER BY seq DESC LIMIT 1), 'signal', '9999-01-01' FROM l)
INSERT INTO tenant_acme.signal_waits (type, id, signal, since, until)
SELECT type, id, 'approved', now(), now() + interval '1 h' FROM l ON CONFLICT (type, id)
  DO UPDATE SET until = excluded.until, late = false`

// A task comes to wait by a node that doesn't know yet that the stage is another one: it goes on
// once all nodes know.
func TestAWaitByANodeThatIsBehind(t *testing.T) {
	b := setup(t)
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.leaseAll(b.known(), 1)
	spec := approval()
	spec.Stages[1] = asyncflow.Stage{Name: "wait"}
	b.put(spec.WithDefaults())
	b.exec(waitByHand)
	b.followUp()
	require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status, "other nodes may not know it yet")
	b.exec(`UPDATE tenant_acme.outbox SET due = '-infinity'`)
	b.followUp()
	b.comesTo(id, asyncflow.StatusPending)
	require.Equal(t, "wait", b.leaseAll(b.known(), 1)[0].Stage)
	require.Equal(t, []int{0, 0}, b.leftSignals())
}

// Many tasks that wait when their stage changes are looked at in several transactions.
func TestManyWaitsThatChange(t *testing.T) {
	b := setup(t)
	b.put(approval())
	b.exec(`INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time, reason, until)
		SELECT number, (1::bigint << 40) + i, 1, 'wait', 1, now(), 'signal', '9999-01-01'
		FROM tenant_acme.task_types, generate_series(1, 2500) i`)
	b.exec(`INSERT INTO tenant_acme.task_1 (type, id, created_at, order_time, context)
		SELECT type, id, now(), now(), '1' FROM tenant_acme.wait`)
	spec := approval()
	spec.Stages[1] = asyncflow.Stage{Name: "wait"}
	b.put(spec.WithDefaults())
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
	b.exec(`UPDATE tenant_acme.outbox SET due = '-infinity'`)
	b.followUp()
	eventually(t, "all go on", func() bool {
		return b.count(`SELECT (SELECT count(*) FROM tenant_acme.wait)
			+ (SELECT count(*) FROM tenant_acme.outbox)`) == 0
	})
}

// A transaction that stays open with the idempotency key of a signal that is kept no longer holds
// up no task.
func TestAnOldSignalThatIsLockedHoldsUpNoTask(t *testing.T) {
	b := setup(t)
	b.put(approval())
	task := newTask(`1`)
	task.Options.Key = "k"
	id := b.beforeWait(task)
	b.await()
	b.followUp()
	b.exec(`INSERT INTO tenant_acme.signals
		  (type, key, name, bytes, sent_at, kept_until, idempotency_key, hash)
		SELECT number, 'k', 'approved', 0, now(), '-infinity', 'again', ''
		FROM tenant_acme.task_types`)
	open := b.app()
	_, err := open.Exec(t.Context(), `BEGIN; SELECT tenant_acme.send_signal('approved',
		type => 'pipe', key => 'other', idempotency_key => 'again')`)
	require.NoError(t, err)
	b.signal(id, "approved", `1`)
	b.followUp()
	b.comesTo(id, asyncflow.StatusPending)
}

// A signal doesn't wait for long for a transaction that stays open with its idempotency key.
func TestAKeyOfASignalThatIsHeld(t *testing.T) {
	b := setup(t)
	b.put(approval())
	open := b.app()
	_, err := open.Exec(t.Context(), `BEGIN; SELECT tenant_acme.send_signal('approved',
		type => 'pipe', key => 'k', idempotency_key => 'held')`)
	require.NoError(t, err)
	signal := asyncflow.Signal{Name: "approved", Type: "pipe", Key: "k", IdempotencyKey: "held"}
	_, err = b.SendSignal(t.Context(), tenant, signal)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	require.Equal(t, "55P03", sqlState(err), "%v", err)
	_, err = open.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)
	sent, err := b.SendSignal(t.Context(), tenant, signal)
	require.NoError(t, err)
	require.True(t, sent.Existing)
}

// A task comes to its next wait while FollowUp forgets the one before: the next one still ends in
// time.
func TestAWaitThatBeginsWhileAnEarlierOneIsForgotten(t *testing.T) {
	b := setup(t)
	spec := approval()
	spec.Stages = append(spec.Stages, waiting("wait2", "released"))
	b.put(spec)
	id := b.beforeWait(newTask(`1`))
	b.await()
	b.followUp()
	_, err := b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.leaseAll(b.known(), 1)
	b.exec(`INSERT INTO tenant_acme.signal_waits (type, id, signal, since, until)
		SELECT type, id, 'approved', now(), now() + interval '1 h' FROM tenant_acme.lease
		ON CONFLICT DO NOTHING`) // unless it is still left
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), waitByHand)
	require.NoError(t, err)
	b.signal(id, "released", `1`)
	followed := make(chan error, 1)
	go func() {
		_, err := b.FollowUp(t.Context(), tenant)
		followed <- err
	}()
	eventually(t, "it waits for the row, or has given up", func() bool {
		return len(followed) == 1 || b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, receive(t, followed))
	require.Equal(t, []int{1, 1}, b.leftSignals())
}

// A look for the signal of a task or a key reads no others, however many there are, also by a plan
// that was made when there were few.
func TestALookForASignalReadsNoOthers(t *testing.T) {
	pgtest.NotOnCitus(t, otherPlan)
	const toTasks = `(SELECT i AS task, NULL AS key FROM generate_series(1, 2000) i) s`
	const toKeys = `(SELECT NULL::bigint AS task, i::text AS key FROM generate_series(1, 2000) i) s`
	for name, c := range map[string]struct{ look, before, after string }{
		"tasks": {trees.NextSignalsSQL, toKeys, toTasks},
		"keys":  {trees.KeyedSignalsSQL, toTasks, toKeys},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			number := b.put(approval()).Number()
			insert := fmt.Sprintf(`INSERT INTO tenant_acme.signals
				  (type, task, key, name, bytes, sent_at, kept_until, hash)
				SELECT %d, task, key, 'approved', 0, now(), now() + interval '1 h', '' FROM `, number)
			b.exec(insert + c.before)
			b.exec(`VACUUM ANALYZE tenant_acme.signals`)
			tx, err := b.db.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(t.Context())
			look := fmt.Sprintf(`EXECUTE look (%d, '{7}'%s)`, number, map[string]string{
				"tasks": `, '{approved}', ARRAY[now()], '{link/x}'`,
				"keys":  `, '{7}', ARRAY[now()]`,
			}[name])
			for _, sql := range []string{
				`SET LOCAL plan_cache_mode = force_generic_plan`,
				`PREPARE look (int, bigint[]` + map[string]string{
					"tasks": `, text[], timestamptz[], text[]`, "keys": `, text[], timestamptz[]`,
				}[name] + `) AS ` +
					b.known().SQL(0, c.look),
				look,
				insert + c.after,
			} {
				_, err = tx.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			var plan string
			require.NoError(t, tx.QueryRow(t.Context(),
				`EXPLAIN (ANALYZE, FORMAT JSON) `+look).Scan(&plan))
			require.Contains(t, plan, `"Actual Rows": 1`)
			require.NotRegexp(t, `"(Actual Rows|Rows Removed by .*)": [1-9][0-9]`, plan,
				"it has read others")
		})
	}
}

// A signal counts that was kept while its task waited, although no node ran until much later.
func TestASignalForATaskThatWaitsIsNotForgotten(t *testing.T) {
	b := setup(t)
	b.put(approval())
	id := b.beforeWait(newTask(`1`))
	b.await()
	b.followUp()
	b.exec(`INSERT INTO tenant_acme.signals
		  (type, task, name, data, bytes, sent_at, kept_until, hash)
		SELECT number, $1, 'approved', data, 1, now(), kept_until, '' FROM tenant_acme.task_types,
		  (VALUES ('"old"', now() - interval '2 h'), ('"kept"', now() - interval '1 s'))
		    k (data, kept_until)`, id.Number)
	b.exec(`UPDATE tenant_acme.signal_waits SET since = now() - interval '1 min'`)
	b.exec(`INSERT INTO tenant_acme.outbox (kind, due, type, id)
		SELECT 'signal', now() - interval '1 s', type, id FROM tenant_acme.signal_waits`)
	n, err := b.ForgetSignals(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the old one")
	b.followUp()
	b.comesTo(id, asyncflow.StatusPending)
	require.Equal(t, `"kept"`, string(b.leaseAll(b.known(), 1)[0].Context))
}
