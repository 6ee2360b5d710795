package governance

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// The least times between two readings for the timetable, of tables that several jobs look after,
// or one job often. Plans are also found by the version of the tenant's configuration; their tables
// are read to find plans that other programs wrote.
const (
	tokensEvery = 4 * time.Second
	plansEvery  = time.Minute
)

// activity keeps the last readings of what happened in the tables of tenants. Jobs of the timetable
// share them. An old reading misses nothing: what a visit finds belongs to the reading from before
// it, and the next one shows all that happened since.
type activity struct {
	tables store.Tables

	mu    sync.Mutex
	every time.Duration // the least time between two readings; 0: none is shared
	at    time.Time
	last  map[string]uint64
}

// share sets the least time between two readings.
func (a *activity) share(every time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.every = every
}

// read returns a number for each tenant that changes when rows of the tables are written. Where
// Postgres doesn't count them, it changes once in a sweep.
func (a *activity) read(ctx context.Context, s *store.Store) (map[string]uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil && time.Since(a.at) < a.every {
		return a.last, nil
	}
	began := time.Now()
	all, counted, err := s.Activity(ctx, a.tables)
	if err != nil {
		return nil, err
	}
	if !counted {
		all = map[string]uint64{}
		for tenant := range s.Catalog.Tenants() {
			all[tenant] = sweepOf(tenant, s.Clock.Now())
		}
	}
	a.last, a.at = all, began
	return all, nil
}

// sweepOf returns the number of the sweep that a tenant is in. Tenants are spread over its time.
func sweepOf(tenant string, now time.Time) uint64 {
	spread := time.Duration(maphash.String(sweepSeed, tenant) % uint64(sweep))
	return uint64(now.UnixNano()+int64(spread)) / uint64(sweep)
}

var sweepSeed = maphash.MakeSeed()

// rests knows for which tenants there is nothing for a job to do. It is safe for concurrent use.
type rests struct {
	mu      sync.Mutex
	longest time.Duration // for which activity may be no reason for a visit
	tenants map[string]rest
}

// rest is what stands as long as a tenant rests.
type rest struct {
	state      state
	until      time.Time // zero: for as long as the state lasts
	quietUntil time.Time // until then activity is no reason for a visit; zero: it always is
}

// state is the state of a tenant, as far as it is known without a visit.
type state struct {
	activity uint64 // see activity
	version  int64  // of the tenant's configuration
}

// restless returns the tenants that a job must visit, with their states: the state is new, the
// tenant is due for a visit, or the job doesn't know it. It forgets tenants that are gone.
func (r *rests) restless(
	versions map[string]int64, activity map[string]uint64, now time.Time,
) map[string]state {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tenant := range r.tenants {
		if _, ok := versions[tenant]; !ok {
			delete(r.tenants, tenant)
		}
	}
	found := map[string]state{}
	for tenant, version := range versions {
		s := state{activity[tenant], version}
		known, ok := r.tenants[tenant]
		if ok && known.state.version == version && now.Before(known.quietUntil) {
			s = known.state
		}
		if !ok || known.state != s || !known.until.IsZero() && !now.Before(known.until) {
			found[tenant] = s
		}
	}
	return found
}

// rest notes that there is nothing to do for a tenant in a state until a time; zero: for as long
// as the state lasts. The state must be from before the visit.
func (r *rests) rest(tenant string, s state, until time.Time) {
	r.keep(tenant, rest{state: s, until: until}, time.Time{})
}

// keep notes how a tenant rests since a time. The state must be from before the visit.
func (r *rests) keep(tenant string, as rest, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants == nil {
		r.tenants = map[string]rest{}
	}
	if most := since.Add(r.longest); most.Before(as.quietUntil) {
		as.quietUntil = most
	}
	r.tenants[tenant] = as
}

// setLongestQuiet sets for how long activity may be no reason for a visit.
func (r *rests) setLongestQuiet(longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.longest = longest
}

// forget makes every tenant restless.
func (r *rests) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants = nil
}
