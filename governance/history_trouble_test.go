package governance_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// trouble returns what is noted to be wrong in the tenant.
func (b *bundle) trouble(t *testing.T) store.Trouble {
	t.Helper()
	all, err := b.Troubles(t.Context())
	require.NoError(t, err)
	if len(all) == 0 {
		return store.Trouble{}
	}
	require.Len(t, all, 1)
	require.Equal(t, tenant, all[0].Tenant)
	return all[0]
}

// The job notes what is wrong in a tenant, and when it is over. A tenant that is well has no row,
// and one that can't be read keeps what was last known of it.
func TestHistoryNotesTrouble(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	record := func() {
		t.Helper()
		_, err := b.RecordHistory(t.Context(), tenant, time.Time{})
		require.NoError(t, err)
	}
	record()
	require.Zero(t, count(t, url, `SELECT count(*) FROM asyncflow.tenant_trouble`))

	leases := b.submitAndLease(t, pipe, 3)
	b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: []byte(`1`)},
		{Type: "pipe", Context: []byte(`2`)}})
	record()
	got := b.trouble(t)
	assert.EqualValues(t, 2, got.Due)
	assert.WithinDuration(t, b.Clock.Now(), got.OldestDue, patience)

	b.settleAll(t, pipe, leases, asyncflow.OutcomeRejected)
	earlier(t, url, "2 min")
	record()
	assert.EqualValues(t, 3, b.trouble(t).Failed)
	exec(t, url, `UPDATE tenant_acme.type_history SET at = at + interval '2 h' WHERE NOT hourly`)
	record()
	assert.EqualValues(t, 3, b.trouble(t).Failed, "not what a clock noted that was set back")

	b.putAlerts(t, tenant, asyncflow.AlertRules{BacklogAge: asyncflow.NewDuration(time.Hour)})
	exec(t, url, `INSERT INTO tenant_acme.alert_episodes
		(id, endpoint, alert, subject, since, value, bound)
		SELECT gen_random_uuid(), '`+alertEndpoint+`', 'backlog_age', 'pipe', now(), 1, 1`)
	record()
	assert.Equal(t, 1, b.trouble(t).Alerts)

	exec(t, url, `ALTER TABLE tenant_acme.type_history RENAME TO away`)
	other := setup(t, url, "b", governance.Config{}) // which visits each tenant at first
	_, err := other.jobs["history"].Run(t.Context())
	require.Error(t, err)
	got = b.trouble(t)
	assert.True(t, got.Unread)
	assert.Equal(t, 1, got.Alerts, "what was last known")
	exec(t, url, `ALTER TABLE tenant_acme.away RENAME TO type_history`)
	exec(t, url, `UPDATE asyncflow.tenant_trouble SET sampled_at = now() - interval '4 min'`)
	got = b.trouble(t)
	assert.Zero(t, got.Due, "nodes have not counted them for long")
	assert.Zero(t, got.OldestDue)
	record()
	assert.False(t, b.trouble(t).Unread)

	exec(t, url, `UPDATE tenant_acme.alert_episodes SET resolved_at = now();
		UPDATE asyncflow.tenant_trouble
		SET failed_at = ARRAY(SELECT at - interval '1 h' FROM unnest(failed_at) at)`)
	got = b.trouble(t)
	assert.Zero(t, got.Failed, "that was an hour ago")
	record()
	assert.Zero(t, b.trouble(t).Alerts)
}

// Nothing is noted of a tenant that is dropped meanwhile: a later one of its name has no trouble.
func TestTroubleOfADroppedTenant(t *testing.T) {
	t.Parallel()
	for name, note := range map[string]func(context.Context, *bundle) error{
		"unread": func(ctx context.Context, b *bundle) error { return b.NoteUnread(ctx, tenant) },
		"recorded": func(ctx context.Context, b *bundle) error {
			_, err := b.RecordHistory(ctx, tenant, time.Time{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t, prepare)
			b := setup(t, url, "a", governance.Config{})
			require.NoError(t, b.NoteUnread(t.Context(), tenant))
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			drop, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = drop.Exec(t.Context(), `DELETE FROM asyncflow.tenants WHERE slug = 'acme'`)
			require.NoError(t, err)
			noted := make(chan error, 1)
			go func() { noted <- note(t.Context(), b) }()
			require.Eventually(t, func() bool {
				return count(t, url, `SELECT count(*) FROM `+pgtest.Activity()+`
					WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
			}, patience, 20*time.Millisecond)
			require.NoError(t, drop.Commit(t.Context()))
			require.NoError(t, <-noted)
			require.Zero(t, count(t, url, `SELECT count(*) FROM asyncflow.tenant_trouble`))
		})
	}
}

// The trouble of a tenant goes with it also where a development version made the table, without a
// foreign key.
func TestTroubleWithoutAForeignKeyGoesWithItsTenant(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	exec(t, url, `ALTER TABLE asyncflow.tenant_trouble DROP CONSTRAINT tenant_trouble_tenant_fkey`)
	require.NoError(t, b.NoteUnread(t.Context(), tenant))
	_, err := b.DeleteTenant(t.Context(), tenant, new(time.Duration))
	require.NoError(t, err)
	_, err = b.BeginDrop(t.Context(), tenant)
	require.NoError(t, err)
	for left := true; left; {
		step, err := b.DropStep(t.Context(), tenant)
		require.NoError(t, err)
		left = step.Left
	}
	require.Zero(t, count(t, url, `SELECT count(*) FROM asyncflow.tenant_trouble`))
}
