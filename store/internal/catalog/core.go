package catalog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/news"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Config configures a Store.
type Config struct {
	URL string // postgres://…
	// PooledURL leads to the same database through a pooler, which may be in transaction mode; "":
	// all goes over URL. The work of tenants goes over it, but for that of background jobs.
	PooledURL string
	Node      string // this node's id, unique among the nodes of a database
	Roles     string // what this node does, for the list of nodes
	Build     string // version of this program, for the list of nodes

	// Pool bounds the connections for requests and governance; 0: 10.
	Pool int
	// HotPool bounds the connections that submit, lease and settle; 0: 4. With more of them,
	// batches are smaller.
	HotPool int
	// Notify announces new work to other nodes by NOTIFY. Without it (with another engine)
	// dispatchers poll.
	Notify bool
	// NoRoles does all work as the user of URL, without a database role for each tenant.
	NoRoles bool
	// NotDistributed keeps the schemas of new tenants on the server of URL where the extension
	// Citus could distribute them.
	NotDistributed bool
	// DefaultQuotas are the quotas of tenants without their own; 0: asyncflow.DefaultQuotas.
	DefaultQuotas asyncflow.Quotas
	// MaxContext is the limit of contexts in bytes. It and the quotas also apply to tasks that are
	// submitted by SQL. 0: this process doesn't set it.
	MaxContext int
	// PublicURL is where workers reach the API, for the contexts of tasks.
	PublicURL string
	// Meter counts the work of this node; nil: none does.
	Meter Meter

	Log *slog.Logger
}

// Core is what all rooms of the store share: the connections, the clock, the catalog, the news
// between nodes. It knows none of the rooms.
type Core struct {
	Config Config
	Log    *slog.Logger
	// Base serves cross-tenant work; use HotPool only through HotDB. The work of a tenant goes
	// through DB and HotDB, under the tenant's role.
	Base    *pgxpool.Pool
	group   *postgres.PoolGroup // of base
	prober  *postgres.Prober    // of all pools
	shares  *postgres.Shares    // of base
	pooled  *pgxpool.Pool       // through the pooler; nil: there is none
	pooler  *postgres.Pooler    // of pooled
	through *postgres.Shares    // of pooled
	HotPool *postgres.HotPool
	workers *workers // nil: there is no Citus
	Roles   *postgres.Roles
	// distributed reports whether tenants are, or may come to be, on workers of Citus.
	distributed bool

	Clock   *news.Clock
	Catalog *Catalog
	Wakeups *Wakeups

	Watchers *news.Watchers
	Marks    *lowwater.Marks[config.TypeKey]
	KeyMarks *lowwater.Marks[config.TypeKey] // of flow keys that take turns: see package hot
	Times    Times
	holders  *lockHolders

	tenantsAtOnce int // in one statement of QueryTenants

	unknown      atomic.Pointer[unknownCapabilities] // as last seen; nil: not yet
	nodes        atomic.Int32                        // how many nodes there are, as last seen
	apis         atomic.Int32                        // how many nodes take requests
	dispatchers  atomic.Int32                        // how many nodes lease tasks
	onlyDispatch atomic.Int32                        // of them, without requests; 0: see beat
	// when all other nodes know this node; nil: they don't yet
	joined atomic.Pointer[time.Time]
}

// newCore returns a core without connections.
func newCore(cfg Config) *Core {
	return &Core{Config: cfg, Log: cfg.Log, group: &postgres.PoolGroup{},
		Watchers: news.NewWatchers(), Marks: lowwater.NewMarks[config.TypeKey](),
		KeyMarks: lowwater.NewMarks[config.TypeKey](), tenantsAtOnce: tenantsAtOnce,
		holders: &lockHolders{limit: keptOutLimit, all: map[LockKey]lockHolder{}}}
}

// connect opens the connections, and checks that the schema is current.
func (c *Core) connect(ctx context.Context) (err error) {
	base := postgres.PoolConfig{URL: c.Config.URL, Size: c.Config.Pool, NoRoles: c.Config.NoRoles,
		Statement: postgres.BaseStatement, Group: c.group}
	if c.Base, err = postgres.NewPool(ctx, base); err != nil {
		return postgres.ConnectError(c.Config.URL, err)
	}
	c.shares = postgres.NewShares(c.Base, c.Config.Pool)
	if err = schema.Check(ctx, c.Base, c.Config.URL); err != nil {
		return err
	}
	if err = c.lookForCitus(ctx); err != nil {
		return err
	}
	if err = c.connectPooled(ctx, base); err != nil {
		return err
	}
	if c.Roles, err = postgres.NewRoles(ctx, c.Base, c.Config.NoRoles); err != nil {
		return err
	}
	return checkLogins(ctx, c)
}

// checkLogins logs that tenants on workers of Citus can't be served, as a worker doesn't let their
// roles log in.
func checkLogins(ctx context.Context, c *Core) error {
	if !c.distributed || c.Roles.Off() {
		return nil
	}
	var any bool
	err := c.Base.QueryRow(ctx, `SELECT `+postgres.DistributedSQL).Scan(&any)
	if err != nil || !any {
		return postgres.Wrap(err, "look for distributed tenants")
	}
	if err := schema.CheckLogins(ctx, c.Base, c.Roles.Base()); err != nil {
		c.Log.Warn("tenants on workers of Citus can't be served", "error", err)
	}
	return nil
}

// lookForCitus finds out whether tenants are on several servers. Nodes that make no such tenant,
// and see none, do all as on plain Postgres.
func (c *Core) lookForCitus(ctx context.Context) error {
	version, err := schema.CitusVersion(ctx, c.Base)
	if err != nil || version == "" {
		return err
	}
	c.distributed = !c.Config.NotDistributed
	if !c.distributed {
		err = c.Base.QueryRow(ctx, `SELECT `+postgres.DistributedSQL).Scan(&c.distributed)
	}
	if err == nil && c.distributed {
		c.group.Distribute()
		c.Base.Reset() // connections that were opened before
	}
	c.Log.Info("the database has the extension Citus", "version", version,
		"distributes_tenants", !c.Config.NotDistributed)
	return postgres.Wrap(err, "look for distributed tenants")
}

// connectPooled makes the pools that go through the pooler, if there is one, and the prober of all.
func (c *Core) connectPooled(ctx context.Context, base postgres.PoolConfig) (err error) {
	hot := c.hotConfig(postgres.Server{})
	groups := []*postgres.PoolGroup{c.group, hot.Group}
	if through := c.Config.PooledURL; through != "" {
		c.pooler, err = postgres.OpenPooler(ctx, through, c.Base, c.group, c.Config.NoRoles)
		if err != nil {
			return postgres.ConnectError(through, err)
		}
		hot.Pooler, base.Pooler = c.pooler, c.pooler
		base.Group = c.newGroup()
		groups = append(groups, base.Group)
		if c.pooled, err = postgres.NewPool(ctx, base); err != nil {
			return postgres.ConnectError(through, err)
		}
		c.through = postgres.NewShares(c.pooled, c.Config.Pool)
	}
	if c.HotPool, err = postgres.NewHotPool(ctx, hot); err != nil {
		return postgres.ConnectError(c.Config.URL, err)
	}
	if c.prober, err = postgres.NewProber(ctx, c.Config.URL, c.Base, groups...); err != nil {
		return postgres.ConnectError(c.Config.URL, err)
	}
	return nil
}

// hotConfig configures the connections that submit, lease and settle at a server.
func (c *Core) hotConfig(s postgres.Server) postgres.PoolConfig {
	config := postgres.PoolConfig{URL: c.Config.URL, Server: s, Size: c.Config.HotPool,
		NoRoles: c.Config.NoRoles, Group: c.newGroup(), Distributed: c.distributed}
	if s != (postgres.Server{}) {
		config.BaseRole = c.Roles.Base()
	}
	return config
}

// newGroup returns a group for pools.
func (c *Core) newGroup() *postgres.PoolGroup {
	group := &postgres.PoolGroup{}
	if c.distributed {
		group.Distribute()
	}
	return group
}

// start measures the clock, and makes the catalog and the wake-ups. The catalog is still empty.
func (c *Core) start(ctx context.Context) error {
	c.Clock = news.NewClock(c.Base)
	if err := news.RefreshClock(ctx, c.Clock); err != nil {
		return err
	}
	c.Catalog = newCatalog(c)
	c.Wakeups = newWakeups(c)
	if !c.distributed || c.Config.NotDistributed || c.Config.PooledURL != "" {
		return nil
	}
	c.workers = newWorkers(c)
	if err := c.workers.follow(ctx); err != nil {
		c.Log.Warn("can't go straight to the workers of Citus; going through the coordinator",
			"error", err)
	}
	return nil
}
