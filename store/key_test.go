package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// untilFinal returns a task with a key that stands for it until it is final.
func untilFinal(key, context string) asyncflow.NewTask {
	task := withKey(key, context)
	task.KeyWindow = asyncflow.KeyUntilFinal
	return task
}

// onConflict returns a task with a key, and what becomes of it if that stands for another task.
func onConflict(key, context string, c asyncflow.OnConflict) asyncflow.NewTask {
	task := withKey(key, context)
	task.OnConflict = c
	return task
}

// live returns how many tasks of the type pipe are not final.
func (b *bundle) live() (n int) {
	b.t.Helper()
	n = b.count(b.at(0, `SELECT (SELECT count(*) FROM {wait}) + (SELECT count(*) FROM {lease})`))
	for _, position := range b.known().Live() {
		n += b.count(b.at(position, `SELECT count(*) FROM {ready}`))
	}
	return n
}

// A key that stands for a task until that is final does so while the task waits, runs, and is tried
// again, whatever the rolls, and no longer, also for a node that knows nothing of a new roll. A
// redrive doesn't take it back.
func TestKeyUntilFinal(t *testing.T) { eachSet(t, keyUntilFinal) }

func keyUntilFinal(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	late := behind(t, b)
	task := untilFinal("k", `1`)
	first := b.submit(task)[0].ID
	stands := func(why string) {
		t.Helper()
		for _, r := range b.submit(task, withKey("k", `1`)) {
			require.Equal(t, []any{first, true}, []any{r.ID, r.Existing}, why)
		}
	}
	stands("it is in line")
	l := b.lease(pipe, 1)[0]
	stands("it runs")
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	stands("it is tried again")
	b.roll()
	stands("its roll is sealed")
	b.failAll()

	second := late.submit(withKey("k", `"other"`))[0]
	require.False(t, second.Existing, "the first one is final")
	require.Equal(t, 2, second.ID.Position())
	again := b.submit(withKey("k", `"other"`))[0]
	require.Equal(t, []any{second.ID, true}, []any{again.ID, again.Existing})
	_, err := b.Redrive(t.Context(), tenant, first, store.Redrive{})
	require.NoError(t, err)
	again = b.submit(withKey("k", `"other"`))[0]
	require.Equal(t, second.ID, again.ID, "the redriven task has lost the key")
}

// A key without another end goes with its task.
func TestKeyUntilFinalIsDropped(t *testing.T) { eachSet(t, keyUntilFinalIsDropped) }

func keyUntilFinalIsDropped(t *testing.T, b *bundle) {
	b.put(twoStages())
	b.submit(untilFinal("gone", `1`), untilFinal("held", `1`), withKey("window", `1`))
	b.rollAndClear()
	b.submit(untilFinal("kept", `1`))
	_, err := b.ExpireKeys(t.Context(), tenant)
	require.NoError(t, err)
	keys := b.at(0, `SELECT count(*) FROM {keys}`)
	require.Equal(t, 4, b.count(keys))
	// A role that submits by SQL may hold a key for long: the drop doesn't wait for it.
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.at(0, `SELECT FROM {keys} WHERE key = 'held' FOR UPDATE`))
	require.NoError(t, err)
	b.idle(true)
	require.True(t, b.drop(b.Clock.Now()))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 3, b.count(keys))
	require.False(t, b.submit(untilFinal("gone", `1`))[0].Existing)
	require.False(t, b.submit(untilFinal("held", `1`))[0].Existing)
}

// Jobs read when keys expire, also of a tenant with none that ever does by itself; so do nodes of
// the version before.
func TestFirstKeysOfKeysUntilFinal(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submit(untilFinal("k", `1`))
	first, err := b.FirstKeys(t.Context(), []string{tenant})
	require.NoError(t, err)
	require.Greater(t, first[tenant].Year(), 9000)
}

// The same JSON value is the same context. A key that stands for a task with another one is an
// error that names that task.
func TestKeyOfTheSameContext(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.submit(withKey("k", `{"a": [1, "é/"], "b": {"c": null}}`))[0].ID
	long := `["` + strings.Repeat("x", 1<<20) + `"]`
	b.submit(withKey("long", long))
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{withKey("long", " "+long)})[0]
	require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r.Err), "byte by byte")
	for doc, same := range map[string]bool{
		`{"b":{"c":null},"a":[1,"é/"]}`:          true,
		`{"a": [1, "\u00e9\/"], "b":{"c":null}}`: true,
		`{"a": [1.0, "é/"], "b": {"c": null}}`:   false,
		`{"a": ["é/", 1], "b": {"c": null}}`:     false,
		`{"a": [1, "é/"], "b": {}}`:              false,
		`{"a": [1, "\ud800"]}`:                   false,
	} {
		for _, submits := range map[string]func(...asyncflow.NewTask) store.Submitted{
			"alone": func(tasks ...asyncflow.NewTask) store.Submitted {
				return b.Submit(t.Context(), tenant, tasks)[0]
			},
			"with another key": func(tasks ...asyncflow.NewTask) store.Submitted {
				return b.Submit(t.Context(), tenant, append(tasks, withKey(doc, `1`)))[0]
			},
		} {
			r := submits(withKey("k", doc))
			if same {
				require.NoError(t, r.Err, doc)
				require.Equal(t, first, r.ID, doc)
				continue
			}
			require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r.Err), doc)
			require.ErrorContains(t, r.Err,
				"stands for task "+first.String()+", which has another context")
		}
	}
}

// A submit says itself what becomes of it if its key stands for another task: for one that waits,
// runs, or is final.
func TestOnConflict(t *testing.T) { eachSet(t, onConflicts) }

func onConflicts(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	for name, place := range map[string]func(id asyncflow.TaskID){
		"waits": func(asyncflow.TaskID) {},
		"runs":  func(asyncflow.TaskID) { b.lease(pipe, 1) },
		"failed": func(asyncflow.TaskID) {
			b.failAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := b.submit(withKey(name, `1`))[0].ID
			place(first)
			status := b.task(first).Status
			for _, doc := range []string{`1`, `2`} {
				r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{
					onConflict(name, doc, asyncflow.ConflictReject)})[0]
				require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r.Err))
				require.ErrorContains(t, r.Err, "stands for task "+first.String())
			}
			require.Equal(t, status, b.task(first).Status, "a refused submit changes nothing")

			r := b.submit(onConflict(name, `2`, asyncflow.ConflictCancel))[0]
			require.NotEqual(t, first, r.ID)
			require.False(t, r.Existing)
			want := status
			if !status.Final() {
				want = asyncflow.StatusCancelled
				require.Equal(t, "cancelled by a later submit with its idempotency key",
					b.task(first).Error)
			}
			require.Equal(t, want, b.task(first).Status)
			require.Equal(t, asyncflow.StatusPending, b.task(r.ID).Status)
			again := b.submit(onConflict(name, `2`, asyncflow.ConflictReturn))[0]
			require.Equal(t, []any{r.ID, true}, []any{again.ID, again.Existing})
			b.failAll()
		})
	}
	both := b.submit(onConflict("batch", `1`, asyncflow.ConflictCancel),
		onConflict("batch", `1`, asyncflow.ConflictCancel))
	require.NotEqual(t, both[0].ID, both[1].ID)
	require.Equal(t, []asyncflow.Status{asyncflow.StatusCancelled, asyncflow.StatusPending},
		[]asyncflow.Status{b.task(both[0].ID).Status, b.task(both[1].ID).Status}, "%+v", both)
}

// A task that depends on others holds a key like any other, but cancels none for it.
func TestKeyOfADependent(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	on := b.submit(newTask(`1`))[0].ID
	waits := func(task asyncflow.NewTask) asyncflow.NewTask {
		task.DependsOn = []asyncflow.Dependency{{Task: on}}
		return task
	}
	first := b.submit(waits(untilFinal("k", `1`)))[0].ID
	require.Equal(t, first, b.submit(waits(untilFinal("k", `1`)))[0].ID)
	_, err := b.Cancel(t.Context(), tenant, first, "")
	require.NoError(t, err)
	require.NotEqual(t, first, b.submit(waits(untilFinal("k", `1`)))[0].ID)
	// It would be cancelled before the dependencies of the new task are looked at.
	err = waits(onConflict("k", `2`, asyncflow.ConflictCancel)).Validate(b.Clock.Now(), 100)
	require.ErrorContains(t, err, "cancel_running and depends_on exclude each other")
}

// However many submits of one key come at once, to two nodes, while tasks end: of a key that stands
// until its task is final no two tasks are live, and of the newest that wins one is left, which
// holds the key.
func TestKeyRaces(t *testing.T) {
	longform.Costly(t)
	eachSet(t, keyRaces)
}

func keyRaces(t *testing.T, one *bundle) {
	pipe := one.put(twoStages())
	two := open(t, one.url, "node-2")
	require.NoError(t, two.Catalog.Refresh(t.Context()))
	two.own = one.own
	n := longform.Size(20, 200)
	race := func(task func(i int) asyncflow.NewTask, meanwhile func()) {
		var wg sync.WaitGroup
		for c, b := range []*bundle{one, two, one, two} {
			wg.Go(func() {
				for i := range n {
					r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task(c*n + i)})[0]
					busy := asyncflow.CodeOf(r.Err) == asyncflow.CodeUnavailable ||
						asyncflow.CodeOf(r.Err) == asyncflow.CodeConflict
					assert.True(t, r.Err == nil || busy, "%v", r.Err)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for {
			select {
			case <-done:
				return
			default:
				meanwhile()
			}
		}
	}
	ends := 0
	race(func(int) asyncflow.NewTask { return untilFinal("k", `1`) }, func() {
		leases := one.lease(pipe, 10)
		assert.LessOrEqual(t, len(leases), 1)
		assert.LessOrEqual(t, one.live(), 1)
		for _, l := range leases {
			one.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
			ends++
		}
	})
	require.Positive(t, ends)
	one.failAll()

	race(func(i int) asyncflow.NewTask {
		return onConflict("newest", fmt.Sprint(i), asyncflow.ConflictCancel)
	}, func() {
		for _, l := range one.lease(pipe, 10) { // a task is cancelled while it runs, too
			_, err := one.Task(t.Context(), tenant, l.ID)
			assert.NoError(t, err)
		}
	})
	require.Equal(t, 1, one.live())
	var left asyncflow.TaskID
	left.Type = "pipe"
	require.NoError(t, one.db.QueryRow(t.Context(),
		one.at(0, `SELECT id FROM {keys} WHERE key = 'newest'`)).Scan(&left.Number))
	require.False(t, one.task(left).Status.Final())
}

// By SQL, a key can stand for a task until that is final, and a submit be refused; keys of one way
// count in the other.
func TestSQLKeyUntilFinal(t *testing.T) { eachSet(t, sqlKeyUntilFinal) }

func sqlKeyUntilFinal(t *testing.T, b *bundle) {
	b.put(twoStages())
	app := b.app()
	submit := func(args string) asyncflow.TaskID {
		t.Helper()
		id, err := b.bySQL(app, args)
		require.NoError(t, err, args)
		return id
	}
	const task = `'pipe', '{"a": [1, "é"]}', key => 'k', key_until_final => true`
	first := submit(task)
	require.Equal(t, first, submit(task))
	require.Equal(t, first, submit(`'pipe', '{"a":[1,"\u00e9"]}', key => 'k'`))
	require.Equal(t, first, b.submit(untilFinal("k", `{"a": [1, "é"] }`))[0].ID)
	_, err := b.bySQL(app, task+`, on_conflict => 'reject'`)
	require.ErrorContains(t, err, "key stands for task "+first.String())
	require.Equal(t, "23505", sqlState(err))
	b.rollAndClear()
	second := submit(task)
	require.NotEqual(t, first, second, "the first one is final")
	require.Equal(t, second, b.submit(untilFinal("k", `{"a": [1, "é"]}`))[0].ID)
	b.failAll()
	third := b.submit(untilFinal("k", `2`))[0]
	require.False(t, third.Existing, "a task by SQL ends the same")
	b.failAll()
	require.NotEqual(t, third.ID, submit(task), "one over HTTP ends the same")

	for args, want := range map[string]string{
		`key_until_final => true`:                                       "key_until_final needs a key",
		`key => 'x', key_until_final => true, key_window => '1 hour'`:   "exclude each other",
		`key => 'x', on_conflict => 'cancel_running'`:                   "can't be cancel_running by SQL",
		`key => 'x', on_conflict => 'never'`:                            "on_conflict is never; it must be",
		`on_conflict => 'reject'`:                                       "on_conflict needs a key",
		`key => 'k', key_until_final => true, context_from => 'nobody'`: "context_from",
	} {
		_, err := b.bySQL(app, `'pipe', '1', `+args)
		require.ErrorContains(t, err, want, args)
		require.Equal(t, "22023", sqlState(err), args)
	}
}

// A key window is written as it was given.
func TestKeyWindowTexts(t *testing.T) {
	for text, want := range map[string]time.Duration{"until_final": 0, "90m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour} {
		var w asyncflow.KeyWindow
		require.NoError(t, w.UnmarshalText([]byte(text)))
		require.Equal(t, want, w.Std())
		require.Equal(t, want == 0, w.UntilFinal())
		back, err := w.MarshalText()
		require.NoError(t, err)
		require.Equal(t, text, string(back))
	}
	var w asyncflow.KeyWindow
	require.ErrorContains(t, w.UnmarshalText([]byte("until_finl")), "or until_final")
	require.True(t, w.IsZero())
}
