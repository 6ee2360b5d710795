package store_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// An operation runs tasks again with contexts that it patches: each once, also if a step dies
// before it wrote how far it came. Contexts that are no objects are skipped. Nodes of the version
// before leave the operation alone.
func TestRerunsWithPatchedContexts(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(twoStages())
		var tasks []asyncflow.NewTask
		for i := range 150 {
			tasks = append(tasks,
				newTask(fmt.Sprintf(`{"n": %d.0, "footer": {"a":"old","b":1}}`, i)))
		}
		results := b.submit(append(tasks, newTask(`"text"`), newTask(`[{"n":1}]`))...)
		b.settleAll(pipe, b.lease(pipe, 200), rejected)
		patch := json.RawMessage(` {"footer": {"a":"<new>"}, "gone": null}`)
		started, due := b.start(store.RerunTasks, store.NewOperation{ContextPatch: patch})
		require.Equal(t, patch, b.operation(due).ContextPatch, "as it was written")
		require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.operations
			WHERE kind = 'rerun_chosen'`), "a kind that nodes of the version before don't know")
		b.exec(`CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE 'crash'; END $$;
			CREATE TRIGGER crash BEFORE UPDATE OF position ON tenant_acme.operations
			FOR EACH ROW EXECUTE FUNCTION crash()`)
		for range 2 {
			_, err := b.StepOperation(t.Context(), due, b.Submit)
			require.ErrorContains(t, err, "crash")
			b.exec(`UPDATE tenant_acme.operations SET next_at = created_at`)
		}
		b.exec(`DROP TRIGGER crash ON tenant_acme.operations`)
		assert.Equal(t, []any{store.OperationDone, int64(152), int64(150), int64(2)},
			figures(b.finish(due)))
		made, others := b.reruns()
		assert.Equal(t, []int{150, 150}, []int{made, others})
		for i, r := range results[:150] {
			task, err := b.RerunByKey(t.Context(), tenant, r.ID,
				fmt.Sprintf("rerun:%s:%d", started.ID, r.ID.Number))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf(`{"n":%d.0,"footer":{"a":"<new>","b":1}}`, i),
				string(task.Context))
		}
		require.Equal(t, `{"n": 0.0, "footer": {"a":"old","b":1}}`,
			string(b.task(results[0].ID).Context), "the old ones stay as they are")
	})
}

// A patch makes no context longer than the node allows, however often reruns are run again. A
// context that is over the limit already stays so, unless it would grow.
func TestPatchedContextsKeepToTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 100
	url := pgtest.Database(t, prepare)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n", Notify: true, Pool: 4,
		HotPool: 4, MaxContext: limit, NoRoles: pgtest.NoRoles(),
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	b := keepRunning(t, s, url)
	pipe := b.put(twoStages())
	tasks := 0
	for _, size := range []int{limit - 10, limit - 7, limit - 6, limit, limit + 1} {
		pad := strings.Repeat("x", size-len(`{"pad":""}`))
		b.submit(newTask(`{"pad":"` + pad + `"}`))
		tasks++
	}
	b.settleAll(pipe, b.leaseAll(pipe, tasks), rejected)
	for _, c := range []struct {
		patch string
		done  int
	}{
		{`{"a":10}`, 2}, // 7 bytes more: of all but the first two it is too long
		{`{"b":10}`, 2}, // again of these two, and not of their reruns
		{`{"pad":"` + strings.Repeat("x", limit) + `"}`, 0},
		{`{"gone":null}`, 9},
	} {
		_, due := b.start(store.RerunTasks,
			store.NewOperation{ContextPatch: json.RawMessage(c.patch)})
		assert.Equal(t, []any{store.OperationDone, int64(tasks), int64(c.done),
			int64(tasks - c.done)}, figures(b.finish(due)), c.patch)
		b.settleAll(pipe, b.leaseAll(pipe, c.done), rejected)
		tasks += c.done
	}
	require.Equal(t, limit+1, b.count(b.at(1, `SELECT max(length(context)) FROM {task}`)))
}
