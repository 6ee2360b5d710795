package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// keyedTask returns a task of the type pipe to start, with a key and a context of its own.
func keyedTask(key string) asyncflow.SpawnedTask {
	s := spawned("pipe", fmt.Sprintf(`{"of":  "<%s>"}`, key))
	s.Key = key
	return s
}

// holdKeys submits a task with each key by SQL, in a transaction that stays open.
func (b *bundle) holdKeys(keys ...string) (pgx.Tx, []asyncflow.TaskID) {
	b.t.Helper()
	tx, err := b.db.Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var ids []asyncflow.TaskID
	for _, key := range keys {
		id, err := b.bySQL(tx, fmt.Sprintf(`'pipe', '"by SQL"', key => '%s'`, key))
		require.NoError(b.t, err)
		ids = append(ids, id)
	}
	return tx, ids
}

// keysOf returns the keys of the tasks that a task started, sorted.
func (b *bundle) keysOf(id asyncflow.TaskID) (keys []string) {
	b.t.Helper()
	all, err := b.Tasks(b.t.Context(), tenant,
		store.Filter{Type: "pipe", Parent: id, Limit: 20_000})
	require.NoError(b.t, err)
	for _, one := range all {
		keys = append(keys, one.Options.Key)
	}
	slices.Sort(keys)
	return keys
}

// followUpNow is followUp, also with rows that are due later: they met a lock.
func (b *bundle) followUpNow() {
	b.t.Helper()
	b.exec(`UPDATE tenant_acme.outbox SET due = now() - interval '1 s'
		WHERE seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
	b.followUp()
}

// startKeyed makes a new task start tasks.
func (b *bundle) startKeyed(pipe *store.Type, tasks ...asyncflow.SpawnedTask) asyncflow.TaskID {
	b.t.Helper()
	id := b.submit(newTask(`0`))[0].ID
	for _, l := range b.leaseAll(pipe, 1) {
		require.Equal(b.t, id, l.ID)
		require.False(b.t, b.settle(pipe, l, starting(`1`, tasks...)).Stale)
	}
	return id
}

// A transaction by SQL that holds keys of a list keeps only these tasks from being made, and no
// other row of the tenant waits. When it is over, they are made: after a rollback as they are, and
// after a commit its tasks stand in their place.
func TestSpawnWithHeldKeys(t *testing.T) { eachSet(t, testSpawnWithHeldKeys) }

func testSpawnWithHeldKeys(t *testing.T, b *bundle) {
	b.byHand()
	b.SetChunks(2, 2, 2)
	b.put(base())
	pipe := b.put(spawning())
	if pgtest.OnCitus() {
		b.onWorker()
	}
	for _, commits := range []bool{false, true} {
		name := func(key string) string { return fmt.Sprintf("%s %t", key, commits) }
		tx, theirs := b.holdKeys(name("a"), name("d"))
		first := b.submit(newTask(`0`))[0].ID
		second := b.submit(newTask(`0`))[0].ID
		twice := keyedTask(name("a"))
		twice.Context = json.RawMessage(`"twice"`)
		for _, l := range b.leaseAll(pipe, 2) {
			if l.ID == second {
				b.settle(pipe, l, starting(`1`, keyedTask(name("x"))))
				continue
			}
			b.settle(pipe, l, starting(`1`, keyedTask(name("a")), keyedTask(name("b")),
				spawned("base", `"c"`), keyedTask(name("d")), keyedTask(name("e")), twice,
				keyedTask(name("f"))))
		}
		b.followUp()
		require.Equal(t, []string{name("x")}, b.keysOf(second), "nobody else waits")
		require.Equal(t, []string{name("b"), name("e"), name("f")}, b.keysOf(first))
		require.Equal(t, []string{`"c"`}, b.startedBy("base", first))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.outbox`), "it rests")
		require.Equal(t, 4, b.count(`SELECT cardinality(ids) FROM tenant_acme.spawns
			WHERE tasks IS NOT NULL`))
		var left string
		require.NoError(t, b.db.QueryRow(t.Context(), `
			SELECT string_agg(e ->> 'key', ' ' ORDER BY e ->> 'key')
			FROM tenant_acme.spawns, json_array_elements(tasks::json) WITH ORDINALITY u (e, n)
			WHERE n > cardinality(ids)`).Scan(&left))
		require.Equal(t, fmt.Sprintf("%s %[1]s %s", name("a"), name("d")), left,
			"a node of the version before goes on with these")
		live := b.count(`SELECT sum(submitted - succeeded - failed - cancelled)
			FROM tenant_acme.tallies`)
		counted, err := b.CountLive(t.Context(), tenant)
		require.NoError(t, err)
		require.EqualValues(t, live+3, counted)
		b.followUpNow()
		require.Len(t, b.keysOf(first), 3, "they are still held")

		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		require.NoError(t, end(t.Context()))
		// A try waits for a key for a millisecond, which may be too short on a busy machine.
		eventually(t, "all are made", func() bool {
			b.followUpNow()
			return len(b.keysOf(first)) == 5
		})
		require.Equal(t, []string{name("a"), name("b"), name("d"), name("e"), name("f")},
			b.keysOf(first))
		require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
		require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.spawns WHERE tasks IS NOT NULL`))
		require.Equal(t, []store.SpawnedCount{{Type: "base", Count: 1}, {Type: "pipe", Count: 6}},
			b.task(first).Spawned)
		all, err := b.Tasks(t.Context(), tenant,
			store.Filter{Type: "pipe", Parent: first, Limit: 9})
		require.NoError(t, err)
		for _, one := range all {
			held := one.Options.Key == name("a") || one.Options.Key == name("d")
			require.Equal(t, commits && held, slices.Contains(theirs, one.ID), one.Options.Key)
			want := fmt.Sprintf(`{"of":  "<%s>"}`, one.Options.Key)
			if commits && held {
				want = `"by SQL"`
			}
			require.Equal(t, want, string(b.task(one.ID).Context), "byte for byte, of the first")
		}
		for _, l := range b.leaseAll(pipe, 8) { // with the next stages of the two
			_, err := b.Cancel(t.Context(), tenant, l.ID, "no more")
			require.NoError(t, err)
		}
	}
	b.checkTokens("pipe")
	b.checkTokens("base")
}

// If a node dies at any statement while keys of a list are held, or the answer to its COMMIT is
// lost, another one goes on: each task is made once.
func TestSpawnWithHeldKeysSurvivesCrashes(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	b.SetChunks(3, 3, 3)
	pipe := b.put(spawning())
	second, line := mortal(t, b)
	second.SetChunks(3, 3, 3)
	for at, lost := range line.deaths(t, 5) {
		name := func(key string) string { return fmt.Sprintf("%s %t %d", key, lost, at) }
		tx, _ := b.holdKeys(name("b"), name("d"))
		var tasks []asyncflow.SpawnedTask
		var want []string
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			tasks = append(tasks, keyedTask(name(key)))
			want = append(want, name(key))
		}
		id := b.startKeyed(pipe, tasks...)
		line.arm(at, lost, true)
		for more := true; more; {
			var err error
			if more, err = second.FollowUp(t.Context(), tenant); err != nil {
				break
			}
		}
		line.mend()
		// Postgres may not have noticed the death yet
		eventually(t, "the others are made", func() bool {
			b.followUpNow()
			return len(b.keysOf(id)) == 3
		})
		require.Equal(t, []string{want[0], want[2], want[4]}, b.keysOf(id))
		line.arm(at, lost, true)
		if at%2 == 0 {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		b.exec(`UPDATE tenant_acme.outbox SET due = now() - interval '1 s'`)
		for more := true; more; {
			var err error
			if more, err = second.FollowUp(t.Context(), tenant); err != nil {
				break
			}
		}
		line.mend()
		eventually(t, "all are made", func() bool {
			b.followUpNow()
			return len(b.keysOf(id)) == 5
		})
		require.Equal(t, want, b.keysOf(id), "died at statement %d", at)
		require.Equal(t, []store.SpawnedCount{{Type: "pipe", Count: 5}}, b.task(id).Spawned)
		require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
		for _, l := range b.leaseAll(pipe, 6) {
			_, err := b.Cancel(t.Context(), tenant, l.ID, "no more")
			require.NoError(t, err)
		}
	}
	b.checkTokens("pipe")
}

// One held key in a list of 10,000 keeps one task from being made. While it is held, a transaction
// writes nothing but when it tries again.
func TestSpawnManyWithAHeldKey(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	tasks := make([]asyncflow.SpawnedTask, asyncflow.MaxSpawn)
	for i := range tasks {
		tasks[i] = keyedTask(fmt.Sprint("key ", i))
	}
	const at = 4711
	tx, _ := b.holdKeys(tasks[at].Key)
	id := b.startKeyed(pipe, tasks...)
	made := func() int { return b.task(id).Spawned[0].Count }
	b.followUp()
	require.Equal(t, asyncflow.MaxSpawn-1, made())
	const version = `SELECT xmin::text::bigint FROM tenant_acme.spawns`
	before := b.count(version)
	b.followUpNow()
	require.Equal(t, before, b.count(version))
	require.NoError(t, tx.Rollback(t.Context()))
	eventually(t, "it is made, too", func() bool {
		b.followUpNow()
		return made() == asyncflow.MaxSpawn
	})
	require.NotContains(t, b.keysOf(id), "")
}

// More keys are held than one transaction looks at. What comes behind them in the list is made.
func TestSpawnWithManyHeldKeys(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	var held, free []string
	var tasks []asyncflow.SpawnedTask
	for i := range 250 {
		held = append(held, fmt.Sprintf("a %03d", i))
		tasks = append(tasks, keyedTask(held[i]))
	}
	for i := range 50 {
		free = append(free, fmt.Sprintf("b %03d", i))
		tasks = append(tasks, keyedTask(free[i]))
	}
	tx, _ := b.holdKeys(held...)
	id := b.startKeyed(pipe, tasks...)
	eventually(t, "the others are made", func() bool {
		b.followUpNow()
		return len(b.keysOf(id)) == len(free)
	})
	require.Equal(t, free, b.keysOf(id))
	require.NoError(t, tx.Rollback(t.Context()))
	eventually(t, "all are made", func() bool {
		b.followUpNow()
		return len(b.keysOf(id)) == len(held)+len(free)
	})
	require.Equal(t, append(held, free...), b.keysOf(id))
}
