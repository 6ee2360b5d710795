package postgres

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// resetEvery is the least time between two resets.
const resetEvery = time.Second

// PoolGroup has pools with connections that break together. When the server is silent on one
// connection, the rest are likely to be dead too, and each would cost a caller the time of
// a deadline to notice. So all pools open their connections anew. It is safe for concurrent
// use.
type PoolGroup struct {
	mu    sync.Mutex
	pools []*pgxpool.Pool
	last  time.Time // of the last reset

	compression compression
}

func (f *PoolGroup) add(pool *pgxpool.Pool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pools = append(f.pools, pool)
}

// Reset closes the idle connections of all pools at once, and the connections in use when they are
// released.
func (f *PoolGroup) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last) < resetEvery {
		return
	}
	f.last = time.Now()
	for _, pool := range f.pools {
		pool.Reset()
	}
}
