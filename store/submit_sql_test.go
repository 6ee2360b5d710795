package store_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// app connects as a role that was granted submit_task and send_signal of the tenant, and nothing
// else.
func (b *bundle) app() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	role := appRole(b.t, b)
	for _, sql := range []string{
		`DO $$ BEGIN CREATE ROLE ` + role + `; EXCEPTION WHEN duplicate_object THEN END $$`,
		`GRANT USAGE ON SCHEMA tenant_acme TO ` + role,
		`GRANT EXECUTE ON FUNCTION tenant_acme.submit_task TO ` + role,
		`GRANT EXECUTE ON FUNCTION tenant_acme.send_signal TO ` + role,
		`SET ROLE ` + role,
	} {
		_, err := conn.Exec(b.t.Context(), sql)
		require.NoError(b.t, err)
	}
	b.t.Cleanup(func() {
		_, err := b.db.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		if sqlState(err) != pgerrcode.UndefinedObject { // dropped with another connection
			assert.NoError(b.t, err)
		}
	})
	return conn
}

// appRole returns the name of that role, quoted.
func appRole(t *testing.T, b *bundle) string {
	t.Helper()
	var name string
	require.NoError(t,
		b.db.QueryRow(t.Context(), `SELECT quote_ident(current_database() || '_app')`).Scan(&name))
	return name
}

// bySQL submits a task and returns its id.
func (b *bundle) bySQL(q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, args string) (asyncflow.TaskID, error) {
	b.t.Helper()
	var text string
	if err := q.QueryRow(b.t.Context(),
		`SELECT tenant_acme.submit_task(`+args+`)`).Scan(&text); err != nil {
		return asyncflow.TaskID{}, err
	}
	id, err := asyncflow.ParseTaskID(text)
	require.NoError(b.t, err)
	return id, nil
}

// A task exists exactly when its transaction is committed, and then runs like any other.
func TestSQLSubmit(t *testing.T) { eachSet(t, sqlSubmit) }

func sqlSubmit(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	tx, err := b.app().Begin(t.Context())
	require.NoError(t, err)
	id, err := b.bySQL(tx, `'pipe', '{"a": 1}'`)
	require.NoError(t, err)
	_, err = b.Task(t.Context(), tenant, id)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "not yet")
	require.NoError(t, tx.Commit(t.Context()))
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusPending, task.Status)
	assert.Equal(t, "first", task.Stage)
	leases := b.lease(pipe, 10)
	require.Len(t, leases, 1)
	assert.Equal(t, `{"a": 1}`, string(leases[0].Context), "byte by byte")
	b.settle(pipe, leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats[0].Failed)
}

func TestSQLSubmitRollback(t *testing.T) { eachSet(t, sqlSubmitRollback) }

func sqlSubmitRollback(t *testing.T, b *bundle) {
	b.put(twoStages())
	app := b.app()
	tx, err := app.Begin(t.Context())
	require.NoError(t, err)
	kept, err := b.bySQL(tx, `'pipe', '1'`)
	require.NoError(t, err)
	inner, err := tx.Begin(t.Context())
	require.NoError(t, err)
	gone, err := b.bySQL(inner, `'pipe', '2', key => 'k'`)
	require.NoError(t, err)
	require.NoError(t, inner.Rollback(t.Context()))
	last, err := b.bySQL(tx, `'pipe', '3', key => 'k'`)
	require.NoError(t, err, "the key is free again")
	require.NoError(t, tx.Commit(t.Context()))
	tx, err = app.Begin(t.Context())
	require.NoError(t, err)
	never, err := b.bySQL(tx, `'pipe', '4'`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))

	for _, id := range []asyncflow.TaskID{gone, never} {
		_, err = b.Task(t.Context(), tenant, id)
		require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
	var got []string
	for _, l := range b.lease(b.known(), 10) {
		got = append(got, l.ID.String())
	}
	assert.Equal(t, []string{kept.String(), last.String()}, got)
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats[0].Running)
}

// Submits by SQL read a type's retention as Postgres does: each text that is kept as it was written
// means the same there.
func TestSQLReadsDurationsAsWritten(t *testing.T) {
	b := setup(t)
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`([0-9]{1,9}h)?([0-9]{1,9}\.[0-9]{1,6}m)?([0-9]{1,9}s)?`+
			`([0-9]{1,9}(\.[0-9]{1,3})?ms)?([0-9]{1,4}us)?`).Draw(r, "text")
		var d asyncflow.Duration
		if d.UnmarshalText([]byte(text)) != nil || d.Text() != text {
			r.Skip()
		}
		var seconds float64
		require.NoError(r, b.db.QueryRow(t.Context(),
			`SELECT extract(epoch FROM $1::text::interval)::float8`, text).Scan(&seconds), text)
		require.InDelta(r, d.Std().Seconds(), seconds, 1e-5, text)
	})
	spec := twoStages()
	require.NoError(t, spec.Retention.UnmarshalText([]byte("90.5m")))
	b.put(spec)
	var id string
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT tenant_acme.submit_task('pipe', '1', key => 'k')`).Scan(&id))
	require.NotEmpty(t, id)
}

// A task's row, and the place of its token row, are as after a submit through a node.
func TestSQLSubmitOptions(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.Stages[0].Priority = 30
	spec.Flow = &asyncflow.Flow{Ordered: true}
	b.put(spec)
	app := b.app()
	now := b.Clock.Now()
	for name, c := range map[string]struct {
		args    string
		options asyncflow.Options
		status  asyncflow.Status
		order   time.Time
	}{
		"the stage's priority": {`'pipe', '1'`, asyncflow.Options{}, asyncflow.StatusPending,
			now.Add(-30 * time.Second)},
		"its own": {`'pipe', '1', priority => 100`,
			asyncflow.Options{Priority: asyncflow.Priority{100}}, asyncflow.StatusPending,
			now.Add(-100 * time.Second)},
		"no head start": {`'pipe', '1', priority => 0`,
			asyncflow.Options{Priority: asyncflow.Priority{0}}, asyncflow.StatusPending, now},
		"soon": {`'pipe', '1', priority => 100, run_at => clock_timestamp() + interval '40s'`,
			asyncflow.Options{Priority: asyncflow.Priority{100}}, asyncflow.StatusPending,
			now.Add(40 * time.Second)},
		"later": {`'pipe', '1', run_at => clock_timestamp() + interval '1h'`,
			asyncflow.Options{}, asyncflow.StatusWaiting, now.Add(time.Hour)},
		"in the past": {`'pipe', '1', run_at => '-infinity'`, asyncflow.Options{},
			asyncflow.StatusPending, now.Add(-30 * time.Second)},
		"keys": {`'pipe', '1', key => 'k"ä', flow_key => 'f'`,
			asyncflow.Options{Key: `k"ä`, FlowKey: "f"}, asyncflow.StatusPending,
			now.Add(-30 * time.Second)},
	} {
		id, err := b.bySQL(app, c.args)
		require.NoError(t, err, name)
		task, err := b.Task(t.Context(), tenant, id)
		require.NoError(t, err, name)
		assert.Equal(t, c.options, task.Options, name)
		assert.Equal(t, c.status, task.Status, name)
		assert.WithinDuration(t, c.order, task.OrderTime, 20*time.Second, name)
		var bare bool
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT options IS NULL FROM tenant_acme.task_1 WHERE id = $1`, id.Number).Scan(&bare))
		assert.Equal(t, c.options.IsZero(), bare, name)
		var flow *string
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT key
				FROM (SELECT id, key FROM tenant_acme.ready_1
				  UNION ALL SELECT id, key FROM tenant_acme.wait) r
			WHERE id = $1`, id.Number).Scan(&flow))
		assert.Equal(t, c.options.FlowKey != "", flow != nil, name)
	}
}

// Lists show the tasks of all rolls, however they were submitted and however the list is bounded
// by time.
func TestSQLSubmitIsListed(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	app := b.app()
	var want []string
	for range 2 {
		var node, bySQL []string
		for range 2 {
			node = append([]string{b.submit(newTask(`1`))[0].ID.String()}, node...)
			id, err := b.bySQL(app, `'pipe', '1'`)
			require.NoError(t, err)
			bySQL = append([]string{id.String()}, bySQL...)
		}
		want = append(append(bySQL, node...), want...)
		b.rollAndClear()
	}
	list := func(f store.Filter) (ids []string) {
		f.Type, f.Limit = "pipe", cmp.Or(f.Limit, 100)
		tasks, err := b.Tasks(t.Context(), tenant, f)
		require.NoError(t, err)
		for _, task := range tasks {
			ids = append(ids, task.ID.String())
		}
		return ids
	}
	assert.Equal(t, want, list(store.Filter{}))
	assert.Equal(t, want, list(store.Filter{Status: asyncflow.StatusFailed}))
	var paged []string
	for before := int64(0); ; {
		page := list(store.Filter{Limit: 3, After: before})
		paged = append(paged, page...)
		if len(page) < 3 {
			break
		}
		last, err := asyncflow.ParseTaskID(page[2])
		require.NoError(t, err)
		before = last.Number
	}
	assert.Equal(t, want, paged)
	for _, f := range []store.Filter{{}, {Status: asyncflow.StatusFailed},
		{Since: b.Clock.Now().Add(-time.Hour)}, {Until: b.Clock.Now().Add(time.Hour)}} {
		f.Type, f.Limit = "pipe", 3
		b.sameBackwards(f)
	}

	b.exec(`UPDATE tenant_acme.task_2 SET created_at = created_at - interval '1 day'
		WHERE id & $1 > 0`, asyncflow.FirstBySQL)
	b.exec(`UPDATE tenant_acme.task_1 SET created_at = created_at - interval '2 days'`)
	assert.Equal(t, want[2:4], list(store.Filter{Since: b.Clock.Now().Add(-time.Hour)}),
		"old ones by SQL don't hide what comes after them")
	f := store.Filter{Type: "pipe", Limit: 3, Since: b.Clock.Now().Add(-time.Hour)}
	b.sameBackwards(f)
	f.Since, f.Until = time.Time{}, b.Clock.Now().Add(-time.Hour)
	require.Len(t, b.allPages(f), 6)
	b.sameBackwards(f)
	b.exec(`UPDATE tenant_acme.task_2 SET created_at = now() - interval '1 day'`)
	assert.Empty(t, list(store.Filter{Since: b.Clock.Now().Add(-time.Hour)}))
}
