package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// replacing returns a task that replaces the one with its key, a while later.
func replacing(key, context string, delay, most time.Duration) asyncflow.NewTask {
	task := onConflict(key, context, asyncflow.ConflictReplace)
	task.Delay = asyncflow.NewDuration(delay)
	task.MaxWait = asyncflow.NewDuration(most)
	task.By = "anna"
	return task
}

// runNow makes a task run at once, and leases it with all that is due.
func (b *bundle) runNow(id asyncflow.TaskID) asyncflow.Lease {
	b.t.Helper()
	b.change(id, asyncflow.Patch{RunAt: b.Clock.Now()})
	leases := b.lease(b.known(), 100)
	i := slices.IndexFunc(leases, func(l asyncflow.Lease) bool { return l.ID == id })
	require.GreaterOrEqual(b.t, i, 0)
	return leases[i]
}

// A task that is not begun gets the context of the latest submit with its key, its priority, and a
// new time. What it was submitted with stays.
func TestReplace(t *testing.T) { eachSet(t, replaceWaiting) }

func replaceWaiting(t *testing.T, b *bundle) {
	b.put(twoStages())
	for name, window := range map[string]asyncflow.KeyWindow{"until final": asyncflow.KeyUntilFinal,
		"an hour": asyncflow.KeyFor(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			submit := func(context string) store.Submitted {
				task := replacing(name, context, time.Hour, 0)
				task.KeyWindow = window
				return b.submit(task)[0]
			}
			first := submit(`"a"`)
			require.Equal(t, []any{false, false}, []any{first.Existing, first.Replaced})
			second := submit(`"b"`)
			require.Equal(t, []any{first.ID, true, true, asyncflow.StatusWaiting, "first",
				first.CreatedAt}, []any{second.ID, second.Existing, second.Replaced, second.Status,
				second.Stage, second.CreatedAt})
			require.True(t, second.OrderTime.After(first.OrderTime))
			third := submit(`"b"`)
			require.True(t, third.OrderTime.After(second.OrderTime), "the same context postpones")
			task := b.task(first.ID)
			require.Equal(t, []any{`"a"`, third.OrderTime, 1}, []any{string(task.Context),
				task.OrderTime.UTC(), task.Attempt})
			journal, err := b.Attempts(t.Context(), tenant, first.ID)
			require.NoError(t, err)
			require.Len(t, journal, 2)
			require.Equal(t, []any{asyncflow.OutcomeChanged, `"b"`, "by:anna"},
				[]any{journal[0].Outcome, string(journal[0].Output), journal[0].Endpoint})

			// The key belongs to the latest context, by its value.
			same := b.submit(withKey(name, ` "b"`))[0]
			require.Equal(t, []any{first.ID, true, false},
				[]any{same.ID, same.Existing, same.Replaced})
			r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{withKey(name, `"a"`)})[0]
			require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r.Err))

			require.Equal(t, `"b"`, string(b.runNow(first.ID).Context))
			b.checkTokens("pipe")
		})
	}
}

// A submit postpones a task by its delay, but no longer than max_wait after the first submit. A
// task that is due keeps its place.
func TestReplaceIsDue(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.submit(replacing("k", `1`, time.Hour, 2*time.Hour))[0]
	require.Equal(t, first.CreatedAt.Add(time.Hour), first.OrderTime)
	due := func(task asyncflow.NewTask) time.Duration {
		r := b.submit(task)[0]
		require.Equal(t, first.ID, r.ID)
		require.True(t, r.OrderTime.Equal(b.task(first.ID).OrderTime))
		return r.OrderTime.Sub(first.CreatedAt)
	}
	require.Equal(t, 2*time.Hour, due(replacing("k", `2`, 2*time.Hour, 2*time.Hour)))
	require.Equal(t, 3*time.Hour, due(replacing("k", `2`, 3*time.Hour, 3*time.Hour)),
		"that of the latest submit counts")
	require.Greater(t, due(replacing("k", `2`, 3*time.Hour, 0)), 3*time.Hour)
	at := replacing("k", `3`, 0, 0)
	at.RunAt = first.CreatedAt.Add(5 * time.Hour)
	require.Equal(t, 5*time.Hour, due(at))
	now := replacing("k", `4`, 0, 0)
	now.Options.Priority = asyncflow.Priority{7}
	require.Less(t, due(now), time.Minute)
	require.Equal(t, asyncflow.Priority{7}, b.task(first.ID).Options.Priority)
	place := b.task(first.ID).OrderTime
	due(replacing("k", `5`, 0, 0))
	require.Equal(t, place, b.task(first.ID).OrderTime)
	require.Equal(t, `5`, string(b.lease(b.known(), 1)[0].Context))
	b.checkTokens("pipe")
}

// If a task is begun, or final, a new one gets the key and the context, and the old one goes on.
func TestReplaceOfATaskThatHasBegun(t *testing.T) { eachSet(t, replaceBegun) }

func replaceBegun(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	ends := func(kind asyncflow.OutcomeKind) {
		for _, l := range b.lease(pipe, 10) {
			b.settle(pipe, l, asyncflow.Outcome{Kind: kind})
		}
	}
	for name, place := range map[string]func(id asyncflow.TaskID){
		"runs":        func(asyncflow.TaskID) { b.lease(pipe, 1) },
		"is retried":  func(asyncflow.TaskID) { ends(asyncflow.OutcomeFailed) },
		"is snoozed":  func(asyncflow.TaskID) { ends(asyncflow.OutcomeSnoozed) },
		"later stage": func(asyncflow.TaskID) { ends(asyncflow.OutcomeDone) },
		"is final":    func(asyncflow.TaskID) { b.failAll() },
		"is redriven": func(id asyncflow.TaskID) {
			b.failAll()
			_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.NoError(t, err)
		},
	} {
		for kind, window := range map[string]asyncflow.KeyWindow{
			"until final": asyncflow.KeyUntilFinal, "an hour": asyncflow.KeyFor(time.Hour)} {
			t.Run(name+", "+kind, func(t *testing.T) {
				submit := func(context string) store.Submitted {
					task := replacing(name+kind, context, 0, 0)
					task.KeyWindow = window
					return b.submit(task)[0]
				}
				first := submit(`"old"`)
				place(first.ID)
				before := b.task(first.ID)
				second := submit(`"new"`)
				require.NotEqual(t, first.ID, second.ID)
				require.Equal(t, []any{false, false}, []any{second.Existing, second.Replaced})
				after := b.task(first.ID)
				require.Equal(t, []any{before.Status, before.Attempt, before.OrderTime},
					[]any{after.Status, after.Attempt, after.OrderTime})
				third := submit(`"newest"`)
				require.Equal(t, []any{second.ID, true}, []any{third.ID, third.Replaced})
				require.Equal(t, `"newest"`, string(b.runNow(second.ID).Context))
				b.checkTokens("pipe")
				_, err := b.Cancel(t.Context(), tenant, second.ID, "")
				require.NoError(t, err)
				_, _ = b.Cancel(t.Context(), tenant, first.ID, "")
			})
		}
	}
}

// A task keeps so many contexts, and so many bytes of them. Then it is let go as it stands.
func TestReplaceIsBounded(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for name, fill := range map[string]struct {
		rows  int
		bytes int
	}{"contexts": {asyncflow.MaxEdits, 10}, "bytes": {64, asyncflow.MaxReplacedBytes / 64}} {
		t.Run(name, func(t *testing.T) {
			first := b.submit(replacing(name, `"a"`, time.Hour, 0))[0]
			position := first.ID.Position()
			for _, sql := range []string{
				`INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, output, next_time)
				 SELECT {number}, $1, n, now(), 'first', 1, 'changed', repeat('1', $3::int), t.order_time
				 FROM generate_series(1, $2::int - 1) n, {task} t WHERE t.id = $1`,
				`UPDATE {wait} SET seq = $2::int WHERE id = $1 AND $3::int > 0`} {
				_, err := b.db.Exec(t.Context(), b.at(position, sql), first.ID.Number, fill.rows,
					fill.bytes)
				require.NoError(t, err)
			}
			small := strings.Repeat(`1`, fill.bytes)
			last := b.submit(replacing(name, small, time.Hour, 0))[0]
			require.Equal(t, []any{first.ID, true}, []any{last.ID, last.Replaced})
			order := b.task(first.ID).OrderTime
			next := b.submit(replacing(name, `2`, time.Hour, 0))[0]
			require.NotEqual(t, first.ID, next.ID)
			require.False(t, next.Existing)
			require.Equal(t, order, b.task(first.ID).OrderTime)
			require.Equal(t, small, string(b.runNow(first.ID).Context))
			require.Equal(t, `2`, string(b.runNow(next.ID).Context))
		})
	}
}

// Submits of a key that come together are one write: the last one wins, and all get its task.
func TestReplaceTogether(t *testing.T) { eachSet(t, replaceTogether) }

func replaceTogether(t *testing.T, b *bundle) {
	b.put(twoStages())
	batch := func(key string, from int) (tasks []asyncflow.NewTask) {
		for i := range 10 {
			tasks = append(tasks, replacing(key, fmt.Sprint(from+i), time.Hour, 0))
		}
		return append(tasks, replacing("other "+key, `1`, time.Hour, 0))
	}
	made := b.submit(batch("k", 0)...)
	for i, r := range made[:10] {
		require.Equal(t, []any{made[0].ID, i > 0, i > 0}, []any{r.ID, r.Existing, r.Replaced})
	}
	require.NotEqual(t, made[0].ID, made[10].ID)
	require.Equal(t, `9`, string(b.task(made[0].ID).Context))
	again := b.submit(batch("k", 10)...)
	for _, r := range again[:10] {
		require.Equal(t, []any{made[0].ID, true}, []any{r.ID, r.Replaced})
	}
	journal, err := b.Attempts(t.Context(), tenant, made[0].ID)
	require.NoError(t, err)
	require.LessOrEqual(t, len(journal), 2)
	require.Equal(t, `19`, string(b.runNow(made[0].ID).Context))
	require.Equal(t, 2, b.live())
}

// A task that was not submitted to be replaced is replaced by one who may change tasks, and else
// keeps its key, also once it is final.
func TestReplaceOfATaskOfOthers(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.submit(withKey("k", `1`))[0].ID
	refused := func() {
		t.Helper()
		r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{replacing("k", `2`, 0, 0)})[0]
		require.Equal(t, asyncflow.CodeKeyReused, asyncflow.CodeOf(r.Err))
		require.ErrorContains(t, r.Err, "it takes the scope operate")
	}
	refused()
	operates := replacing("k", `3`, 0, 0)
	operates.Operates = true
	r := b.submit(operates)[0]
	require.Equal(t, []any{first, true}, []any{r.ID, r.Replaced})
	refused()
	require.Equal(t, `3`, string(b.lease(b.known(), 1)[0].Context))
	refused()
	require.NotEqual(t, first, b.submit(operates)[0].ID)
}

// Where no other task may be made, a submit replaces the one that is there, or is refused.
func TestReplaceOverAQuota(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	over := errors.New("over the quota")
	full := replacing("k", `2`, 0, 0)
	full.OnlyReplaces = over
	first := b.submit(replacing("k", `1`, time.Hour, 0))[0].ID
	require.True(t, b.submit(full)[0].Replaced)
	require.Equal(t, `2`, string(b.runNow(first).Context))
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{full})[0]
	require.ErrorIs(t, r.Err, over)
	require.Equal(t, 1, b.live())
}

// A task of a sealed roll is replaced, also by a node that doesn't know of the seal; one that was
// dropped is not.
func TestReplaceInAnOldRoll(t *testing.T) { eachSet(t, replaceInOldRoll) }

func replaceInOldRoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	late := behind(t, b)
	waits := b.submit(replacing("waits", `1`, time.Hour, 0))[0].ID
	ready := b.submit(replacing("ready", `1`, 0, 0))[0].ID
	b.roll()
	for _, node := range []*bundle{late, b} {
		for key, id := range map[string]asyncflow.TaskID{"waits": waits, "ready": ready} {
			r := node.submit(replacing(key, fmt.Sprintf("%q", key), 0, 0))[0]
			require.Equal(t, []any{id, true}, []any{r.ID, r.Replaced}, key)
		}
	}
	for _, l := range b.lease(b.known(), 10) {
		require.Equal(t, l.Options.Key, strings.Trim(string(l.Context), `"`))
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}
	b.checkTokens("pipe")
}

// A task of a roll that the node doesn't know of yet is replaced, while its own roll still takes
// tasks.
func TestReplaceInANewRoll(t *testing.T) { eachSet(t, replaceInNewRoll) }

func replaceInNewRoll(t *testing.T, b *bundle) {
	b.put(twoStages())
	late := behind(t, b)
	opened, err := b.OpenRoll(t.Context(), b.known().Set())
	require.NoError(t, err)
	require.True(t, opened)
	for key, delay := range map[string]time.Duration{"waits": time.Hour, "ready": 0} {
		first := b.submit(replacing(key, `1`, delay, 0))[0].ID
		require.Equal(t, 2, first.Position())
		r := late.submit(replacing(key, `2`, delay, 0))[0]
		require.Equal(t, []any{first, true}, []any{r.ID, r.Replaced}, key)
	}
	b.checkTokens("pipe")
}

// What a replaced task meets: a change beside it, dependencies, a rerun, a pause of its type.
func TestReplaceMeets(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	replace := func(key, context string) store.Submitted {
		return b.submit(replacing(key, context, time.Hour, 0))[0]
	}
	t.Run("a change", func(t *testing.T) {
		first := replace("changed", `1`)
		b.change(first.ID, edit(`"by hand"`))
		require.True(t, replace("changed", `2`).Replaced)
		require.Equal(t, `2`, string(b.runNow(first.ID).Context))
	})
	t.Run("a rerun", func(t *testing.T) {
		first := replace("rerun", `1`).ID
		replace("rerun", `2`)
		b.settle(pipe, b.runNow(first), asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		task, err := b.Rerun(t.Context(), tenant, first)
		require.NoError(t, err)
		require.Equal(t, []any{`2`, "", false}, []any{string(task.Context), task.Options.Key,
			task.Options.Replaceable})
	})
	t.Run("dependencies", func(t *testing.T) {
		on := b.submit(asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(`1`),
			Delay: asyncflow.NewDuration(time.Hour)})[0].ID
		task := withKey("depends", `1`)
		task.DependsOn = []asyncflow.Dependency{{Task: on}}
		first := b.submit(task)[0].ID
		operates := replacing("depends", `2`, 0, 0)
		operates.Operates = true
		r := b.submit(operates)[0]
		require.Equal(t, []any{first, true}, []any{r.ID, r.Replaced})
		require.Equal(t, asyncflow.WaitDependencies, b.task(first).WaitsFor)
		task.OnConflict = asyncflow.ConflictReplace
		require.ErrorContains(t, task.Validate(b.Clock.Now(), 100),
			"replace and depends_on exclude each other")
		task = withKey("bound", `{}`)
		task.DependsOn = []asyncflow.Dependency{{Task: on}}
		task.Options.ContextFrom = asyncflow.ContextFromDependencies
		bound := b.submit(task)[0].ID
		operates.Options.Key = "bound"
		require.NotEqual(t, bound, b.submit(operates)[0].ID, "its context is made of theirs")
	})
}
