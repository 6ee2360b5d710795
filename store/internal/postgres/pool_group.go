package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// resetEvery is the least time between two resets.
const resetEvery = time.Second

// PoolGroup joins pools with connections that break together. When the server is silent on one
// connection, the rest are likely to be dead too, and each would cost a caller the time of a
// deadline to notice. So all pools open their connections anew. It is safe for concurrent use.
type PoolGroup struct {
	distributed atomic.Bool // see Distribute

	mu     sync.Mutex
	pools  []*pgxpool.Pool
	last   time.Time // of the last reset
	broken time.Time // when all connections were broken last

	conns map[*watched]struct{} // that are open, or being opened
	dials map[*dialing]struct{} // attempts to reach a host
	// failed is when an attempt failed last, or a server took no writes; zero: not since foundAt
	failed    time.Time
	connected time.Time // when a connection was ready last
	foundAt   time.Time // when the server was last found
	first     string    // the host to be tried first, with its port; "": as configured
	present   server    // that the prober found last; without a cluster, nobody knows its timeline

	compression compression
}

// Distribute has each new connection of the group pass SET LOCAL on to the workers of Citus: a
// lock_timeout would hold for the locks of the coordinator only.
func (f *PoolGroup) Distribute() { f.distributed.Store(true) }

// dialing is an attempt to reach a host.
type dialing struct {
	since  time.Time
	cancel context.CancelFunc
}

var errBroken = errors.New("the server is another one now")

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
	f.failed = time.Now()
	if time.Since(f.last) < resetEvery {
		return
	}
	f.reset()
}

// reset is Reset. f.mu is held.
func (f *PoolGroup) reset() {
	f.last = time.Now()
	for _, pool := range f.pools {
		pool.Reset()
	}
}

// follow takes a server for the present one. If it is another one than before, that was found at a
// time, follow breaks all connections and attempts to connect, except connections that were opened
// to it since.
func (f *PoolGroup) follow(present server, found time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	another := f.present.database != present.database
	f.present = present
	if !another {
		return
	}
	f.broken = time.Now()
	for d := range f.dials {
		d.cancel()
	}
	for c := range f.conns {
		if c.connecting.Load() || c.dialed.Before(found) || c.server.replacedBy(present) {
			_ = c.Conn.Close() // its reader closes the rest
		}
	}
	f.reset()
}

// suspicious reports whether the server may be lost: connections or attempts to connect are silent,
// or attempts failed.
func (f *PoolGroup) suspicious(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, later := f.later(f.present); later || !f.failed.IsZero() {
		return true
	}
	silent := func(since time.Time) bool {
		return now.Sub(since) > silentTime &&
			(since.After(f.foundAt) || now.Sub(f.foundAt) > busyTime)
	}
	for d := range f.dials {
		if silent(d.since) {
			return true
		}
	}
	for c := range f.conns {
		if since := c.reading.Load(); since != 0 && silent(time.Unix(0, since)) {
			return true
		}
	}
	return false
}

// laterServer returns a server that replaced the present one, if a connection to it is open.
func (f *PoolGroup) laterServer(present server) (later server, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.later(present)
}

// later is laterServer. f.mu is held.
func (f *PoolGroup) later(present server) (later server, ok bool) {
	for c := range f.conns {
		if present.replacedBy(c.server) {
			return c.server, true
		}
	}
	return later, false
}

// calmDown notes that the server was found at a time, at a host.
func (f *PoolGroup) calmDown(at time.Time, host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = time.Time{}
	f.foundAt = at
	f.first = host
}

// checkFailed notes that a probe found no server. What failed counts no longer if a connection was
// opened since: the probe gets less time than the pools, and may be one connection too many.
func (f *PoolGroup) checkFailed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connected.After(f.failed) {
		f.failed = time.Time{}
	}
}

// begin notes an attempt to reach a host, and returns the end of it.
func (f *PoolGroup) begin(cancel context.CancelFunc) (end func(failed bool)) {
	d := &dialing{time.Now(), cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dials == nil {
		f.dials = map[*dialing]struct{}{}
	}
	f.dials[d] = struct{}{}
	return func(failed bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.dials, d)
		if failed {
			f.failed = time.Now()
		}
	}
}

// opened notes a connection.
func (f *PoolGroup) opened(c *watched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		f.conns = map[*watched]struct{}{}
	}
	f.conns[c] = struct{}{}
}

// ready notes that a connection is ready for statements.
func (f *PoolGroup) ready() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.connected = time.Now()
}

// closed forgets a connection.
func (f *PoolGroup) closed(c *watched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// brokeLately reports whether connections were just broken: requests to stop their statements would
// only wait for the lost server.
func (f *PoolGroup) brokeLately() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.broken) < closeTime
}
