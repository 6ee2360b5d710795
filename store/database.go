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

// confirm makes a transaction, open or of its own, as durable as any change: its commit waits for
// the standby, and so for everything that the transaction has seen.
func confirm(ctx context.Context, db execer) error {
	_, err := db.Exec(ctx, confirmSQL)
	return err
}

// confirmSQL writes a record that has no reader. So the commit of its transaction waits for the
// standby like any other, and thereby for everything that was committed before. A server that is a
// standby itself refuses to assign a transaction id, as it refuses any write; the record alone
// would be an internal error there.
const confirmSQL = `SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'asyncflow', '')`
