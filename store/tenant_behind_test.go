package store_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// upTo returns the migrations of tenants up to a version.
func upTo(t *testing.T, version int64) fs.FS {
	t.Helper()
	set := fstest.MapFS{}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		var n int64
		_, err := fmt.Sscanf(name, "%d_", &n)
		require.NoError(t, err)
		if n > version {
			continue
		}
		data, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		set[name] = &fstest.MapFile{Data: data}
	}
	return set
}

// createAt makes a tenant as a node of an older version does.
func (b *bundle) createAt(slug string, version int64) {
	b.t.Helper()
	require.NoError(b.t, store.CreateTenantAt(b.t.Context(), b.url, slug, upTo(b.t, version),
		version, false))
}

// schemaVersion returns the version of a tenant's schema, by its row and by its migrations.
func (b *bundle) schemaVersion(slug string) (row, applied int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT schema_version,
		(SELECT max(version_id) FROM tenant_`+slug+`.schema_versions)
		FROM asyncflow.tenants WHERE slug = $1`, slug).Scan(&row, &applied))
	return row, applied
}

// works lets a tenant's task be done on this node.
func (b *bundle) works(slug string) {
	b.t.Helper()
	pipe := b.putOf(slug, twoStages())
	r := b.Submit(b.t.Context(), slug, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(b.t, r.Err)
	for range 2 { // both stages
		var leases []asyncflow.Lease
		eventually(b.t, "a lease", func() (ok bool) {
			var err error
			leases, _, err = b.Lease(b.t.Context(), pipe, 1)
			require.True(b.t, err == nil || store.IsHeld(err), "%v", err)
			return len(leases) == 1
		})
		done := make(chan store.Settled, 1)
		b.Settle(slug, asyncflow.Settlement{Lease: leases[0], Outcome: goodEnd,
			Verdict: asyncflow.Decide(pipe.TaskType, leases[0], goodEnd, b.Clock.Now())},
			func(r store.Settled) { done <- r })
		require.NoError(b.t, receive(b.t, done).Err)
	}
	task, err := b.Task(b.t.Context(), slug, r.ID)
	require.NoError(b.t, err)
	require.Equal(b.t, asyncflow.StatusSucceeded, task.Status)
	b.redrives(slug)
}

// redrives lets a tenant's cancelled task be redriven.
func (b *bundle) redrives(slug string) {
	b.t.Helper()
	r := b.Submit(b.t.Context(), slug, []asyncflow.NewTask{newTask(`1`)})[0]
	require.NoError(b.t, r.Err)
	_, err := b.Cancel(b.t.Context(), slug, r.ID, "")
	require.NoError(b.t, err)
	_, err = b.Redrive(b.t.Context(), slug, r.ID, store.Redrive{})
	require.NoError(b.t, err)
	_, err = b.Cancel(b.t.Context(), slug, r.ID, "")
	require.NoError(b.t, err)
}

// A node of an older version makes a tenant beside newer nodes. They migrate it, and do its tasks.
// A tenant of the first version takes every migration: in the short form only one in five of the
// versions after it is tried, and the last one.
func TestATenantOfAnOlderNodeIsMigrated(t *testing.T) {
	b := setup(t)
	other := open(t, b.url, "node-2")
	latest := newest(t, migrations.Tenant())
	step := int64(longform.Size(11, 1))
	for version := int64(1); version < latest; version = nextVersion(version, step, latest) {
		slug := fmt.Sprintf("made_at_%d", version)
		b.createAt(slug, version)
		for _, node := range []*bundle{b, other} {
			eventually(t, "the node has read the tenant", func() bool {
				return node.Catalog.Versions()[slug] != 0
			})
		}
		row, applied := b.schemaVersion(slug)
		assert.Equal(t, []int64{latest, latest}, []int64{row, applied})
		b.works(slug)
		other.works(slug)
	}
	status, err := store.Migrate(t.Context(), b.url, store.StaleOnly())
	require.NoError(t, err)
	require.Len(t, status, 1, "a start has nothing left to do")
}

// nextVersion returns the version a step after another one, but not past the one before the latest,
// which comes last.
func nextVersion(version, step, latest int64) int64 {
	if version == latest-1 {
		return latest
	}
	return min(version+step, latest-1)
}

// Without roles, too.
func TestATenantOfAnOlderNodeIsMigratedWithoutRoles(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := pgtest.Database(t, nil)
	_, err := store.Migrate(t.Context(), url, store.WithoutRoles(true))
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), url, tenant, store.WithoutRoles(true))
	require.NoError(t, err)
	require.NoError(t, store.CreateTenantAt(t.Context(), url, "older", upTo(t, 1), 1, true))
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "n", NoRoles: true,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	require.False(t, s.Catalog.IsBehind("older"))
	_, _, err = s.PutTaskType(t.Context(), "older", twoStages())
	require.NoError(t, err)
}

// A tenant that can't be migrated now delays no other, nor the start of a node.
func TestATenantThatCannotBeMigratedDelaysNoOther(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		b.createAt("older", 1)
		// The migrations change these tables.
		_, err := tx.Exec(t.Context(), `LOCK TABLE tenant_older.tallies, tenant_older.rolls,
			tenant_older.fan_outs IN ACCESS SHARE MODE`)
		require.NoError(t, err)
		eventually(t, "the node has tried", func() bool { return b.Catalog.Stale() == 1 })
		require.True(t, b.Catalog.IsBehind("older"))
		require.NotContains(t, b.Catalog.Tenants(), "older")
		b.works(tenant)
		require.NoError(t, b.Ping(t.Context()), "the node is ready")
		later := open(t, b.url, "node-2")
		later.works(tenant)
		for _, node := range []*bundle{b, later} {
			r := node.Submit(t.Context(), "older", []asyncflow.NewTask{newTask(`1`)})[0]
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(r.Err))
			_, _, err := node.PutTaskType(t.Context(), "older", twoStages())
			require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
			_, err = node.FirstFollowUps(t.Context(), []string{tenant, "older"})
			require.NoError(t, err)
		}
		return nil
	}))
	eventually(t, "it is migrated", func() bool { return b.Catalog.Versions()["older"] != 0 })
	require.Zero(t, b.Catalog.Stale())
	b.works("older")
}

// A node of this version, and a migrate of it, leave the schema of a newer one as it is.
func TestATenantOfANewerNode(t *testing.T) {
	b := setup(t)
	latest := newest(t, migrations.Tenant())
	newer := withSecond(t, `ALTER TABLE tallies ADD COLUMN news bigint NOT NULL DEFAULT 0;`)
	require.NoError(t, store.CreateTenantAt(t.Context(), b.url, "newer", newer, latest+1, false))
	eventually(t, "the node has read it", func() bool {
		return b.Catalog.Versions()["newer"] != 0
	})
	b.works("newer")
	_, err := store.Migrate(t.Context(), b.url)
	require.NoError(t, err)
	row, applied := b.schemaVersion("newer")
	assert.Equal(t, []int64{latest + 1, latest + 1}, []int64{row, applied},
		"newer nodes find it current")
	b.works("newer")
}
