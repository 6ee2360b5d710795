package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// of returns the database for a tenant's work. With "" it serves work that belongs to no
// tenant.
func (s *Store) of(tenant string) postgres.TenantDB {
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		return s.shares.Acquire(ctx, tenant)
	}
	return postgres.NewTenantDB(acquire, s.roles, tenant)
}

// hot returns the database for the work of a task type, over the connections that submit,
// lease and settle.
func (s *Store) hot(tenant string) postgres.TenantDB {
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		return s.hotPool.Acquire(ctx, tenant)
	}
	return postgres.NewTenantDB(acquire, s.roles, tenant)
}

// PoolStat counts the connections of a pool and the waits for them.
type PoolStat = postgres.PoolStat

// PoolStats returns the counts of the two pools.
func (s *Store) PoolStats() []PoolStat {
	base := PoolStat{Name: "pool"}
	base.Add(s.base.Stat())
	return []PoolStat{base, s.hotPool.Stat()}
}

// Short names for words of packages postgres and schema that most files here use.

type (
	tenantConn = postgres.TenantConn
	moment     = postgres.Moment
	moments    = postgres.Moments
	texts      = postgres.Texts
)

func wrap(err error, op string, args ...any) error { return postgres.Wrap(err, op, args...) }

func sqlState(err error) string { return postgres.State(err) }

func quote(identifier string) string { return postgres.Quote(identifier) }

func schemaOf(tenant string) string { return schema.Of(tenant) }
