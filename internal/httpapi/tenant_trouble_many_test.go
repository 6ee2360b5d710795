package httpapi_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

var manyTenants = flag.Int("tenants", 10,
	"how many tenants TestTroubleAmongManyTenants makes")

// Among many tenants, the ones in trouble are found in a bounded time and in few bytes. With -v it
// says how long that took.
func TestTroubleAmongManyTenants(t *testing.T) {
	b := setup(t)
	began := time.Now()
	for i := range *manyTenants {
		read[api.Tenant](b, 201,
			b.admin("POST", "/v1/tenants", fmt.Sprintf(`{"slug":"many%05d"}`, i)))
	}
	t.Logf("%d tenants were made in %v", *manyTenants, time.Since(began).Round(time.Second))
	for i := 0; i < *manyTenants; i += 3 { // a third of them is in trouble, each more than the last
		slug := fmt.Sprintf("many%05d", i)
		_, _, err := b.store.PutTaskType(t.Context(), slug, asyncflow.TaskType{Name: "pipe",
			Stages: []asyncflow.Stage{{Name: "only"}}}.WithDefaults())
		require.NoError(t, err)
		_, err = b.db.Exec(t.Context(), fmt.Sprintf(`INSERT INTO tenant_many%05d.tallies
			(type, at, failed, attempts) VALUES ('pipe', now() - interval '5 min', %d, 1)`, i, 1+i))
		require.NoError(t, err)
		_, err = b.store.RecordHistory(t.Context(), slug, time.Time{})
		require.NoError(t, err)
	}
	for _, which := range []string{"first", "second", "third"} {
		began := time.Now()
		answer := b.admin("GET", "/v1/tenants?order=trouble&limit=10", "")
		took := time.Since(began)
		t.Logf("the %s list took %v, and has %d bytes", which, took.Round(time.Millisecond),
			len(answer.body))
		list := read[api.TenantList](b, 200, answer)
		assert.LessOrEqual(t, len(answer.body), 10_000)
		assert.Less(t, took, 30*time.Second)
		assert.LessOrEqual(t, len(list.Data), 10)
		if list.Unread == 0 {
			worst := (*manyTenants - 1) / 3 * 3
			require.Equal(t, fmt.Sprintf("many%05d", worst), list.Data[0].Slug)
			assert.EqualValues(t, 1+worst, list.Data[0].Health.FailedLastHour)
			assert.True(t, slices.IsSortedFunc(list.Data, func(a, b api.Tenant) int {
				return int(b.Health.FailedLastHour - a.Health.FailedLastHour)
			}))
		}
		t.Logf("%d tenants could not be read in time", list.Unread)
	}
}
