package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// workers are the servers of Citus that have tenants, and the connections to them for submits,
// leases and settlements: a node goes straight to the worker of a tenant. If the tenant has just
// moved, the worker hands the statement on by itself. The tenants that this node doesn't know yet
// go through the coordinator, and so does all other work.
type workers struct {
	core  *Core
	known atomic.Pointer[placements]
}

// placements says where tenants are. It doesn't change.
type placements struct {
	servers []*worker          // in the order in which they were found
	tenants map[string]*worker // by slug
}

// worker is a server.
type worker struct {
	postgres.Server
	address string
	pool    *postgres.HotPool
	first   int         // of the numbers of its homes
	reached atomic.Bool // once: only then its tenants' work goes there
	failed  bool        // the last try to reach it; only follow uses it
}

func newWorkers(c *Core) *workers {
	w := &workers{core: c}
	w.known.Store(&placements{})
	return w
}

// poolOf returns the connections to the server of a tenant, and the first number of their homes.
func (w *workers) poolOf(tenant string) (pool *postgres.HotPool, first int) {
	if at := w.known.Load().tenants[tenant]; at != nil {
		return at.pool, at.first
	}
	return w.core.HotPool, 0
}

// placementsSQL reads where the schemas of tenants are. All tables of one are at one place.
const placementsSQL = `
SELECT substr(n.nspname, 8), w.nodename, w.nodeport
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'rolls'
JOIN pg_dist_shard s ON s.logicalrelid = c.oid
JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node w USING (groupid)
WHERE starts_with(n.nspname, 'tenant_') AND w.noderole = 'primary' AND w.groupid > 0`

// reachTime bounds one try to reach a worker. Tries run beside each other, once in a round.
const reachTime = time.Second

// follow reads where tenants are, and connects to servers that are new. The tenants of a server
// that it can't reach stay with the coordinator.
func (w *workers) follow(ctx context.Context) error {
	rows, _ := w.core.Base.Query(ctx, placementsSQL)
	found := map[string]postgres.Server{}
	var tenant string
	var s postgres.Server
	_, err := pgx.ForEachRow(rows, []any{&tenant, &s.Host, &s.Port}, func() error {
		found[tenant] = s
		return nil
	})
	before := w.known.Load()
	if err != nil || before.are(found) {
		return postgres.Wrap(err, "look where tenants are")
	}
	now := &placements{servers: slices.Clone(before.servers), tenants: map[string]*worker{}}
	at := map[postgres.Server]*worker{}
	for _, s := range found {
		if at[s], err = now.server(ctx, w.core, s); err != nil {
			w.known.Store(now) // so that close closes all
			return postgres.Wrap(err, "make connections to the worker %s:%d", s.Host, s.Port)
		}
	}
	var tries sync.WaitGroup
	for _, one := range at {
		if !one.reached.Load() {
			tries.Go(func() { one.reach(ctx, w.core.Log) })
		}
	}
	tries.Wait()
	for tenant, s := range found {
		if at[s].reached.Load() {
			now.tenants[tenant] = at[s]
		}
	}
	w.known.Store(now)
	return nil
}

// reach tries to connect to a worker, and logs the first failure and the success.
func (w *worker) reach(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	err := w.pool.Reach(ctx)
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

// are reports whether the tenants are where they were found.
func (p *placements) are(found map[string]postgres.Server) bool {
	return maps.EqualFunc(p.tenants, found,
		func(at *worker, s postgres.Server) bool { return at.Server == s })
}

// server returns a server, which is new if no tenant was there before. Its connections stay until
// the node ends: a tenant may come back.
func (p *placements) server(ctx context.Context, c *Core, s postgres.Server) (*worker, error) {
	for _, known := range p.servers {
		if known.Server == s {
			return known, nil
		}
	}
	pool, err := postgres.NewHotPool(ctx, c.hotConfig(s))
	if err != nil {
		return nil, err
	}
	at := &worker{Server: s, address: fmt.Sprintf("%s:%d", s.Host, s.Port), pool: pool,
		first: (len(p.servers) + 1) * c.HotPool.Size()}
	p.servers = append(p.servers, at)
	return at, nil
}

// acquire takes a connection to the server of a tenant.
func (w *workers) acquire(ctx context.Context, tenant string) (*pgxpool.Conn, func(), error) {
	pool, _ := w.poolOf(tenant)
	return pool.Acquire(ctx, tenant)
}

// close closes the connections to the servers.
func (w *workers) close() {
	for _, s := range w.known.Load().servers {
		s.pool.Close()
	}
}
