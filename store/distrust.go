package store

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// distrustEvery is the least time between two resets.
const distrustEvery = time.Second

// distrust are pools that share their fate: when the server is silent on a connection of one,
// their other connections are likely to be dead too, and each would cost a caller the time of
// a deadline to notice. So all of them are opened anew.
type distrust struct {
	mu    sync.Mutex
	pools []*pgxpool.Pool
	last  time.Time // when they were reset
}

func (d *distrust) add(pool *pgxpool.Pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = append(d.pools, pool)
}

// reset closes the idle connections of all pools, and those in use when they are released.
func (d *distrust) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.last) < distrustEvery {
		return
	}
	d.last = time.Now()
	for _, pool := range d.pools {
		pool.Reset()
	}
}
