package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Databases that go back: later writes are lost.
var goingBack = map[string]func(*testing.T, *devpg.Server) (again func() *devpg.Server){
	"a standby that lags is promoted": func(t *testing.T, primary *devpg.Server) func() *devpg.Server {
		standby := pgtest.Standby(t, primary)
		require.NoError(t, standby.Stop(t.Context())) // it gets nothing from now on
		return func() *devpg.Server {
			cfg := standby.Config()
			cfg.Port = primary.Config().Port
			standby := pgtest.Server(t, cfg)
			conn, err := pgx.Connect(t.Context(), standby.URL("postgres"))
			require.NoError(t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(t.Context(), `SELECT pg_promote()`)
			require.NoError(t, err)
			return standby
		}
	},
	"a backup is restored": func(t *testing.T, primary *devpg.Server) func() *devpg.Server {
		backup := pgtest.Backup(t, primary)
		return func() *devpg.Server { return pgtest.Restore(t, backup, primary) }
	},
}

// No id names two tasks when the database goes back, whether the same node goes on or a new one
// starts. This holds for tasks submitted by the API and by SQL, for types that rolled, were
// created again or are new since, and for a new tenant.
func TestIdsNeverComeAgain(t *testing.T) {
	t.Parallel()
	for name, back := range goingBack {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "standby") {
				longform.Costly(t)
			}
			t.Parallel()
			primary := pgtest.PreparedServer(t, prepare)
			ids := ids{t, map[string]string{}}
			b := open(t, primary.URL("postgres"), "node-1")
			b.put(twoStages())
			b.put(named("remade"))
			ids.of(b, tenant, "before", "pipe", "remade")
			again := back(t, primary)
			for range 3 {
				ids.of(b, tenant, "lost", "pipe", "remade")
			}
			b.lead(ids)
			require.NoError(t, primary.Kill())

			restored := again()
			b.db.Reset()
			eventually(t, "the node goes on", func() bool {
				return b.Submit(context.Background(), tenant,
					[]asyncflow.NewTask{newTask(`"first"`)})[0].Err == nil
			})
			for _, node := range []*bundle{b, open(t, restored.URL("postgres"), "node-2")} {
				require.NoError(t, node.Catalog.Refresh(t.Context()))
				ids.of(node, tenant, "after", "pipe", "remade")
			}
			b.lead(ids)
			assert.Greater(t, len(ids.seen), 40)
		})
	}
}

// ids are the ids of all tasks that ever existed, each with the time in words.
type ids struct {
	t    *testing.T
	seen map[string]string
}

// of submits some tasks of a tenant over the API and by SQL.
func (ids ids) of(b *bundle, tenant, when string, types ...string) {
	ids.t.Helper()
	for _, name := range types {
		task := newTask(`1`)
		task.Type = name
		for _, r := range b.Submit(ids.t.Context(), tenant, []asyncflow.NewTask{task, task}) {
			require.NoError(ids.t, r.Err, "%s: %s", when, name)
			ids.add(tenant, r.ID.String(), when)
		}
		for range 2 {
			var id string
			require.NoError(ids.t, b.db.QueryRow(ids.t.Context(),
				`SELECT `+pgx.Identifier{"tenant_" + tenant, "submit_task"}.Sanitize()+`($1, '1')`,
				name).Scan(&id))
			ids.add(tenant, id, when)
		}
	}
}

func (ids ids) add(tenant, id, when string) {
	ids.t.Helper()
	if before, ok := ids.seen[tenant+" "+id]; ok {
		assert.Fail(ids.t, "an id names two tasks", "%s of %s: %s, and %s", id, tenant, before,
			when)
	}
	ids.seen[tenant+" "+id] = when
}

// named returns a type of that name.
func named(name string) asyncflow.TaskType {
	t := twoStages()
	t.Name = name
	return t
}

// lead rolls a type, creates another one again, and creates a new type and a new tenant.
func (b *bundle) lead(ids ids) {
	b.t.Helper()
	ctx := b.t.Context()
	_, err := b.OpenRoll(ctx, b.known().Set())
	require.NoError(b.t, err)
	remade, err := b.Catalog.Type(tenant, "remade")
	require.NoError(b.t, err)
	eventually(b.t, "all of its tasks are final", func() bool {
		b.settleAll(remade, b.lease(remade, 1000), rejected)
		return b.DeleteTaskType(ctx, tenant, "remade", false) == nil
	})
	b.put(named("remade"))
	b.put(named("new"))
	ids.of(b, tenant, "of what is new", "pipe", "remade", "new")
	_, err = b.CreateTenant(ctx, "late", asyncflow.Quotas{})
	require.NoError(b.t, err)
	_, _, err = b.PutTaskType(ctx, "late", named("pipe"))
	require.NoError(b.t, err)
	ids.of(b, "late", "of a new tenant", "pipe")
}

// In another incarnation of the database a type gets one new roll, however many callers submit at
// once. Before that, submits by SQL are refused.
func TestOtherIncarnationOpensOneRoll(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	app := b.app()
	b.submit(newTask(`1`))
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.rolls SET history = 'lost'; UPDATE tenant_acme.numbering
			SET history = 'lost'`)
	require.NoError(t, err)
	b.ForgetNumbers()

	_, err = b.bySQL(app, `'pipe', '1'`)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, pgerrcode.SerializationFailure, refused.Code)
	assert.Contains(t, refused.Message, "has failed over")

	var wg sync.WaitGroup
	for _, node := range []*bundle{b, far} {
		for range 20 {
			wg.Go(func() {
				r := node.Submit(t.Context(), tenant, []asyncflow.NewTask{newTask(`1`)})[0]
				if assert.NoError(t, r.Err) {
					assert.Equal(t, 2, r.ID.Position())
					assert.GreaterOrEqual(t, r.ID.Sequence(), int64(1)<<36)
				}
			})
		}
	}
	waitAll(t, &wg)
	assert.Equal(t, 2, b.known().End)
	id, err := b.bySQL(app, `'pipe', '1'`)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, id.Sequence(), int64(asyncflow.FirstBySQL)+1<<36)
	leased := 0
	eventually(t, "tasks of both incarnations are leased", func() bool {
		leased += len(b.lease(b.known(), 100))
		return leased == 42
	})
}

// A database whose incarnation can't be read takes tasks nonetheless.
func TestIncarnationThatMayNotBeRead(t *testing.T) {
	b := setup(t)
	_, err := b.db.Exec(t.Context(),
		`REVOKE EXECUTE ON FUNCTION pg_control_system, pg_walfile_name, pg_current_wal_lsn FROM PUBLIC`)
	require.NoError(t, err)
	b.put(twoStages())
	first := b.submit(newTask(`1`))[0].ID
	b.ForgetNumbers()
	assert.Equal(t, first.Position(), b.submit(newTask(`1`))[0].ID.Position())
	_, err = b.bySQL(b.app(), `'pipe', '1'`)
	require.NoError(t, err)
}

// A batch for a roll of a lost incarnation goes to the open roll.
func TestSubmitToALostRoll(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	first := b.submit(newTask(`1`))[0].ID
	for _, more := range []int{0, 1} { // rolls that were opened since
		lost := b.insertions(b.known(), `1`)
		lost[0].ID = asyncflow.NewTaskID("pipe", first.Position()+1+more, 1)
		require.True(t, store.RolledOn(b.InsertAgain(t.Context(), b.known(), lost)))
		now, left, err := b.Renumber(t.Context(), b.known(), lost)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, b.InsertAgain(t.Context(), now, left))
		assert.Equal(t, first.Position(), left[0].ID.Position())
		assert.Equal(t, asyncflow.StatusPending, b.task(left[0].ID).Status)
	}
}
