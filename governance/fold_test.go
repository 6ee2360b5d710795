package governance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// The tallies of each past minute become one row, for all types, in as many batches as it takes.
// The counts don't change.
func TestFold(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "one")
	b.pipe(t, "two")
	toFold := func() []string {
		tenants, err := b.gov.ToFold(t.Context())
		require.NoError(t, err)
		return tenants
	}
	assert.Equal(t, []string{tenant}, toFold(), "nobody has looked yet")
	n, err := b.jobs["fold"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "nothing to add up")
	if !pgtest.OnCitus() {
		assert.Empty(t, toFold(), "nor will there be")
	}
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, submitted, succeeded)
		SELECT t, date_trunc('minute', now()) - n % 1000 * interval '50 ms' - interval '10 min', 2, 1
		FROM unnest(ARRAY['one', 'two']) t, generate_series(1, 25000) n`)
	n, err = b.jobs["fold"].Run(t.Context())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, 50000)
	assert.Equal(t, []string{tenant}, toFold())
	assert.Eventually(t, func() bool { // until it is told of its own writes
		assert.Zero(t, b.run(t, "fold"), "it is done")
		return pgtest.OnCitus() || len(toFold()) == 0
	}, patience, 100*time.Millisecond)
	stats, err := b.Stats(t.Context(), tenant, "")
	require.NoError(t, err)
	require.Len(t, stats, 2)
	for _, s := range stats {
		assert.Equal(t, int64(25000), s.Succeeded, s.Type)
	}
	exec(t, url, `DO $$ BEGIN ASSERT (SELECT count(*) FROM tenant_acme.tallies) = 4; END $$`)
}
