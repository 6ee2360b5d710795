package store_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// lockEndpoints locks a tenant's endpoints against reads, until the caller calls the returned
// function.
func lockEndpoints(t *testing.T, url, tenant string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE tenant_`+tenant+`.endpoints IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// touch marks a tenant's configuration as changed, as another node's change does.
func touch(t *testing.T, b *bundle, tenant string) {
	t.Helper()
	_, err := b.db.Exec(
		t.Context(),
		`UPDATE asyncflow.tenants SET version = version + 1 WHERE slug = $1`,
		tenant,
	)
	require.NoError(t, err)
}

func TestALockedTenantDelaysNoOther(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	other, err := b.CreateTenant(t.Context(), "second", asyncflow.Quotas{})
	require.NoError(t, err)
	_, _, err = b.PutTaskType(t.Context(), other.Slug, twoStages())
	require.NoError(t, err)
	far := open(t, b.url, "node-2")

	release := lockEndpoints(t, b.url, tenant)
	touch(t, b, tenant)
	eventually(
		t,
		"the far node has found out that it can't read the tenant",
		func() bool { return far.Catalog.Stale() == 1 },
	)
	_, err = far.Catalog.Type(tenant, "pipe")
	require.NoError(t, err, "it keeps its last configuration")
	_, err = far.Catalog.Fresh(t.Context(), tenant, "new")
	require.Equal(
		t,
		asyncflow.CodeUnavailable,
		asyncflow.CodeOf(err),
		"it can't say that there is none",
	)

	start := time.Now()
	for range 5 { // it would take minutes if each waited 30 s for the lock
		pipe := twoStages()
		pipe.Name = "more"
		_, _, err = b.PutTaskType(t.Context(), other.Slug, pipe)
		require.NoError(t, err)
		require.NoError(t, b.DeleteTaskType(t.Context(), other.Slug, "more", false))
	}
	require.Less(t, time.Since(start), time.Minute)
	_, _, err = b.PutTaskType(
		t.Context(),
		other.Slug,
		asyncflow.TaskType{Name: "late", Stages: twoStages().Stages}.WithDefaults(),
	)
	require.NoError(t, err)
	eventually(t, "the far node knows what is new of the other tenant", func() bool {
		_, err := far.Catalog.Type(other.Slug, "late")
		return err == nil
	})
	require.Equal(t, 1, far.Catalog.Stale(), "the lock is still held")

	release()
	eventually(
		t,
		"the far node reads the tenant again",
		func() bool { return far.Catalog.Stale() == 0 },
	)
}

func TestANodeStartsBesideALockedTenant(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	other, err := b.CreateTenant(t.Context(), "second", asyncflow.Quotas{})
	require.NoError(t, err)
	_, _, err = b.PutTaskType(t.Context(), other.Slug, twoStages())
	require.NoError(t, err)

	release := lockEndpoints(t, b.url, tenant)
	far := open(t, b.url, "node-2")
	_, err = far.Catalog.Type(other.Slug, "pipe")
	require.NoError(t, err)
	require.True(t, far.Catalog.HasTenant(tenant), "its row can be read")
	_, err = far.Catalog.Type(tenant, "pipe")
	require.Equal(
		t,
		asyncflow.CodeUnavailable,
		asyncflow.CodeOf(err),
		"nothing was ever read of it: it may have the type",
	)

	release()
	eventually(t, "the tenant's types are known", func() bool {
		_, err := far.Catalog.Type(tenant, "pipe")
		return err == nil
	})
}

func TestASuspensionCountsForALockedTenant(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	far := open(t, b.url, "node-2")
	lockEndpoints(t, b.url, tenant)
	suspend := true
	_, err := b.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &suspend})
	require.NoError(t, err)
	eventually(t, "the far node leases nothing of it", func() bool {
		known, err := far.Catalog.Type(tenant, "pipe")
		return err == nil && known.Suspended()
	})
}

// A pause that this node can't read again is an error: the node would go on leasing.
func TestAPauseOfALockedTenantIsNoSuccess(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	release := lockEndpoints(t, b.url, tenant)
	_, err := b.Pause(t.Context(), tenant, "pipe", "")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))

	release()
	_, err = b.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	known, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.True(t, known.Paused())
}

func TestAChangeIsSeenWhenItsCallReturns(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	s, err := store.Open(
		t.Context(),
		store.Config{URL: url, Node: "alone", NoRoles: pgtest.NoRoles(),
			Log: slog.New(slog.DiscardHandler)},
	) // nothing else runs
	require.NoError(t, err)
	defer s.Close()
	done := make(chan error, 8)
	for i := range cap(done) {
		go func() {
			pipe := twoStages()
			pipe.Name = "pipe-" + string(rune('a'+i))
			_, _, err := s.PutTaskType(context.WithoutCancel(t.Context()), tenant, pipe)
			if err == nil {
				_, err = s.Catalog.Type(tenant, pipe.Name)
			}
			done <- err
		}()
	}
	for range cap(done) {
		require.NoError(t, receive(t, done))
	}
}

// A read of another caller may have begun before the change: Refresh waits for a later one.
func TestARefreshIsAsNewAsItsCall(t *testing.T) {
	b := setup(t)
	far := open(t, b.url, "node-2")
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			touch(t, b, tenant)
			_ = far.Catalog.Refresh(ctx)
		}
	})
	defer others.Wait()
	defer stop()
	for i := range longform.Size(30, 100) {
		pipe := twoStages()
		pipe.Name = "pipe-" + strconv.Itoa(i)
		b.put(pipe)
		require.NoError(t, far.Catalog.Refresh(t.Context()))
		_, err := far.Catalog.Type(tenant, pipe.Name)
		require.NoError(t, err)
	}
}
