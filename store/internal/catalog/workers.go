package catalog

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

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
	pool  *postgres.HotPool
	first int // of the numbers of its homes
}

func newWorkers(c *Core) *workers {
	w := &workers{core: c}
	w.known.Store(&placements{})
	return w
}

// of returns the connections to the server of a tenant, and the first number of their homes.
func (w *workers) of(tenant string) (pool *postgres.HotPool, first int) {
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
	unreached := map[postgres.Server]error{}
	for tenant, s := range found {
		if unreached[s] != nil {
			continue
		}
		at, err := now.server(ctx, w.core, s)
		if err != nil {
			unreached[s] = err
			continue
		}
		now.tenants[tenant] = at
	}
	w.known.Store(now)
	return errors.Join(slices.Collect(maps.Values(unreached))...)
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
	if err := pool.Reach(ctx); err != nil {
		pool.Close()
		return nil, postgres.Wrap(err, "reach the worker %s:%d", s.Host, s.Port)
	}
	at := &worker{s, pool, (len(p.servers) + 1) * c.HotPool.Size()}
	p.servers = append(p.servers, at)
	c.Log.Info("tenants are on a worker of Citus", "host", s.Host, "port", s.Port)
	return at, nil
}

// acquire takes a connection to the server of a tenant.
func (w *workers) acquire(ctx context.Context, tenant string) (*pgxpool.Conn, func(), error) {
	pool, _ := w.of(tenant)
	return pool.Acquire(ctx, tenant)
}

// close closes the connections to the servers.
func (w *workers) close() {
	for _, s := range w.known.Load().servers {
		s.pool.Close()
	}
}
