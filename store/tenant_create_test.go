package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// left returns what there is of a tenant.
func (b *bundle) left(slug string) (schemas, roles, rows int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT
		(SELECT count(*) FROM pg_namespace WHERE nspname = 'tenant_' || $1),
		(SELECT count(*) FROM pg_roles WHERE rolname = $2 || '_' || $1),
		(SELECT count(*) FROM asyncflow.tenants WHERE slug = $1)`, slug, b.BaseRole()).
		Scan(&schemas, &roles, &rows))
	return schemas, roles, rows
}

// baseRoleOnly checks that no connection of the pool kept another role, nor a search path.
func (b *bundle) baseRoleOnly() {
	b.t.Helper()
	ways := b.Roles(b.t.Context(), "", "")
	for range 8 { // there are four in the pool
		role, err := ways["query"]()
		require.NoError(b.t, err)
		require.Equal(b.t, b.BaseRole(), role)
	}
}

// A tenant and the entry of its creation in the audit are made together, or not at all.
func TestCreateTenantWithItsAudit(t *testing.T) {
	b := setup(t)
	ctx, first := b.auditedCall("tenant.create")
	first.Schema = ""
	_, err := b.CreateTenant(ctx, "new", asyncflow.Quotas{})
	require.NoError(t, err)
	require.True(t, first.Written())
	b.baseRoleOnly()

	ctx, second := b.auditedCall("tenant.create")
	second.Schema, second.ID = "", first.ID
	_, err = b.CreateTenant(ctx, "late", asyncflow.Quotas{})
	require.Error(t, err, "there is an entry with that id")
	schemas, roles, rows := b.left("late")
	assert.Zero(t, schemas+roles+rows)
	b.baseRoleOnly()

	schemas, roles, rows = b.left("new")
	assert.Equal(t, []int{1, 1, 1}, []int{schemas, roles, rows})
	_, err = b.CreateTenant(t.Context(), "new", asyncflow.Quotas{})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
}

// A schema that is there without a tenant is brought up to date, and given to the tenant's role.
func TestCreateTenantOfASchemaThatIsThere(t *testing.T) {
	b := setup(t)
	b.exec(`CREATE SCHEMA tenant_new`)
	_, err := b.CreateTenant(t.Context(), "new", asyncflow.Quotas{})
	require.NoError(t, err)
	_, _, err = b.PutTaskType(t.Context(), "new", twoStages())
	require.NoError(t, err)
}

// A node creates tenants as a user that may make roles and isn't a superuser.
func TestCreateTenantAsAUserThatMakesRoles(t *testing.T) {
	t.Parallel()
	url, _, _ := login(t, "CREATEROLE")
	_, err := store.Migrate(t.Context(), url)
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n",
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	for _, slug := range []string{"one", "two"} {
		_, err := s.CreateTenant(context.Background(), slug, asyncflow.Quotas{})
		require.NoError(t, err)
		_, _, err = s.PutTaskType(t.Context(), slug, twoStages())
		require.NoError(t, err)
	}
}

// Calls that come at once wait in turn, and leave the pool's connections to others.
func TestCreateTenantAtOnce(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a failure; else it is over
	_, err = tx.Exec(t.Context(), `LOCK TABLE asyncflow.fence IN SHARE UPDATE EXCLUSIVE MODE`)
	require.NoError(t, err)
	var all errgroup.Group
	for i := range 5 { // there are four connections in the pool
		all.Go(func() error {
			_, err := b.CreateTenant(t.Context(), fmt.Sprintf("at-once-%d", i), asyncflow.Quotas{})
			return err
		})
	}
	require.Eventually(t, func() bool { return b.waiting() > 0 }, patience,
		20*time.Millisecond, "one of them waits for the lock")
	for range 50 {
		_, err = b.Tenant(t.Context(), tenant)
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.waiting())
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, all.Wait())
}

// Copies of a database make the roles of tenants with one name, also at the same time.
func TestCopiesCreateATenantAtOnce(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	var copies []*bundle
	for range 4 {
		copies = append(copies, open(t, pgtest.Database(t, prepare), "node-1"))
	}
	for i := range longform.Size(4, 12) {
		var all errgroup.Group
		for _, b := range copies {
			all.Go(func() error {
				_, err := b.CreateTenant(t.Context(), fmt.Sprint("copied", i), asyncflow.Quotas{})
				return err
			})
		}
		require.NoError(t, all.Wait())
	}
}

// There is no row of a tenant that couldn't be completed: the next call makes it.
func TestCreateTenantOfASchemaThatIsThereFails(t *testing.T) {
	b := setup(t)
	b.exec(`CREATE SCHEMA tenant_new;
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
		  $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON asyncflow.tenants FOR EACH ROW
		  WHEN (new.slug = 'new' AND new.grants IS NOT NULL) EXECUTE FUNCTION public.refuse()`)
	_, err := b.CreateTenant(t.Context(), "new", asyncflow.Quotas{})
	require.ErrorContains(t, err, "refused")
	_, _, rows := b.left("new")
	require.Zero(t, rows)
	b.exec(`DROP TRIGGER refuse ON asyncflow.tenants`)
	_, err = b.CreateTenant(t.Context(), "new", asyncflow.Quotas{})
	require.NoError(t, err)
	_, _, err = b.PutTaskType(t.Context(), "new", twoStages())
	require.NoError(t, err)
}

// A tenant is made from its schema where that is there already. Nobody but its owner may call the
// functions afterwards, whoever could before.
func TestCreateTenantFromASchemaClosesItsFunctions(t *testing.T) {
	t.Parallel()
	for name, noRoles := range map[string]bool{"roles": false, "no roles": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t, nil)
			_, err := store.Migrate(t.Context(), url, store.WithoutRoles(noRoles))
			require.NoError(t, err)
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			_, err = store.MigrateSchema(t.Context(), url, "tenant_acme", migrations.Tenant())
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(),
				`GRANT EXECUTE ON FUNCTION tenant_acme.submit_task TO PUBLIC`)
			require.NoError(t, err)
			_, err = store.CreateTenant(t.Context(), url, tenant, store.WithoutRoles(noRoles))
			require.NoError(t, err)
			gaps, err := store.Gaps(t.Context(), url, store.WithoutRoles(noRoles))
			require.NoError(t, err)
			require.Empty(t, gaps)
		})
	}
}
