package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

// Shares lets one tenant use at most three quarters of a pool's connections: however
// slowly a tenant reads, it leaves some for all other tenants. It is safe for concurrent use.
type Shares struct {
	pool    *pgxpool.Pool
	each    int64    // connections
	tenants sync.Map // slug to *semaphore.Weighted; tenants are few and made by operators
}

// NewShares shares out a pool of at most size connections.
func NewShares(pool *pgxpool.Pool, size int) *Shares {
	return &Shares{pool: pool, each: int64(max(1, size*3/4))}
}

// Each returns how many connections a tenant may use.
func (s *Shares) Each() int { return int(s.each) }

// Forget forgets a tenant that has left.
func (s *Shares) Forget(tenant string) { s.tenants.Delete(tenant) }

// Acquire takes a connection for a tenant. There is no share for work that belongs to no tenant
// (""). Acquire waits at most acquireTime for the share. The caller calls released after it
// released the connection.
func (s *Shares) Acquire(
	ctx context.Context, tenant string,
) (conn *pgxpool.Conn, released func(), err error) {
	if tenant == "" {
		conn, err = s.pool.Acquire(ctx)
		return conn, func() {}, err
	}
	found, ok := s.tenants.Load(tenant)
	if !ok {
		found, _ = s.tenants.LoadOrStore(tenant, semaphore.NewWeighted(s.each))
	}
	inUse := found.(*semaphore.Weighted)
	if !inUse.TryAcquire(1) {
		waiting, cancel := context.WithTimeout(ctx, acquireTime)
		defer cancel()
		if err := inUse.Acquire(waiting, 1); err != nil {
			return nil, nil, err
		}
	}
	conn, err = s.pool.Acquire(ctx)
	if err != nil {
		inUse.Release(1)
		return nil, nil, err
	}
	return conn, func() { inUse.Release(1) }, nil
}
