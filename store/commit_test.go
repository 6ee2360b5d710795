package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// stageDone is an outcome after which a task goes on with its next stage.
var stageDone = asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}

// insertions returns new tasks that are due, one for each context, with ids of the open roll.
func (b *bundle) insertions(t *store.Type, contexts ...string) []*store.Insertion {
	b.t.Helper()
	t, ids, err := b.AllotNumbers(b.t.Context(), t, len(contexts))
	require.NoError(b.t, err)
	now := b.Clock.Now()
	items := make([]*store.Insertion, len(contexts))
	for i, context := range contexts {
		items[i] = &store.Insertion{ID: asyncflow.NewTaskID(t.Name, t.End, ids[i]), Created: now,
			Context: json.RawMessage(context), Verdict: asyncflow.Verdict{Kind: asyncflow.Retry,
				Stage: t.Stages[0].Name, Attempt: 1, OrderTime: now, Reason: asyncflow.WaitDelay}}
	}
	return items
}

// leased makes new tasks begin with their insert.
func leased(items ...*store.Insertion) []*store.Insertion {
	for _, item := range items {
		item.Lease = &asyncflow.Lease{ID: item.ID, Seq: 1, Context: item.Context,
			OrderTime: item.Verdict.OrderTime}
		item.Lease.Stage, item.Lease.Attempt = item.Verdict.Stage, item.Verdict.Attempt
	}
	return items
}

// ending returns the end of a lease with an outcome.
func (b *bundle) ending(t *store.Type, l asyncflow.Lease, o asyncflow.Outcome) *store.Ending {
	return &store.Ending{Settlement: &asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(t.TaskType, l, o, b.Clock.Now())}}
}

// goesOn makes a task go on with its next stage at once.
func goesOn(e *store.Ending) *store.Ending {
	e.Next = &asyncflow.Lease{ID: e.Lease.ID, Seq: e.Lease.Seq + 1, OrderTime: e.Verdict.OrderTime}
	e.Next.Stage, e.Next.Attempt = e.Verdict.Stage, e.Verdict.Attempt
	return e
}

// endsOf returns when the leases of a type end, by the contexts of their tasks.
func (b *bundle) endsOf(t *store.Type) map[string]time.Time {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), fill(t, 1, `SELECT t.context::text, l.until
		FROM {lease} l JOIN {task} t ON t.type = l.type AND t.id = l.id WHERE l.type = {number}`))
	require.NoError(b.t, err)
	defer rows.Close()
	ends := map[string]time.Time{}
	for rows.Next() {
		var context string
		var until time.Time
		require.NoError(b.t, rows.Scan(&context, &until))
		ends[context] = until
	}
	require.NoError(b.t, rows.Err())
	return ends
}

// dump returns the contents of all tables of all tenants, except the numbers that were taken.
func (b *bundle) dump() (text string) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `
		SELECT string_agg(table_to_xml(c.oid, true, false, '')::text, '' ORDER BY c.oid) FROM pg_class c
		WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE starts_with(nspname, 'tenant_'))
		  AND relkind = 'r' AND relname NOT IN ('rolls', 'audit')`).Scan(&text))
	return text
}

// mixed holds the writes of one transaction for several types and tenants. Each type comes with
// tasks that begin at once and tasks that go in line, a lease with an end that moves, and leases
// that end: one of a final task, one with a next stage that goes in line, and one with a next stage
// that begins at once.
type mixed struct {
	types []*store.Type
	all   []*store.Writes
}

const (
	_ = iota // the leases of setupMixed, by what becomes of them: nothing of the first one
	extended
	fails
	advances
	keepsOn
)

// setupMixed puts types, with leases to end and to extend, and prepares the writes.
func setupMixed(b *bundle) *mixed {
	b.t.Helper()
	m := &mixed{}
	audits := twoStages()
	audits.Name = "audits"
	for _, put := range []struct {
		tenant string
		spec   asyncflow.TaskType
	}{{tenant, audits}, {tenant, twoStages()}, {"other", twoStages()}} {
		t := b.putOf(put.tenant, put.spec)
		items := leased(b.insertions(t,
			`"before"`, `"extended"`, `"fails"`, `"advances"`, `"keeps on"`)...)
		require.NoError(b.t, b.commit([]*store.Writes{{Type: t, New: items}}))
		fresh := b.insertions(t, `"new"`, `"delayed"`, `"begun"`)
		fresh[1].Verdict.OrderTime = b.Clock.Now().Add(time.Hour)
		leased(fresh[2])
		m.types = append(m.types, t)
		m.all = append(m.all, &store.Writes{Type: t, New: fresh,
			Extended: []*store.Extension{{ID: items[extended].ID, Seq: 1,
				Until: items[extended].Lease.Until.Add(time.Hour)}},
			Settled: []*store.Ending{
				b.ending(t, *items[fails].Lease,
					asyncflow.Outcome{Kind: asyncflow.OutcomeRejected}),
				b.ending(t, *items[advances].Lease, stageDone),
				goesOn(b.ending(t, *items[keepsOn].Lease, stageDone)),
			}})
	}
	return m
}

// check compares the tables of one type with the expected writes.
func (m *mixed) check(b *bundle, i int) {
	b.t.Helper()
	w, t := m.all[i], m.types[i]
	assert.True(b.t, w.Extended[0].Stands)
	ends := b.endsOf(t)
	assert.Len(b.t, ends, 4)
	assert.Contains(b.t, ends, `"before"`)
	assert.WithinDuration(b.t, w.Extended[0].Until, ends[`"extended"`], time.Microsecond)
	assert.WithinDuration(b.t, w.New[2].Lease.Until, ends[`"begun"`], time.Microsecond)
	assert.WithinDuration(b.t, w.Settled[2].Next.Until, ends[`"keeps on"`], time.Microsecond)
	for _, item := range w.New {
		task, err := b.Task(b.t.Context(), t.Tenant, item.ID)
		require.NoError(b.t, err)
		assert.Equal(b.t, string(item.Context), string(task.Context))
	}
	sums, rows := b.tallies(t.Tenant, t.Name)
	assert.Equal(b.t, tallied{Submitted: 8, Attempts: 3, Failures: 1, Failed: 1}, sums)
	assert.LessOrEqual(b.t, rows, 2, "a transaction adds a row")
	var got []string
	leases, _, err := b.Lease(b.t.Context(), t, 10)
	require.NoError(b.t, err)
	for _, l := range leases {
		got = append(got, string(l.Context)+" "+l.Stage)
	}
	assert.ElementsMatch(b.t, []string{`"new" first`, `"advances" second`}, got)
	if t.Tenant == tenant {
		b.checkTokens(t.Name)
	}
}

// Types of several tenants are written in one transaction, each by its tenant's role.
func TestCommitOfSeveralTenants(t *testing.T) { eachSetOn(t, setupTwo, commitOfSeveralTenants) }

func commitOfSeveralTenants(t *testing.T, b *bundle) {
	needsRoles(t)
	m := setupMixed(b)
	b.exec(`
		CREATE TABLE public.seen (role text, schema text, xid xid8);
		GRANT INSERT ON public.seen TO PUBLIC;
		CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  INSERT INTO public.seen VALUES (current_user, TG_TABLE_SCHEMA, pg_current_xact_id());
		  RETURN NULL;
		END $$;
		DO $$ DECLARE t regclass; BEGIN
		  FOR t IN SELECT oid FROM pg_class
		    WHERE relkind = 'r' AND relnamespace::regnamespace::text LIKE 'tenant\_%'
		    AND relname ~ '^(task|journal|ready)_.*[0-9]$|^(lease|wait|tallies)$'
		  LOOP
		    EXECUTE format('CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON %s
		      FOR EACH STATEMENT EXECUTE FUNCTION public.see()', t);
		  END LOOP;
		END $$`)
	require.NoError(t, b.commit(m.all))
	assert.Equal(t, 1, b.count(`SELECT count(DISTINCT xid) FROM public.seen`), "one transaction")
	for _, name := range []string{tenant, "other"} {
		role, err := b.RoleOf(t.Context(), name)
		require.NoError(t, err)
		var roles []string
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT array_agg(DISTINCT role) FROM public.seen WHERE schema = $1`,
			"tenant_"+name).Scan(&roles))
		assert.Equal(t, []string{role}, roles, name)
	}
	for i := range m.types {
		m.check(b, i)
	}
}

// offenders break the writes of a type. They return a function that repairs them.
var offenders = map[string]func(*bundle, *store.Writes) (repair func()){
	"a lease that stands no more": func(_ *bundle, w *store.Writes) func() {
		w.Settled[1].Lease.Seq++
		return func() { w.Settled[1].Lease.Seq-- }
	},
	"a task that has been inserted": func(b *bundle, w *store.Writes) func() {
		again := *w.New[0]
		require.NoError(b.t, b.commit([]*store.Writes{{Type: w.Type,
			New: []*store.Insertion{&again}}}))
		return func() {
			b.exec(fill(w.Type, 1, `DELETE FROM {task} WHERE id = $1`), again.ID.Number)
			b.exec(fill(w.Type, 1, `DELETE FROM {ready} WHERE id = $1`), again.ID.Number)
			b.exec(fill(w.Type, 1, `DELETE FROM {tallies} WHERE submitted = 1`))
		}
	},
	"a table that is locked": func(b *bundle, w *store.Writes) func() {
		return pgtest.Hold(b.t, b.url, fill(w.Type, 1, `LOCK TABLE {journal} IN EXCLUSIVE MODE`))
	},
	"data that Postgres refuses": func(b *bundle, w *store.Writes) func() {
		context := w.New[0].Context
		w.New[0].Context = json.RawMessage("\"\xff\"")
		return func() { w.New[0].Context = context }
	},
	"a table that refuses rows": func(b *bundle, w *store.Writes) func() {
		b.exec(fill(w.Type, 1, `ALTER TABLE {journal} ADD CONSTRAINT shut CHECK (false) NOT VALID`))
		return func() { b.exec(fill(w.Type, 1, `ALTER TABLE {journal} DROP CONSTRAINT shut`)) }
	},
	"a roll that is not there": func(b *bundle, w *store.Writes) func() {
		lost := w.New[0].ID
		w.New[0].ID = asyncflow.NewTaskID(lost.Type, 2, 1)
		return func() { w.New[0].ID = lost }
	},
	"another tenant's role": func(b *bundle, w *store.Writes) func() {
		needsRoles(b.t)
		swap := func(role string) {
			b.exec(`UPDATE asyncflow.tenants SET role = $1 WHERE slug = $2`, role, w.Type.Tenant)
			require.NoError(b.t, b.Catalog.Refresh(b.t.Context()))
		}
		own, err := b.RoleOf(b.t.Context(), w.Type.Tenant)
		require.NoError(b.t, err)
		swap(b.BaseRole())
		return func() { swap(own) }
	},
}

// If one type can't be written, none is, and all can be written later. The writes of its tenant are
// refused, and no others.
func TestCommitIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, offend := range offenders {
		t.Run(name, func(t *testing.T) {
			t.Run("of the last tenant", func(t *testing.T) {
				eachSetOn(t, setupTwo, func(t *testing.T, b *bundle) {
					allOrNothing(t, b, name, offend, 2)
				})
			})
			t.Run("of the first tenant", func(t *testing.T) {
				if !strings.Contains(name, "role") {
					longform.Costly(t)
				}
				allOrNothing(t, setupTwo(t), name, offend, 1)
			})
		})
	}
}

func allOrNothing(
	t *testing.T, b *bundle, name string, offend func(*bundle, *store.Writes) func(), at int,
) {
	m := setupMixed(b)
	repair := offend(b, m.all[at])
	before := b.dump()
	refused, err := b.Commit(t.Context(), m.all)
	require.Error(t, err)
	fault, others := store.Refused{From: 0, To: 2}, m.all[2:]
	if at == 2 {
		fault, others = store.Refused{From: 2, To: 3}, m.all[:2]
	}
	if strings.Contains(name, "locked") || strings.Contains(name, "not there") ||
		strings.Contains(name, "role") && at == 1 {
		assert.Zero(t, refused, "statements of which could not be prepared isn't known")
	} else {
		assert.Equal(t, fault, refused)
	}
	assert.Equal(t, before, b.dump(), "nothing was changed")
	require.NoError(t, b.commit(others), "it is the other tenant's fault")
	if strings.Contains(name, "role") {
		assert.Equal(t, "42501", sqlState(b.commit(m.all[fault.From:fault.To])))
	}
	repair()
	require.NoError(t, b.commit(m.all[fault.From:fault.To]))
	for i := range m.types {
		m.check(b, i)
	}
}

// Several types don't wait for long when a table of one of them is locked.
func TestCommitOfSeveralWaitsBriefly(t *testing.T) {
	b := setupTwo(t)
	require.NoError(t, b.commit(setupMixed(b).all)) // its statements are prepared now
	m := setupMixed(b)
	defer offenders["a table that is locked"](b, m.all[2])()
	began := time.Now()
	err := b.commit(m.all)
	require.True(t, store.IsHeld(err), "%v", err)
	assert.Less(t, time.Since(began), patience/2)
}

// An unanswered commit with leases leaves a doubt, until a lease finds that the database answers
// again. A refused commit leaves none, nor does one without leases.
func TestCommitLeavesADoubt(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	other := twoStages()
	other.Name = "audits"
	audits := b.put(other)
	commit := func(items []*store.Insertion) {
		t.Helper()
		require.Error(t, b.commit([]*store.Writes{{Type: audits}, {Type: pipe, New: items}}))
	}
	refused := leased(b.insertions(pipe, `1`)...)
	refused[0].Context = json.RawMessage("\"\xff\"")
	commit(refused)
	assert.False(t, b.HasUnknownLeases(tenant), "it was refused")
	b.exec(`CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
		$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$`)
	b.exec(`CREATE TRIGGER die AFTER INSERT ON tenant_acme.task_1 EXECUTE FUNCTION public.die()`)
	commit(b.insertions(pipe, `1`))
	assert.False(t, b.HasUnknownLeases(tenant), "there was no lease")
	commit(leased(b.insertions(pipe, `1`)...))
	assert.True(t, b.HasUnknownLeases(tenant))
	b.exec(`DROP TRIGGER die ON tenant_acme.task_1`)
	require.Empty(t, b.lease(pipe, 1))
	assert.False(t, b.HasUnknownLeases(tenant))
}
