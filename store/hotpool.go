package store

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"
)

// hotPool has the connections that submit, lease and settle. Each task type has tables of
// its own, which a backend has to learn: it parses and plans statements for them, and
// fills its caches. So a type has a home among the connections, and takes another one
// only while that is in use. Who finds none free waits in turn.
type hotPool struct {
	seed  maphash.Seed
	seats []*pgxpool.Pool     // of one connection each, opened when it is used first
	turns *semaphore.Weighted // of as many as there are seats; first come, first served

	mu     sync.Mutex
	free   []*pgxpool.Pool // seats, that released last at the end
	waits  int64           // for a turn, ever
	waited time.Duration   // by all of them together
}

func newHotPool(ctx context.Context, url string, size int, noRoles bool) (*hotPool, error) {
	p := &hotPool{seed: maphash.MakeSeed(), turns: semaphore.NewWeighted(int64(size))}
	like := poolConfig{url: url, size: 1, settings: hotSettings, noRoles: noRoles,
		statement: hotStatement, fate: &distrust{}}
	for range size {
		seat, err := newPool(ctx, like)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.seats = append(p.seats, seat)
	}
	p.free = slices.Clone(p.seats)
	return p, nil
}

// acquire returns a connection for the work of a task type. released is to be called once
// it was released.
func (p *hotPool) acquire(ctx context.Context, key TypeKey) (conn *pgxpool.Conn, released func(), err error) {
	if err := p.turn(ctx); err != nil {
		return nil, nil, err
	}
	seat := p.take(key)
	if conn, err = seat.Acquire(ctx); err != nil {
		p.release(seat)
		return nil, nil, err
	}
	return conn, func() { p.release(seat) }, nil
}

// turn waits until one of the free seats is for the caller, acquireTime at most.
func (p *hotPool) turn(ctx context.Context) error {
	if p.turns.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTime)
	defer cancel()
	began := time.Now()
	err := p.turns.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits++
	p.waited += time.Since(began)
	return nil
}

// take takes the home of a type from the free seats, or else the best of them.
func (p *hotPool) take(key TypeKey) *pgxpool.Pool {
	home := p.seats[p.home(key)]
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

// home returns the number of a type's home.
func (p *hotPool) home(key TypeKey) int {
	return int(maphash.Comparable(p.seed, key) % uint64(len(p.seats)))
}

// size returns how many connections there are.
func (p *hotPool) size() int { return len(p.seats) }

// best returns the index of the free seat that was released last, of those whose
// connection is open if there are some.
func (p *hotPool) best() int {
	best, state := -1, seatChanging
	for i, seat := range slices.Backward(p.free) {
		if s := stateOf(seat); best < 0 || s < state {
			best, state = i, s
		}
		if state == seatOpen {
			break
		}
	}
	return best
}

// release gives back a seat whose connection was released.
func (p *hotPool) release(seat *pgxpool.Pool) {
	p.mu.Lock()
	p.free = append(p.free, seat)
	p.mu.Unlock()
	p.turns.Release(1)
}

// seatState is how soon the connection of a free seat can be used, soonest first.
type seatState int

const (
	seatOpen     seatState = iota
	seatEmpty              // it has to be opened
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

// stat returns how the pool stands. An acquire that has to open a connection counts as one
// that waits, as it does in any pool.
func (p *hotPool) stat() PoolStat {
	p.mu.Lock()
	all := PoolStat{Name: "hot-pool", Waits: p.waits, WaitSeconds: p.waited.Seconds()}
	p.mu.Unlock()
	for _, seat := range p.seats {
		all.add(seat.Stat())
	}
	return all
}

// Close closes the connections, those in use when they are released. It waits for them.
func (p *hotPool) Close() {
	var wg sync.WaitGroup
	for _, seat := range p.seats {
		wg.Go(seat.Close)
	}
	wg.Wait()
}
