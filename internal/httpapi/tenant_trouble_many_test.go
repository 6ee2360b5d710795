package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// Among 3,000 tenants in trouble, each with failures in 50 minutes of the last hour, the worst are
// found in few bytes. With -v it says how long that took; it holds no bound of that, which depends
// on the machine. Their schemas are of an earlier version, so that nodes don't look for them.
func TestTroubleAmongManyTenants(t *testing.T) {
	b := setup(t)
	const tenants, worst = 3000, "many03000"
	_, err := b.db.Exec(t.Context(), `
		INSERT INTO asyncflow.tenants (slug, schema_version)
		SELECT 'many' || lpad(n::text, 5, '0'), 1 FROM generate_series(1, 3000) n;
		INSERT INTO asyncflow.tenant_trouble
		  (tenant, alerts, due, oldest_due, sampled_at, failed_at, failed)
		SELECT 'many' || lpad(n::text, 5, '0'), 0, n, now(), now(),
		  ARRAY(SELECT now() - m * interval '1 min' + interval '1 s' FROM generate_series(1, 50) m),
		  array_fill(n::bigint, ARRAY[50])
		FROM generate_series(1, 3000) n;
		ANALYZE asyncflow.tenants, asyncflow.tenant_trouble`)
	require.NoError(t, err)
	for range 5 {
		began := time.Now()
		answer := b.admin("GET", "/v1/tenants?order=trouble&limit=10", "")
		t.Logf("the list took %v, and has %d bytes", time.Since(began), len(answer.body))
		assert.LessOrEqual(t, len(answer.body), 10_000)
		list := read[api.TenantList](b, 200, answer)
		require.Len(t, list.Data, 10)
		assert.Equal(t, worst, list.Data[0].Slug)
		assert.EqualValues(t, tenants*50, list.Data[0].Health.FailedLastHour)
		assert.Zero(t, list.Unread)
	}
}
