package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

func replacing(key, context string) asyncflow.NewTask {
	task := withKey(key, context)
	task.OnConflict = asyncflow.ConflictReplace
	return task
}

// gathered returns three submits of a key that come together. Each comes with options of its own;
// the second one is the last with a priority.
func gathered(key string) []asyncflow.NewTask {
	var tasks []asyncflow.NewTask
	for i := range 3 {
		name := fmt.Sprint("of ", i)
		task := replacing(key, fmt.Sprint(i))
		task.Options.FlowKey = name
		task.Options.Retry = &asyncflow.RetryPolicy{MaxAttempts: 5 + i}
		task.Options.OnFinal = &asyncflow.OnFinal{URL: "https://a.example/" + name[3:]}
		task.Options.Labels = asyncflow.Labels{User: name, Tags: []string{name},
			Metadata: map[string]string{"from": name}}
		if i < 2 {
			task.Options.Priority = asyncflow.Priority{100 * (i + 1)}
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// The first of the submits that come together is told that its task is new: so the task gets the
// options of that submit, and what each later submit replaces. It is the same if the task with the
// key was begun.
func TestReplaceTogetherKeepsTheFirstOptions(t *testing.T) {
	w := setupWriter(t)
	kind := writerType()
	kind.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 9}}
	pipe := w.put(kind)
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprint("begun: ", begun), func(t *testing.T) {
			key := fmt.Sprint("key ", begun)
			if begun {
				w.submit(replacing(key, `"old"`))
				require.Len(t, w.lease(pipe, 1), 1)
			}
			tasks := gathered(key)
			results := w.submit(tasks...)
			for i, r := range results {
				require.Equal(t, []any{results[0].ID, i > 0, i > 0},
					[]any{r.ID, r.Existing, r.Replaced})
			}
			var flowKey string
			require.NoError(t, w.db.QueryRow(t.Context(), `SELECT key FROM tenant_acme.ready_1
				WHERE id = $1`, results[0].ID.Number).Scan(&flowKey))
			require.Equal(t, tasks[0].Options.FlowKey, flowKey)
			l := w.lease(pipe, 1)[0]
			require.Equal(t, []any{results[0].ID, `2`}, []any{l.ID, string(l.Context)})
			options := tasks[0].Options
			options.Priority = tasks[1].Options.Priority
			options.Replaceable = true
			require.Equal(t, options, l.Options)
			require.Equal(t, 200*time.Second, l.CreatedAt.Sub(l.OrderTime))
			require.True(t, l.OrderTime.Equal(results[2].OrderTime))
			w.checkTokens()
		})
	}
	t.Run("a priority counts for a task that is there", func(t *testing.T) {
		task := replacing("there", `1`)
		task.Delay = asyncflow.NewDuration(time.Hour)
		first := w.submit(task)[0]
		w.submit(gathered("there")...)
		after, err := w.Task(t.Context(), tenant, first.ID)
		require.NoError(t, err)
		require.Equal(t, asyncflow.Priority{200}, after.Options.Priority)
		require.Empty(t, after.Options.User)
	})
}

// The lifetime and the claim rules of submits that come together are the latest among them, for a
// new task as for an existing one.
func TestReplaceTogetherTakesTheLatestRules(t *testing.T) {
	r := startRuled(t, func(*asyncflow.Stage) {})
	notBob := &asyncflow.ClaimRules{Exclude: []string{"bob"}}
	tasks := func(context string) []asyncflow.NewTask {
		var all []asyncflow.NewTask
		for i := range 3 {
			task := replacing("k", fmt.Sprintf(`"%s %d"`, context, i))
			task.Options.Claim = []*asyncflow.ClaimRules{notAnna, notBob, nil}[i]
			task.EndBy = asyncflow.DeadlineAfter(time.Duration(3-i) * time.Hour)
			task.Delay = asyncflow.NewDuration(time.Duration(i) * 10 * time.Millisecond)
			all = append(all, task)
		}
		all[2].EndBy = asyncflow.Deadline{}
		return all
	}
	for _, context := range []string{"made", "there"} {
		results := r.Submit(t.Context(), tenant, tasks(context))
		for _, one := range results {
			require.NoError(t, one.Err)
			require.Equal(t, results[0].ID, one.ID)
		}
		task, err := r.Task(t.Context(), tenant, results[0].ID)
		require.NoError(t, err)
		assert.Equal(t, notBob, task.Options.Claim, context)
		require.NotNil(t, task.Options.Lifetime, context)
		assert.WithinDuration(t, r.Clock.Now().Add(2*time.Hour), task.Options.Lifetime.EndBy,
			time.Minute, context)
	}
	require.Eventually(t, func() bool {
		r.promote()
		require.Empty(t, r.got("bob"))
		all := r.got("anna")
		return len(all) == 1 && string(all[0].Lease.Context) == `"there 2"`
	}, patience, 20*time.Millisecond)
}

// A fixed deadline of an earlier submit that is over when the last one's context is due isn't the
// task's: that context would never run.
func TestReplaceTogetherLetsDeadlinesGo(t *testing.T) {
	r := startRuled(t, func(*asyncflow.Stage) {})
	for name, deadline := range map[string]func(*asyncflow.NewTask, asyncflow.Deadline){
		"start_by": func(n *asyncflow.NewTask, d asyncflow.Deadline) { n.StartBy = d },
		"end_by":   func(n *asyncflow.NewTask, d asyncflow.Deadline) { n.EndBy = d },
	} {
		t.Run(name, func(t *testing.T) {
			for _, context := range []string{"made", "there"} {
				first, last := replacing(name, `"first"`), replacing(name, `"`+context+`"`)
				deadline(&first, asyncflow.DeadlineAt(r.Clock.Now().Add(time.Hour)))
				first.Delay = asyncflow.NewDuration(time.Minute)
				last.Delay = asyncflow.NewDuration(2 * time.Hour)
				results := r.Submit(t.Context(), tenant, []asyncflow.NewTask{first, last})
				for _, one := range results {
					require.NoError(t, one.Err)
				}
				task, err := r.Task(t.Context(), tenant, results[1].ID)
				require.NoError(t, err)
				assert.Nil(t, task.Options.Lifetime, context)
			}
		})
	}
}

// A task of submits that come together is delivered with the options of the first one, also where
// there is capacity to begin it at once.
func TestReplaceTogetherIsDelivered(t *testing.T) {
	b := setup(t)
	sent := make(chan asyncflow.Delivery, 100)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			sent <- d
			return last
		})
	n.handsOff(t)
	<-sent
	tasks := gathered("k")
	for _, r := range n.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	d := <-sent
	require.Equal(t, []any{`2`, tasks[0].Options.User, tasks[0].Options.FlowKey},
		[]any{string(d.Lease.Context), d.Lease.Options.User, d.Lease.Options.FlowKey})
	eventually(t, "all capacity is given back", func() bool {
		return n.InFlight() == 0 && n.Load() == 0
	})
}

// While a key is locked, submits of it by an operator and by one who may only submit wait
// together. Each is judged by its own rights, and by the task that is there then.
func TestReplaceTogetherByItsOwnRights(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	w.SetHeldPatience(patience)
	for _, exists := range []bool{false, true} {
		for _, operatorFirst := range []bool{false, true} {
			t.Run(fmt.Sprint(exists, operatorFirst), func(t *testing.T) {
				tx := w.holdKeys(1)
				tasks := []asyncflow.NewTask{replacing("held-0", `"a"`), replacing("held-0", `"b"`)}
				operator := 1
				if operatorFirst {
					operator = 0
				}
				tasks[operator].Operates = true
				results := make(chan []store.Submitted, 1)
				go func() { results <- w.Submit(context.Background(), tenant, tasks) }()
				eventually(t, "both wait", func() bool { return w.HeldKeys() == 2 })
				if exists {
					require.NoError(t, tx.Commit(t.Context()))
				} else {
					require.NoError(t, tx.Rollback(t.Context()))
				}
				got := <-results
				require.NoError(t, got[operator].Err)
				other := got[1-operator]
				if exists {
					require.True(t, got[operator].Replaced)
					require.ErrorContains(t, other.Err, "it takes the scope operate")
				} else {
					require.NoError(t, other.Err)
					require.Equal(t, got[operator].ID, other.ID)
					require.NotEqual(t, got[0].Replaced, got[1].Replaced)
				}
				_, err := w.Cancel(t.Context(), tenant, got[operator].ID, "")
				require.NoError(t, err)
				_, err = w.db.Exec(t.Context(), `DELETE FROM tenant_acme.idempotency_keys`)
				require.NoError(t, err)
				w.checkTokens()
			})
		}
	}
}

// Submits of many keys share transactions, however they come.
func TestReplaceOfManyKeysSharesTransactions(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	const keys = 400
	submit := func(context string) {
		t.Helper()
		var submits sync.WaitGroup
		for i := range keys {
			task := replacing(fmt.Sprint("key ", i), context)
			task.Delay = asyncflow.NewDuration(time.Hour)
			submits.Go(func() {
				r := w.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
				assert.NoError(t, r.Err)
				assert.Equal(t, context != `1`, r.Replaced)
			})
		}
		submits.Wait()
	}
	submit(`1`)
	submit(`2`)
	var replaced, transactions int
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT xmin::text)
		FROM tenant_acme.journal_1 WHERE outcome = 'changed' AND output = '2'`).
		Scan(&replaced, &transactions))
	require.Equal(t, keys, replaced)
	require.LessOrEqual(t, transactions, keys/4)
	w.checkTokens()
}

// While another transaction locks one of many keys, the tasks of the other ones are replaced.
func TestReplaceBesideALockedKey(t *testing.T) {
	w := setupWriter(t)
	w.put(writerType())
	w.SetHeldPatience(patience)
	var tasks []asyncflow.NewTask
	for i := range 50 {
		task := replacing(fmt.Sprint("key ", i), `1`)
		task.Delay = asyncflow.NewDuration(time.Hour)
		tasks = append(tasks, task)
	}
	first := w.submit(tasks...)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.idempotency_keys WHERE key = 'key 7'
		FOR UPDATE`)
	require.NoError(t, err)
	locked := make(chan store.Submitted, 1)
	others := make(chan store.Submitted, len(tasks))
	for i, task := range tasks {
		answers := others
		if i == 7 {
			answers = locked
		}
		go func() {
			answers <- w.Submit(context.Background(), tenant, []asyncflow.NewTask{task})[0]
		}()
	}
	for range len(tasks) - 1 {
		r := <-others
		require.NoError(t, r.Err)
		require.True(t, r.Replaced)
	}
	eventually(t, "only the locked one waits", func() bool { return w.HeldKeys() == 1 })
	require.Empty(t, locked)
	require.NoError(t, tx.Rollback(t.Context()))
	r := <-locked
	require.NoError(t, r.Err)
	require.Equal(t, []any{first[7].ID, true}, []any{r.ID, r.Replaced})
	w.checkTokens()
}
