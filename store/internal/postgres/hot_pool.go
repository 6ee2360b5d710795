package postgres

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

// HotPool holds the connections that submit, lease and settle. Each tenant keeps tables of its own,
// which a backend must learn: it parses and plans statements for them, and fills its caches. So
// each tenant gets a home among the connections, and takes another one only while its home is in
// use. Callers that find no connection free wait in turn.
type HotPool struct {
	seed  maphash.Seed
	seats []*pgxpool.Pool     // of one connection each, opened at its first use
	slots *semaphore.Weighted // one for each seat; first come, first served

	config PoolConfig // of each seat

	mu     sync.Mutex
	free   []*pgxpool.Pool // seats, the last released one at the end
	waits  int64           // for a slot, ever
	waited time.Duration   // by all of them together
}

// NewHotPool returns a pool of at most config.Size connections to config.URL or through
// config.Pooler, without opening any. The rest of config but NoRoles, Distributed, Server and Group
// is the pool's own.
func NewHotPool(ctx context.Context, config PoolConfig) (*HotPool, error) {
	size := config.Size
	p := &HotPool{seed: maphash.MakeSeed(), slots: semaphore.NewWeighted(int64(size))}
	config.Size = 1
	config.Settings = HotSettings
	if config.Distributed { // it can't plan an INSERT … SELECT for all parameters at once
		config.Settings = merged(HotSettings, map[string]string{"plan_cache_mode": "auto"})
	}
	config.Statement = hotStatement
	if config.Group == nil {
		config.Group = &PoolGroup{}
	}
	config.Hot = true
	for range size {
		seat, err := NewPool(ctx, config)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.seats = append(p.seats, seat)
	}
	p.config = config
	p.free = slices.Clone(p.seats)
	return p, nil
}

// Acquire returns a connection for the work of a tenant. The caller calls released after it
// released the connection.
func (p *HotPool) Acquire(
	ctx context.Context, tenant string,
) (conn *pgxpool.Conn, released func(), err error) {
	if err := p.waitForSlot(ctx); err != nil {
		return nil, nil, err
	}
	seat := p.choose(tenant)
	if conn, err = seat.Acquire(ctx); err != nil {
		p.release(seat)
		return nil, nil, err
	}
	return conn, func() { p.release(seat) }, nil
}

// NewProber connects to the server, and returns a prober of its own.
func (p *HotPool) NewProber(ctx context.Context) (*Prober, error) {
	cfg, err := ConfigFor(p.config.URL, nil, nil)
	if err != nil {
		return nil, err
	}
	p.config.Server.replace(&cfg.Config)
	return newProber(ctx, cfg, p.seats[0], p.config.Group)
}

// Suspicious reports whether the server may be lost. Only a prober finds that it isn't.
func (p *HotPool) Suspicious() bool { return p.config.Group.suspicious(time.Now()) }

// waitForSlot waits until one of the free seats is the caller's, but no longer than acquireTime.
func (p *HotPool) waitForSlot(ctx context.Context) error {
	if p.slots.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTime)
	defer cancel()
	began := time.Now()
	err := p.slots.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits++
	p.waited += time.Since(began)
	return nil
}

// choose returns the home of a tenant from the free seats, or else the best of them.
func (p *HotPool) choose(tenant string) *pgxpool.Pool {
	home := p.seats[p.Home(tenant)]
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.free, home)
	if at < 0 || stateOf(home) == seatChanging {
		at = p.best()
	}
	seat := p.free[at]
	p.free = slices.Delete(p.free, at, at+1)
	return seat
}

// Home returns the number of a tenant's home, from 0 to Homes-1.
func (p *HotPool) Home(tenant string) int {
	hash := maphash.Comparable(p.seed, tenant)
	return int(hash % uint64(p.Homes()))
}

// Homes returns how many of the connections are homes: half of them. What is written goes to the
// homes, in few large transactions; the other connections lease meanwhile.
func (p *HotPool) Homes() int { return (len(p.seats) + 1) / 2 }

// Size returns how many connections there are at most.
func (p *HotPool) Size() int { return len(p.seats) }

// best returns the index of the free seat that was released last. It prefers seats with an open
// connection.
func (p *HotPool) best() int {
	best, state := -1, seatChanging
	for i, seat := range slices.Backward(p.free) {
		if s := stateOf(seat); best < 0 || s < state {
			best = i
			state = s
		}
		if state == seatOpen {
			break
		}
	}
	return best
}

// release takes back the seat of a connection that was released.
func (p *HotPool) release(seat *pgxpool.Pool) {
	p.mu.Lock()
	p.free = append(p.free, seat)
	p.mu.Unlock()
	p.slots.Release(1)
}

// seatState says how soon the connection of a free seat can be used, soonest first.
type seatState int

const (
	seatOpen     seatState = iota
	seatEmpty              // the connection is to be opened
	seatChanging           // it is being opened or closed
)

func stateOf(seat *pgxpool.Pool) seatState {
	switch stat := seat.Stat(); {
	case stat.IdleConns() > 0:
		return seatOpen
	case stat.TotalConns() == 0:
		return seatEmpty
	}
	return seatChanging
}

// Stat returns the pool's counts. An acquire that must open a connection counts as a wait, as it
// does in any pool.
func (p *HotPool) Stat() PoolStat {
	p.mu.Lock()
	all := PoolStat{Name: "hot-pool", Waits: p.waits, WaitSeconds: p.waited.Seconds()}
	p.mu.Unlock()
	for _, seat := range p.seats {
		all.Add(seat.Stat())
	}
	return all
}

// Close closes the connections and waits until the connections in use are released.
func (p *HotPool) Close() {
	var wg sync.WaitGroup
	for _, seat := range p.seats {
		wg.Go(seat.Close)
	}
	wg.Wait()
}
