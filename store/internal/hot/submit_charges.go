package hot

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// How tasks that nobody submits over HTTP count in a tenant's quota submits_per_second: the node
// that makes them adds them up in memory, and about once a second to the tenant's total in the
// database. Each node that takes requests reads the totals and charges its share of what was added.
// A node that dies forgets at most what it counted in the last second.

// submitCharges are the tasks that this node counted, but didn't write yet. The zero value is ready
// to use.
type submitCharges struct {
	mu       sync.Mutex
	byTenant map[string]int64
}

func (c *submitCharges) add(tenant string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTenant == nil {
		c.byTenant = map[string]int64{}
	}
	c.byTenant[tenant] += n
}

func (c *submitCharges) read() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.byTenant
	c.byTenant = nil
	return all
}

// ChargeSubmits counts n tasks that a tenant didn't submit over HTTP in its rate of submits, if
// there is a quota of them. They are in the total of the tenant within about a second.
func (s *Path) ChargeSubmits(tenant string, n int) {
	t, ok := s.core.Catalog.Tenant(tenant)
	if ok && t.Quotas.SubmitsPerSecond > 0 && n > 0 {
		s.charges.add(tenant, int64(n))
	}
}

// WriteCharges adds what this node counted to the totals.
func WriteCharges(ctx context.Context, s *Path) error {
	counted := s.charges.read()
	if len(counted) == 0 {
		return nil
	}
	tenants := slices.Sorted(maps.Keys(counted)) // in one order on all nodes, for their row locks
	sums := make([]int64, len(tenants))
	for i, tenant := range tenants {
		sums[i] = counted[tenant]
	}
	_, err := s.core.DB("").Exec(ctx, `
		INSERT INTO asyncflow.submit_charges AS c (tenant, total)
		SELECT * FROM unnest($1::text[], $2::bigint[])
		ON CONFLICT (tenant) DO UPDATE SET total = c.total + excluded.total`, tenants, sums)
	if err != nil && !errors.Is(err, postgres.ErrNotReplicated) { // otherwise they are counted
		for tenant, n := range counted {
			s.charges.add(tenant, n)
		}
	}
	return postgres.Wrap(err, "writeCharges")
}

// SubmitCharges returns how many tasks all nodes counted with ChargeSubmits, by tenant, since the
// first one.
func (s *Path) SubmitCharges(ctx context.Context) (map[string]int64, error) {
	totals := map[string]int64{}
	rows, _ := s.core.Base.Query(ctx, `SELECT tenant, total FROM asyncflow.submit_charges`)
	var tenant string
	var total int64
	_, err := pgx.ForEachRow(rows, []any{&tenant, &total}, func() error {
		totals[tenant] = total
		return nil
	})
	return totals, postgres.Wrap(err, "SubmitCharges")
}
