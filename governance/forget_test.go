package governance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// The audits of tenants and of the operator go by a retention of their own.
func TestForgetAudit(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	for _, schema := range []string{"tenant_acme", "asyncflow"} {
		exec(t, url, `INSERT INTO `+schema+`.audit (id, at, origin, action, outcome)
			SELECT gen_random_uuid(), now() - n * interval '1 d', 'api', 'a.b', 'done'
			FROM generate_series(1, 2500) n`)
	}
	forever := setup(t, url, "a", governance.Config{})
	n, err := forever.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	b := setup(t, url, "b", governance.Config{AuditRetention: asyncflow.DefaultAuditRetention})
	due, err := b.jobs["forget"].DryRun(t.Context())
	require.NoError(t, err)
	const old = 2500 - 364
	assert.Equal(t, []store.Due{{Rows: old}, {Tenant: tenant, Rows: old}}, due)
	n, err = b.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2*old, n)
	for _, tenant := range []string{tenant, ""} {
		left, err := b.Audit(t.Context(), store.AuditFilter{Tenant: tenant, Limit: 5000})
		require.NoError(t, err)
		require.Len(t, left, 364)
		assert.WithinDuration(t, time.Now().Add(-364*24*time.Hour), left[363].At, time.Hour)
	}
}
