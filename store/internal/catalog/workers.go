package catalog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// workers are the servers of Citus that have tenants, and the connections to them for submits,
// leases and settlements, and for what follows from them: a node goes straight to the worker of a
// tenant, and names the tables there. If the tenant has just moved, the worker refuses that, and
// hands on the next statements by itself until the node has looked where the tenant is. The tenants
// that this node doesn't know yet go through the coordinator, and so does all other work.
type workers struct {
	core  *Core
	known atomic.Pointer[placements]

	probers chan *postgres.Prober // to be run

	found map[string]place // by tenant; only follow uses it
	read  time.Time        // when all places were; only follow uses it

	mu sync.Mutex
	// wanted are tenants that this node didn't know when it was asked for them, and whether it has
	// looked for them since.
	wanted map[string]bool
}

// placements says where tenants are. It doesn't change.
type placements struct {
	servers []*worker             // in the order in which they were found
	tenants map[string]*placement // by slug
}

// placement is the way to a tenant.
type placement struct {
	at     *worker
	placed *postgres.PlacedTables
	owned  bool // see place
	// refused says that the worker has refused the user a right since all places were read, which
	// read says; only follow uses them.
	refused bool
	read    time.Time
}

// worker is a server.
type worker struct {
	postgres.Server
	address string
	pool    *postgres.HotPool
	follow  *pgxpool.Pool    // for what follows from submits and settlements
	shares  *postgres.Shares // of follow
	first   int              // of the numbers of its homes
	reached atomic.Bool      // once: only then its tenants' work goes there
	failed  bool             // the last try to reach it; only follow uses it
	shown   atomic.Bool      // statements name the tables that Citus shows
	prober  *postgres.Prober // once it is reached
}

func newWorkers(c *Core) *workers {
	w := &workers{core: c, found: map[string]place{}, wanted: map[string]bool{},
		probers: make(chan *postgres.Prober, workersUnwatched)}
	w.known.Store(&placements{})
	return w
}

// wayTo returns the way to a tenant; nil: through the coordinator.
func (w *workers) wayTo(tenant string) *placement {
	if at := w.known.Load().tenants[tenant]; at != nil {
		return at
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.wanted[tenant]; !ok {
		w.wanted[tenant] = false
	}
	return nil
}

const (
	// placesEvery is how often all places are read. A tenant that has moved is looked for at once,
	// and so is one that a node comes to know.
	placesEvery = 10 * time.Second
	// reachTime bounds one try to reach a worker. Tries run beside each other, once in a round.
	reachTime = time.Second
	// workersUnwatched is how many workers a node may find before it runs.
	workersUnwatched = 4096
)

// follow reads where tenants are, as far as that may have changed, and connects to servers that are
// new. The tenants of a server that it can't reach stay with the coordinator.
func (w *workers) follow(ctx context.Context) error {
	looked, err := w.look(ctx)
	if err != nil {
		return err
	}
	before := w.known.Load()
	now := &placements{servers: slices.Clone(before.servers), tenants: map[string]*placement{}}
	at := map[postgres.Server]*worker{}
	for _, p := range w.found {
		if at[p.server], err = now.server(ctx, w.core, p.server); err != nil {
			w.known.Store(now) // so that close closes all
			return postgres.Wrap(err, "make connections to the worker %s", p.server)
		}
	}
	reached := w.reach(ctx, slices.Collect(maps.Values(at)), looked)
	if !looked && !reached {
		return nil
	}
	for tenant, p := range w.found {
		if at[p.server].reached.Load() && p.synced {
			now.tenants[tenant] = w.way(tenant, before.tenants[tenant], at[p.server], p)
		}
	}
	w.known.Store(now)
	for tenant, was := range before.tenants {
		if is := now.tenants[tenant]; is == nil || is.at != was.at {
			was.at.shares.Forget(tenant)
		}
	}
	return nil
}

// way returns the way to a tenant, which stays the same if nothing has changed.
func (w *workers) way(tenant string, before *placement, at *worker, p place) *placement {
	refused := false // until all places are read anew
	if before != nil && before.at != at {
		w.core.Log.Info("a tenant has moved to another worker of Citus", "tenant", tenant,
			"from", before.at.address, "to", at.address)
	}
	if before != nil && before.at == at && before.read.Equal(w.read) &&
		(before.refused || before.placed.Refused()) {
		p.owned = false
		refused = true
	}
	if !p.owned && (before == nil || before.owned) {
		w.core.Log.Warn("can't name the tables of a tenant at its worker of Citus, which takes "+
			"more CPU time: its role or, without roles, the user of DATABASE_URL must own them",
			"tenant", tenant)
	}
	if before != nil && before.at == at && before.owned == p.owned && before.placed.Are(p.table) {
		before.read = w.read
		return before
	}
	return &placement{at, postgres.NewPlacedTables(schema.Of(tenant), p.table), p.owned, refused,
		w.read}
}

// look reads the places of tenants that were asked for or have moved, or of all tenants: from time
// to time, and while a worker is lost, as another server may take its place. It reports whether it
// read any.
func (w *workers) look(ctx context.Context) (looked bool, err error) {
	all := time.Since(w.read) >= placesEvery || w.lost()
	var some []string
	began := time.Now()
	for tenant, way := range w.known.Load().tenants {
		if way.placed.Moved() {
			some = append(some, tenant)
		}
	}
	some = append(some, w.takeWanted(all)...)
	if !all && len(some) == 0 {
		return false, nil
	}
	if all {
		some = nil
	}
	found, err := readPlaces(ctx, w.core.Base, some, !w.core.Roles.Off())
	if err != nil {
		return false, err
	}
	if all {
		w.found, w.read = found, began
		return true, nil
	}
	for _, tenant := range some {
		delete(w.found, tenant)
	}
	maps.Copy(w.found, found)
	return true, nil
}

// lost reports whether a worker that has tenants may be lost. A worker without tenants doesn't
// count: one that was replaced (citus_update_node) may never answer again.
func (w *workers) lost() bool {
	named := map[postgres.Server]bool{}
	for _, p := range w.found {
		named[p.server] = true
	}
	return slices.ContainsFunc(w.known.Load().servers, func(s *worker) bool {
		return named[s.Server] && s.reached.Load() && s.pool.Suspicious()
	})
}

// takeWanted returns the tenants to look for. With all, none of them needs a look of its own.
func (w *workers) takeWanted(all bool) (some []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all {
		clear(w.wanted)
		return nil
	}
	for tenant, looked := range w.wanted {
		if !looked {
			some = append(some, tenant)
			w.wanted[tenant] = true
		}
	}
	return some
}

// reach tries to connect to servers that weren't reached yet, and reports whether one is now. With
// again, it also asks those that lacked what statements need to name their tables.
func (w *workers) reach(ctx context.Context, servers []*worker, again bool) (reached bool) {
	var tries sync.WaitGroup
	var unreached []*worker
	for _, one := range servers {
		if !one.reached.Load() {
			unreached = append(unreached, one)
		}
		if !one.reached.Load() || again && one.shown.Load() {
			tries.Go(func() { one.reach(ctx, w.core.Log) })
		}
	}
	tries.Wait()
	for _, one := range unreached {
		if one.reached.Load() {
			reached = true
			w.probers <- one.prober
		}
	}
	return reached
}

// watch runs the probers of the servers that are reached, until ctx ends.
func (w *workers) watch(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case p := <-w.probers:
			g.Go(func() error { return p.Run(ctx) })
		}
	}
}

// tryPlaced finds out whether statements can name the tables of the worker.
func (w *worker) tryPlaced(ctx context.Context, log *slog.Logger) error {
	conn, released, err := w.pool.Acquire(ctx, "")
	if err != nil {
		return err
	}
	defer released()
	defer conn.Release()
	var can bool
	err = conn.QueryRow(ctx, postgres.CanPlaceSQL).Scan(&can)
	if before := w.shown.Load(); err != nil || before != can {
		return err
	}
	w.shown.Store(!can)
	if !can {
		log.Warn("can't name the tables of a worker of Citus, which takes more CPU time: its "+
			"version of Citus lacks a function", "host", w.Host, "port", w.Port)
	}
	return nil
}

// reach tries to connect to a worker, and logs the first failure and the success.
func (w *worker) reach(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	err := w.tryPlaced(ctx, log)
	if w.reached.Load() {
		return
	}
	if err == nil {
		w.prober, err = w.pool.NewProber(ctx)
	}
	if err == nil {
		w.reached.Store(true)
		log.Info("tenants are on a worker of Citus", "host", w.Host, "port", w.Port)
		return
	}
	if !w.failed {
		log.Warn("can't reach a worker of Citus; going through the coordinator, and trying again",
			"host", w.Host, "port", w.Port, "error", err)
	}
	w.failed = true
}

// server returns a server, which is new if no tenant was there before. Its connections stay until
// the node ends: a tenant may come back.
func (p *placements) server(ctx context.Context, c *Core, s postgres.Server) (*worker, error) {
	for _, known := range p.servers {
		if known.Server == s {
			return known, nil
		}
	}
	config := c.hotConfig(s)
	pool, err := postgres.NewHotPool(ctx, config)
	if err != nil {
		return nil, err
	}
	config.Statement = postgres.BaseStatement
	follow, err := postgres.NewPool(ctx, config)
	if err != nil {
		pool.Close()
		return nil, err
	}
	at := &worker{Server: s, address: s.String(), pool: pool, follow: follow,
		shares: postgres.NewShares(follow, config.Size),
		first:  (len(p.servers) + 1) * c.HotPool.Size()}
	p.servers = append(p.servers, at)
	return at, nil
}

// db returns the database for the work of a tenant at its worker.
func (p *placement) db(s *Core, tenant string, acquire acquireFor) postgres.TenantDB {
	db := postgres.NewTenantDB(s.unlessBehind(tenant, acquire), s.Roles, tenant)
	if !p.owned || p.at.shown.Load() || p.placed.Moved() {
		return db
	}
	return db.WithPlaced(p.placed)
}

// close closes the connections to the servers.
func (w *workers) close() {
	for _, s := range w.known.Load().servers {
		s.pool.Close()
		s.follow.Close()
	}
}
