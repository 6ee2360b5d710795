package dispatcher_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/store"
)

// The bounds on the tasks of a type in flight follow the catalog: the pause of the type, the
// tenant's quota divided by the number of nodes, and the endpoints that get tasks.
func TestLimitsOfAType(t *testing.T) {
	b := setup(t)
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done }
	n := b.start("a", dispatcher.Config{Concurrency: 6}, send)
	limits := func() ledger.Limits {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		return n.LimitsOf(pipe)
	}
	become := func(want ledger.Limits) {
		t.Helper()
		require.Eventually(t, func() bool {
			l := limits()
			return l.Type == want.Type && l.Tenant == want.Tenant &&
				len(l.Endpoints) == len(want.Endpoints)
		}, patience, 20*time.Millisecond, "%+v", want)
	}
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	first, second := pipe.Endpoints("first")[0].ID, pipe.Endpoints("second")[0].ID
	require.ElementsMatch(t, []string{first, second}, limits().Endpoints)
	become(ledger.Limits{Type: 6, Tenant: 6, Endpoints: []string{first, second}})
	b.exec(`UPDATE tenant_acme.endpoints SET weight = 0 WHERE stage = 'second'`)
	become(ledger.Limits{Type: 6, Tenant: 6})
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3}'`)
	become(ledger.Limits{Type: 6, Tenant: 3})
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 7}'`)
	become(ledger.Limits{Type: 6, Tenant: 6})
	b.start("b", dispatcher.Config{}, send)
	become(ledger.Limits{Type: 6, Tenant: 4})
	_, err = n.Store.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	become(ledger.Limits{Type: 0, Tenant: 4})
	_, err = n.Resume(t.Context(), tenant, "pipe", time.Hour)
	require.NoError(t, err)
	require.Less(t, limits().Type, 6, "it is ramped up")
	suspended := true
	_, err = n.PatchTenant(t.Context(), tenant, store.TenantPatch{Suspend: &suspended})
	require.NoError(t, err)
	become(ledger.Limits{Type: 0, Tenant: 4})
}
