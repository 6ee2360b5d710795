package store

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

// poolShare is a pool of which a tenant has three quarters of the connections at most: what one
// tenant reads, however slowly, leaves some for all others. It is safe for concurrent use.
type poolShare struct {
	pool    *pgxpool.Pool
	share   int64    // connections
	tenants sync.Map // of slugs to *semaphore.Weighted; tenants are few and made by operators
}

func newPoolShare(pool *pgxpool.Pool, size int) *poolShare {
	return &poolShare{pool: pool, share: int64(max(1, size*3/4))}
}

// acquire takes a connection for a tenant, or ("") for what belongs to none, which has no
// share. It waits for acquireTime at most. released is to be called once the connection is.
func (p *poolShare) acquire(ctx context.Context, tenant string) (conn *pgxpool.Conn, released func(), err error) {
	if tenant == "" {
		conn, err = p.pool.Acquire(ctx)
		return conn, func() {}, err
	}
	found, ok := p.tenants.Load(tenant)
	if !ok {
		found, _ = p.tenants.LoadOrStore(tenant, semaphore.NewWeighted(p.share))
	}
	inUse := found.(*semaphore.Weighted)
	if !inUse.TryAcquire(1) {
		waiting, cancel := context.WithTimeout(ctx, acquireTime)
		defer cancel()
		if err := inUse.Acquire(waiting, 1); err != nil {
			return nil, nil, err
		}
	}
	conn, err = p.pool.Acquire(ctx)
	if err != nil {
		inUse.Release(1)
		return nil, nil, err
	}
	return conn, func() { inUse.Release(1) }, nil
}
