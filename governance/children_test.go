package governance_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Wrong counts of children are mended, and then the task is followed up.
func TestTheChildrenJob(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	exec(t, url, `INSERT INTO tenant_acme.fan_outs (type, id, seq, waits, stage, rule, count, succeeded)
		SELECT number, 1, 2, 2, 'only', '{}', 5, 3 FROM tenant_acme.task_types`)
	due, err := b.jobs["children"].DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []store.Due{{Tenant: tenant, Rows: 1}}, due)
	assert.Equal(t, 1, b.run(t, "children"))
	assert.Zero(t, b.run(t, "children"), "it is mended")
	exec(t, url, `UPDATE tenant_acme.fan_outs SET closed = true`)
	assert.Zero(t, b.run(t, "children"))
}
