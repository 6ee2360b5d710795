package catalog

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// DB returns the database for a tenant's work. With "" it serves work that belongs to no
// tenant. A tenant's work goes through the pooler, if there is one and the context isn't one of
// postgres.Direct.
func (s *Core) DB(tenant string) postgres.TenantDB {
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		if err := s.Catalog.refuseBehind(tenant); err != nil {
			return nil, nil, err
		}
		if s.through != nil && tenant != "" && !postgres.IsDirect(ctx) {
			return s.through.Acquire(ctx, tenant)
		}
		return s.shares.Acquire(ctx, tenant)
	}
	return postgres.NewTenantDB(acquire, s.Roles, tenant)
}

// HotDB returns the database for the work of a task type, over the connections that submit,
// lease and settle.
func (s *Core) HotDB(tenant string) postgres.TenantDB {
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		if err := s.Catalog.refuseBehind(tenant); err != nil {
			return nil, nil, err
		}
		if s.workers != nil {
			return s.workers.acquire(ctx, tenant)
		}
		return s.HotPool.Acquire(ctx, tenant)
	}
	return postgres.NewTenantDB(acquire, s.Roles, tenant)
}

// Home returns the number of a tenant's home among the connections of HotDB. Tenants of one home
// are on one server.
func (s *Core) Home(tenant string) int {
	if s.workers == nil {
		return s.HotPool.Home(tenant)
	}
	pool, first := s.workers.of(tenant)
	return first + pool.Home(tenant)
}

// PoolStat counts the connections of a pool and the waits for them.
type PoolStat = postgres.PoolStat

// PoolStats returns the counts of the pools.
func (s *Core) PoolStats() []PoolStat {
	base := PoolStat{Name: "pool"}
	base.Add(s.Base.Stat())
	hot := s.HotPool.Stat()
	if s.workers != nil {
		for _, w := range s.workers.known.Load().servers {
			hot.Join(w.pool.Stat())
		}
	}
	all := []PoolStat{base, hot}
	if s.pooled != nil {
		pooled := PoolStat{Name: "pooled"}
		pooled.Add(s.pooled.Stat())
		all = append(all, pooled)
	}
	return all
}
