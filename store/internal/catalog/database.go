package catalog

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// acquireFor takes a connection for a tenant.
type acquireFor func(
	ctx context.Context, tenant string,
) (conn *pgxpool.Conn, released func(), err error)

// unlessBehind takes connections for a tenant as long as its tables aren't behind this program.
func (s *Core) unlessBehind(tenant string, acquire acquireFor) postgres.Acquire {
	return func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		if err := s.Catalog.refuseBehind(tenant); err != nil {
			return nil, nil, err
		}
		return acquire(ctx, tenant)
	}
}

// DB returns the database for a tenant's work. With "" it serves work that belongs to no
// tenant. A tenant's work goes through the pooler, if there is one and the context isn't one of
// postgres.Direct.
func (s *Core) DB(tenant string) postgres.TenantDB {
	acquire := func(ctx context.Context, tenant string) (*pgxpool.Conn, func(), error) {
		if s.through != nil && tenant != "" && !postgres.IsDirect(ctx) {
			return s.through.Acquire(ctx, tenant)
		}
		return s.shares.Acquire(ctx, tenant)
	}
	return postgres.NewTenantDB(s.unlessBehind(tenant, acquire), s.Roles, tenant)
}

// HotDB returns the database for the work of a task type, over the connections that submit,
// lease and settle.
func (s *Core) HotDB(tenant string) postgres.TenantDB {
	if way := s.wayTo(tenant); way != nil {
		return way.db(s, tenant, way.at.pool.Acquire)
	}
	return postgres.NewTenantDB(s.unlessBehind(tenant, s.HotPool.Acquire), s.Roles, tenant)
}

// placePatience is how long FollowDB waits for the place of a tenant that moves: meanwhile other
// tenants wait for their turn.
const placePatience = "300ms"

// FollowDB returns the database for what follows from submits and settlements. It is DB, or it
// leads straight to the tenant's worker, which runs no statement that locks tables, and none on the
// tables of asyncflow. A transaction keeps the tenant there: it must not wait for another one of
// the tenant.
func (s *Core) FollowDB(tenant string) postgres.TenantDB {
	if way := s.wayTo(tenant); way != nil {
		return way.db(s, tenant, way.at.shares.Acquire).WithPatience(placePatience)
	}
	return s.DB(tenant)
}

// StraightTo names the worker to which FollowDB and HotDB lead; "": there is none.
func (s *Core) StraightTo(tenant string) string {
	if way := s.wayTo(tenant); way != nil {
		return way.at.address
	}
	return ""
}

// wayTo returns the way to a tenant straight at its worker; nil: there is none, or it isn't known.
func (s *Core) wayTo(tenant string) *placement {
	if s.workers == nil {
		return nil
	}
	return s.workers.wayTo(tenant)
}

// Home returns the number of a tenant's home among the connections of HotDB. Tenants of one home
// are on one server.
func (s *Core) Home(tenant string) int {
	if way := s.wayTo(tenant); way != nil {
		return way.at.first + way.at.pool.Home(tenant)
	}
	return s.HotPool.Home(tenant)
}

// Distributed reports whether Postgres keeps tenants on several servers (Citus). A transaction
// should have one tenant then: with several it would be committed in two phases.
func (s *Core) Distributed() bool { return s.distributed }

// Server names the server that commits the work of HotDB for a tenant. One that is reached only
// through the coordinator of Citus isn't known, and is another one for each tenant.
func (s *Core) Server(tenant string) string {
	if !s.distributed {
		return ""
	}
	return cmp.Or(s.StraightTo(tenant), "of tenant "+tenant)
}

// Confirm makes a transaction, open or of its own, as durable as any change of a tenant: its commit
// waits for the standby of the server that has the tenant's rows, and so for everything that was
// committed there before. A lock of a row gets there from the coordinator of Citus, too.
func (s *Core) Confirm(ctx context.Context, db postgres.Execer, tenant string) error {
	if !s.distributed || tenant == "" {
		return postgres.Confirm(ctx, db)
	}
	_, err := db.Exec(ctx, `SELECT 1 FROM `+postgres.Quote(schema.Of(tenant))+
		`.numbering FOR KEY SHARE`)
	return err
}

// HotOr runs do over the connections of HotDB or, while the tenant moves to another worker of
// Citus, through the coordinator, which waits for the end of the move. do must be safe to repeat.
func (s *Core) HotOr(tenant string, do func(db postgres.TenantDB) error) error {
	return orMoving(s, tenant, s.HotDB(tenant), do)
}

// FollowOr is HotOr with FollowDB.
func (s *Core) FollowOr(tenant string, do func(db postgres.TenantDB) error) error {
	return orMoving(s, tenant, s.FollowDB(tenant), do)
}

func orMoving(
	s *Core, tenant string, straight postgres.TenantDB, do func(db postgres.TenantDB) error,
) error {
	err := do(straight)
	if s.distributed && postgres.IsMoving(err) {
		err = do(s.DB(tenant))
	}
	return err
}

// ConfirmHot is Confirm with a transaction of its own, as HotOr.
func (s *Core) ConfirmHot(ctx context.Context, tenant string) error {
	return s.HotOr(tenant, func(db postgres.TenantDB) error { return s.Confirm(ctx, db, tenant) })
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
			if w.reached.Load() {
				hot.Join(w.pool.Stat())
				base.Add(w.follow.Stat())
			}
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
