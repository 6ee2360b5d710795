package postgres

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lifetimes bound how long connections last and what they keep. A backend's caches of the catalog
// only grow: with each table that it opens, some 10 kB with its indexes.
type lifetimes struct {
	age  time.Duration // of a connection
	idle time.Duration // without use
	// statements bounds the prepared ones of a connection. The server keeps some 50 kB for each.
	statements int
}

var (
	// baseLifetimes are for connections that see the tables of all tenants. (Measured with 10,000
	// types in 1,000 tenants: 120 MB for one that opened the tables of each.) A new one costs some
	// ms.
	baseLifetimes = lifetimes{age: 2 * time.Minute, idle: 30 * time.Second, statements: 128}
	// hotLifetimes are for the connections that submit, lease and settle. A task that comes
	// after a longer silence waits for the connection.
	hotLifetimes = lifetimes{age: 30 * time.Minute, idle: 2 * time.Minute, statements: 2048}
)

// idleCheck is how often connections are closed that are idle for too long. It is longer than the
// idle time of connections that are used in turn: pgx puts all of them at the front of the line
// after each check, so that each is used once more.
const idleCheck = time.Minute

// PoolConfig configures a pool.
type PoolConfig struct {
	URL       string
	Size      int               // the most connections
	Settings  map[string]string // added to connectionSettings
	NoRoles   bool              // else connections take the base role
	Statement time.Duration     // bounds each statement
	Hot       bool              // for submits, leases and settlements
	Group     *PoolGroup        // the pools with connections that break together
	Pooler    *Pooler           // instead of URL, for pooled connections; nil: they are direct
	// Distributed says that tenants may be on workers of Citus.
	Distributed bool
	Server      Server // instead of the one of URL; zero: that one
	// BaseRole is the base role, for connections to workers of Citus: no table there names it.
	// "": the database says so.
	BaseRole string
}

// Server is the address of a server.
type Server struct {
	Host string
	Port uint16
}

// String returns the address as host:port.
func (s Server) String() string { return net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))) }

// replace lets a connection lead to the server, in each of the ways of the URL to its first
// host: some modes of sslmode try one after the other.
func (s Server) replace(cfg *pgconn.Config) {
	if s == (Server{}) {
		return
	}
	var ways []*pgconn.FallbackConfig
	for _, f := range cfg.Fallbacks {
		if f.Host == cfg.Host && f.Port == cfg.Port {
			way := *f
			way.Host, way.Port, way.TLSConfig = s.Host, s.Port, s.named(f.TLSConfig)
			ways = append(ways, &way)
		}
	}
	cfg.Host, cfg.Port, cfg.Fallbacks = s.Host, s.Port, ways
	cfg.TLSConfig = s.named(cfg.TLSConfig)
}

// named makes a certificate name this server, if it must name any.
func (s Server) named(c *tls.Config) *tls.Config {
	if c == nil || c.ServerName == "" {
		return c
	}
	c = c.Clone()
	c.ServerName = s.Host
	return c
}

// NewPool opens a pool.
func NewPool(ctx context.Context, config PoolConfig) (*pgxpool.Pool, error) {
	cfg, err := pgxConfig(config)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres.NewPool: %w", err)
	}
	config.Group.add(pool)
	return pool, nil
}

func pgxConfig(config PoolConfig) (*pgxpool.Config, error) {
	url := config.URL
	if config.Pooler != nil {
		url = config.Pooler.URL
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.Server.replace(&cfg.ConnConfig.Config)
	cfg.MaxConns = int32(config.Size)
	life := baseLifetimes
	if config.Hot {
		life = hotLifetimes
	}
	cfg.MaxConnLifetime = life.age
	cfg.MaxConnLifetimeJitter = life.age / 10
	cfg.MaxConnIdleTime = life.idle
	cfg.HealthCheckPeriod = idleCheck
	cfg.PingTimeout = pingTime
	cfg.ConnConfig.ConnectTimeout = ConnectTimeout
	cfg.ConnConfig.DialFunc = config.Group.dial
	cfg.ConnConfig.OnNotice = noteNotReplicated
	cfg.ConnConfig.Tracer = &deadlines{config.Statement, config.Group}
	cfg.ConnConfig.StatementCacheCapacity = life.statements
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	cfg.PrepareConn = forgetNotReplicated
	cfg.BeforeConnect = config.Group.order
	if config.Pooler != nil {
		pool(cfg, config, life)
	} else {
		config.Group.refuseReplaced(cfg.ConnConfig)
		keepSession(cfg, config)
	}
	return cfg, nil
}

const (
	// propagateSetting makes Citus pass SET LOCAL on to workers.
	propagateSetting = "citus.propagate_set_commands"
	// KeptSetting is how many connections to a worker Citus keeps open for each role that a session
	// takes: as many as there are tenants, in the end.
	KeptSetting = "citus.max_cached_conns_per_worker"
)

// keepSession gives direct connections their settings and the base role once, when they are new.
func keepSession(cfg *pgxpool.Config, config PoolConfig) {
	settings := merged(connectionSettings, config.Settings)
	cfg.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := set(ctx, conn, &cfg.ConnConfig.Config, settings); err != nil {
			return err
		}
		if !config.NoRoles {
			if err := assumeBaseRole(ctx, conn, config.BaseRole); err != nil {
				return err
			}
		}
		return liftConnectDeadline(conn)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		PresizeArrays(conn.TypeMap())
		if config.Group.distributed.Load() {
			e := *direct
			e.distribute(config.Hot)
			conn.PgConn().CustomData()[entryKey] = &e
			sql := `SET ` + propagateSetting + ` = 'local'`
			if !config.NoRoles {
				sql += `; SET ` + KeptSetting + ` = 0`
			}
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return config.Group.compression.choose(ctx, conn)
	}
}

// pool gives pooled connections the entry of their transactions, and nothing that would last.
func pool(cfg *pgxpool.Config, config PoolConfig, life lifetimes) {
	nameSession(&cfg.ConnConfig.Config)
	if !config.Pooler.Prepared {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		cfg.ConnConfig.DescriptionCacheCapacity = life.statements
		cfg.ConnConfig.StatementCacheCapacity = 0
	}
	settings := merged(transactionSettings, config.Settings)
	cfg.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := config.Pooler.checkConn(ctx, conn); err != nil {
			return err
		}
		return liftConnectDeadline(conn)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		PresizeArrays(conn.TypeMap())
		lz4, err := config.Group.compression.asked(ctx, conn)
		if err != nil {
			return err
		}
		own := maps.Clone(settings)
		if lz4 {
			own["default_toast_compression"] = "lz4"
		}
		distributed := config.Group.distributed.Load()
		if distributed {
			own[propagateSetting] = "local"
			if !config.NoRoles {
				own[KeptSetting] = "0"
			}
		}
		e := newEntry(own)
		if distributed {
			e.distribute(config.Hot)
		}
		conn.PgConn().CustomData()[entryKey] = e
		return nil
	}
}
