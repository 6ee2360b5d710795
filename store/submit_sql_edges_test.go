package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A task that depends on others is submitted exactly when its transaction is committed.
func TestSQLSubmitWithDependencies(t *testing.T) { eachSet(t, sqlSubmitWithDependencies) }

func sqlSubmitWithDependencies(t *testing.T, b *bundle) {
	b.put(base())
	b.put(twoStages())
	other := b.submit(newBase(""))[0].ID
	app := b.app()
	on := fmt.Sprintf(`[{"task": %q}, {"type": "base", "key": "k", "wait_for": "1h"}]`, other)
	tx, err := app.Begin(t.Context())
	require.NoError(t, err)
	_, err = b.bySQL(tx, `'pipe', '1', depends_on => '`+on+`'`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.edges`))

	id, err := b.bySQL(app, `'pipe', '{"a": 1}', priority => 100, depends_on => '`+on+`',
		context_from => 'dependencies'`)
	require.NoError(t, err)
	task := b.comesTo(id, asyncflow.StatusWaiting)
	assert.Equal(t, asyncflow.WaitDependencies, task.WaitsFor)
	assert.Equal(t, asyncflow.Options{Priority: asyncflow.Priority{100}, DependsOn: 2,
		ContextFrom: "dependencies"}, task.Options)
	require.Len(t, task.Dependencies, 2)
	assert.Equal(t, other, task.Dependencies[0].Task)
	assert.Equal(t, asyncflow.DependentFails, task.Dependencies[0].OnFailure)
	assert.False(t, task.Dependencies[1].Until.IsZero())
	eventually(t, "the type is awaited, so that nodes tell of ends", func() bool {
		b.followUp()
		kind, err := b.Catalog.Type(tenant, "base")
		require.NoError(t, err)
		return kind.Awaited()
	})

	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	_, err = b.bySQL(app, `'base', '2', key => 'k'`)
	require.NoError(t, err)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.comesTo(id, asyncflow.StatusPending)
	leases := b.leaseAll(b.known(), 1)
	assert.Equal(t, fmt.Sprintf(`{"context":{"a": 1},"dependencies":[`+
		`{"status":"succeeded","id":"%s","output":{"of": "base"}},`+
		`{"status":"succeeded","id":"%s","key":"k","output":2}]}`, other,
		b.task(id).Dependencies[1].Task), string(leases[0].Context))
	b.checkTokens("pipe")
}

// Nodes hear of such a task, and look at it at once: what it depends on may have ended before.
func TestSQLDependentOnAnEndedTask(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase("k"))[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	app := b.app()
	for _, on := range []string{fmt.Sprintf(`{"task": %q}`, other),
		`{"type": "base", "key": "k"}`} {
		id, err := b.bySQL(app, `'pipe', '1', depends_on => '[`+on+`]'`)
		require.NoError(t, err)
		b.comesTo(id, asyncflow.StatusPending)
	}
}

// rowQuerier is a connection or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// sqlRefusal is how submit_task refuses a task.
func (b *bundle) sqlRefusal(q rowQuerier, args string) *pgconn.PgError {
	b.t.Helper()
	_, err := b.bySQL(q, args)
	var refusal *pgconn.PgError
	require.ErrorAs(b.t, err, &refusal)
	return refusal
}

func TestSQLRefusesBadDependencies(t *testing.T) {
	b := setupEdges(t)
	known := b.submit(newBase(""))[0].ID
	app := b.app()
	unknown, gone := known, known
	unknown.Number += 1 << 20
	gone.Number = 1<<60 + 1
	for message, on := range map[string]string{
		"depends_on[1] is the task itself": `{"type":"base","key":"x"},{"type":"pipe","key":"own"}`,
		"depends_on[0] names the task " + unknown.String() + ", which doesn't exist": `{"task":"` +
			unknown.String() + `"}`,
		"depends_on[1] names the task " + gone.String() + ", which doesn't exist": `{"task":"` +
			known.String() + `"},{"task":"` + gone.String() + `"}`,
		"depends_on[0] names the task type nothing, which doesn't exist": `{"type":"nothing","key":"k"}`,
	} {
		got := b.sqlRefusal(app, `'pipe', '1', key => 'own', depends_on => '[`+on+`]'`)
		assert.Equal(t, []string{"23503", "invalid_dependency", message, message[:13]},
			[]string{got.Code, got.Detail, got.Message, got.ColumnName})
	}
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.edges`))
}

func TestSQLRefusesCyclesAndLongChains(t *testing.T) {
	b := setupEdges(t)
	app := b.app()
	submit := func(q rowQuerier, key, on string) {
		t.Helper()
		_, err := b.bySQL(q, fmt.Sprintf(`'pipe', '1', key => '%s', depends_on => '[{"type": "pipe",
			"key": "%s"}]'`, key, on))
		require.NoError(t, err)
	}
	tx, err := app.Begin(t.Context())
	require.NoError(t, err)
	submit(tx, "a", "b")
	submit(tx, "b", "c")
	got := b.sqlRefusal(tx, `'pipe', '1', key => 'c', depends_on => '[{"type": "pipe", "key": "y"},
		{"type": "pipe", "key": "a"}]'`)
	assert.Equal(t, "depends_on[1] makes a cycle: that task waits for this one", got.Message)
	require.NoError(t, tx.Rollback(t.Context()))

	first := newTask(`1`)
	first.Options.Key = "high-0"
	b.submit(first)
	for i := range asyncflow.MaxDependencyDepth / 2 { // they wait for the next one
		submit(app, fmt.Sprint("low-", i), fmt.Sprint("low-", i+1))
	}
	for i := range asyncflow.MaxDependencyDepth / 2 { // and these for the one before
		submit(app, fmt.Sprint("high-", i+1), fmt.Sprint("high-", i))
	}
	join := fmt.Sprintf(`'pipe', '1', key => 'low-%d', depends_on => '[{"type": "pipe", "key": "z"},
		{"type": "pipe", "key": "high-%d"}]'`, asyncflow.MaxDependencyDepth/2,
		asyncflow.MaxDependencyDepth/2)
	got = b.sqlRefusal(app, join)
	assert.Equal(t, "depends_on[1] makes a chain of more than 100 dependencies", got.Message)
	task := dependent(asyncflow.Dependency{Type: "pipe", Key: "z"},
		asyncflow.Dependency{Type: "pipe",
			Key: fmt.Sprint("high-", asyncflow.MaxDependencyDepth/2)})
	task.Options.Key = fmt.Sprint("low-", asyncflow.MaxDependencyDepth/2)
	refused := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0].Err
	require.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(refused), "the API sees it, too")
	assert.Equal(t, "depends_on[1]", fieldsOf(refused)[0].Field)
	task.DependsOn[1].Key = fmt.Sprint("high-", asyncflow.MaxDependencyDepth/2-1)
	b.submit(task)
}

// Two transactions that don't see each other make a cycle. A node finds it after the commit.
func TestACycleOfTwoTransactionsFails(t *testing.T) {
	b := setupEdges(t)
	var txs []pgx.Tx
	var ids []asyncflow.TaskID
	for _, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		id, err := b.bySQL(tx, fmt.Sprintf(`'pipe', '1', key => '%s', depends_on => '[{"type": "pipe",
			"key": "%s", "on_failure": "run"}]'`, keys[0], keys[1]))
		require.NoError(t, err)
		txs, ids = append(txs, tx), append(ids, id)
	}
	for _, tx := range txs {
		require.NoError(t, tx.Commit(t.Context()))
	}
	var failed, released int
	for _, id := range ids {
		require.Eventually(t, func() bool {
			b.followUp()
			return b.task(id).Status != asyncflow.StatusWaiting
		}, patience, 250*time.Millisecond, "%s waits no more", id)
		switch task := b.task(id); task.Status {
		case asyncflow.StatusFailed:
			failed++
			assert.Equal(t, "depends_on[0] makes a cycle: that task waits for this one", task.Error)
		case asyncflow.StatusPending:
			released++
		}
	}
	assert.Equal(t, []int{1, 1}, []int{failed, released})
	b.checkTokens("pipe")
}
