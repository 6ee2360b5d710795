package store_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// takeLock takes a lock of the test's tenant, as a node does.
func takeLock(t *testing.T, tx pgx.Tx, name string, number int) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `INSERT INTO tenant_acme.locks VALUES ($1, $2)
		ON CONFLICT DO NOTHING`, name, number)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.locks WHERE name = $1 AND number = $2
		FOR UPDATE`, name, number)
	require.NoError(t, err)
}

// stranger is the connection of a new login role without rights.
func (b *bundle) stranger() *pgx.Conn {
	b.t.Helper()
	role := fmt.Sprintf("stranger_%d", rand.Int64())
	b.exec(fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'secret'`, role))
	cfg, err := pgx.ParseConfig(b.url)
	require.NoError(b.t, err)
	cfg.User, cfg.Password = role, "secret"
	conn, err := pgx.ConnectConfig(b.t.Context(), cfg)
	require.NoError(b.t, err)
	admin, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		assert.NoError(b.t, conn.Close(context.Background()))
		_, err := admin.Exec(context.Background(), `DROP ROLE `+role)
		assert.NoError(b.t, err)
		assert.NoError(b.t, admin.Close(context.Background()))
	})
	return conn
}

// A role without rights takes the advisory locks that earlier versions took, and can't take the
// locks of this one.
func TestAStrangerLocksNothing(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.MaxInFlight = 10
	spec.Flow = &asyncflow.Flow{Limits: asyncflow.Limits{MaxInFlight: 1}}
	pipe := b.put(spec)
	b.put(base())
	claims := asyncflow.TaskType{Name: "desk", Stages: []asyncflow.Stage{{Name: "only",
		Mode: asyncflow.ModeClaim, Timeout: asyncflow.NewDuration(time.Minute),
		Window: &asyncflow.Window{Tasks: 3, Per: asyncflow.NewDuration(time.Hour)}}}}.WithDefaults()
	desk := b.put(claims)

	other := b.stranger()
	names := []string{"rescue", "promote", "fold", "expire-keys", "empty-roll", "delete-rows",
		"drop-tenants", "guard acme/pipe", "claimer acme/desk/only/anna", "dependents acme",
		"counts acme", "fence"}
	keys := []int64{lock.DefaultLockID}
	for _, name := range names {
		h := fnv.New64a()
		h.Write([]byte("asyncflow " + name))
		keys = append(keys, int64(h.Sum64()))
	}
	_, err := other.Exec(t.Context(), `SELECT pg_advisory_lock(k) FROM unnest($1::bigint[]) k`,
		keys)
	require.NoError(t, err)
	for _, sql := range []string{`SELECT FROM tenant_acme.locks FOR UPDATE`,
		`INSERT INTO tenant_acme.locks VALUES ('lease', 1)`,
		`LOCK TABLE tenant_acme.locks IN ACCESS SHARE MODE`,
		`LOCK TABLE tenant_acme.schema_versions IN ACCESS SHARE MODE`,
		`LOCK TABLE asyncflow.fence IN ACCESS SHARE MODE`,
		`LOCK TABLE asyncflow.schema_versions IN ACCESS SHARE MODE`} {
		t.Run(sql, func(t *testing.T) {
			_, err := other.Exec(t.Context(), "BEGIN; "+sql)
			assert.Equal(t, pgerrcode.InsufficientPrivilege, sqlState(err))
			_, err = other.Exec(t.Context(), "ROLLBACK")
			require.NoError(t, err)
		})
	}

	first, second := keyed("k", `1`), keyed("k", `2`)
	b.submit(first, second)
	leases := b.leaseLimited(10, &doorman{})
	require.Len(t, leases, 1, "limited leases")
	b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "rescue")
	late := newTask(`3`)
	late.RunAt = time.Now().Add(time.Hour)
	b.submit(late)
	b.exec(`UPDATE tenant_acme.wait SET until = now(), order_time = now()`)
	n, err = b.Promote(t.Context(), pipe, nil)
	require.NoError(t, err)
	assert.Positive(t, n, "promotion")

	waits := dependent(byKey("later"))
	waits.Options.Key = "mine"
	b.submit(waits)

	task := newTask(`1`)
	task.Type = "desk"
	b.submit(task)
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	eventually(t, "a claim gets the task", func() bool {
		_, err := b.LeaseForClaims(t.Context(), desk, "only", []*store.ClaimAsk{ask}, 1, 1<<20)
		return assert.NoError(t, err) && len(ask.Leases) == 1
	})

	b.start(store.CountAll, store.NewOperation{Filter: store.Filter{Type: "pipe"}})
	b.exec(`UPDATE tenant_acme.idempotency_keys SET expires_at = now()`)
	n, err = b.ExpireKeys(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "keys")
	b.exec(`UPDATE tenant_acme.tallies SET at = at - interval '1 h'`)
	n, err = b.Fold(t.Context(), tenant)
	require.NoError(t, err)
	assert.Positive(t, n, "fold")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "base", true))
	deleting, err := b.DeleteRows(t.Context(), tenant, store.Deleting{})
	require.NoError(t, err)
	assert.True(t, deleting.More)

	_, err = b.CreateTenant(t.Context(), "beside", asyncflow.Quotas{})
	require.NoError(t, err)
	_, err = store.Migrate(t.Context(), b.url)
	require.NoError(t, err)
	var advisory int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND pid <> $1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		int(other.PgConn().PID())).Scan(&advisory))
	assert.Zero(t, advisory)
}

// A node that one transaction keeps out of a lock says so, and which one.
func TestKeptOutForLong(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	spec.MaxInFlight = 10
	pipe := b.put(spec)
	b.submit(newTask(`1`))
	b.leaseLimited(1, &doorman{})
	b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	b.exec(`INSERT INTO tenant_acme.locks VALUES ('rescue', 0)`)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a failure; else it is over
	takeLock(t, tx, "lease", int(pipe.Number()))
	takeLock(t, tx, "rescue", 0)

	lease := func() (store.LimitedLease, error) {
		return b.LeaseLimited(t.Context(), pipe, 1,
			func(store.InFlight) store.Admission { return &doorman{} })
	}
	n, err := b.Rescue(t.Context(), pipe)
	require.NoError(t, err, "another node may do it")
	assert.Zero(t, n)
	g, err := lease()
	require.NoError(t, err)
	assert.True(t, g.Busy)

	b.LimitLocks(0)
	says := fmt.Sprintf("the server process %d has had the lock", tx.Conn().PgConn().PID())
	_, err = b.Rescue(t.Context(), pipe)
	require.ErrorContains(t, err, says+" rescue of tenant acme in one transaction since ")
	_, err = lease()
	require.ErrorContains(t, err, says+" lease of tenant acme")
	b.LimitLocks(time.Minute)

	require.NoError(t, tx.Rollback(t.Context()))
	n, err = b.Rescue(t.Context(), pipe)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}
