package postgres

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// statementCache bounds the prepared statements of a connection. A hot type
	// needs four to ten; the server keeps some 50 kB for each.
	statementCache = 4096
	// connectionAge recycles connections: a backend's catalog cache only grows.
	connectionAge = 30 * time.Minute
)

// PoolConfig configures a pool.
type PoolConfig struct {
	URL       string
	Size      int               // the most connections
	Settings  map[string]string // added to connectionSettings
	NoRoles   bool              // else connections take the base role
	Statement time.Duration     // bounds each statement
	Fate      *SharedFate       // the pools whose connections break together
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
	config.Fate.add(pool)
	return pool, nil
}

func pgxConfig(config PoolConfig) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(config.Size)
	cfg.MaxConnLifetime = connectionAge
	cfg.MaxConnLifetimeJitter = connectionAge / 10
	cfg.PingTimeout = pingTime
	cfg.ConnConfig.ConnectTimeout = ConnectTimeout
	cfg.ConnConfig.DialFunc = config.Fate.dial
	cfg.ConnConfig.OnNotice = noteNotReplicated
	cfg.ConnConfig.Tracer = &deadlines{config.Statement, config.Fate}
	cfg.ConnConfig.StatementCacheCapacity = statementCache
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	maps.Copy(cfg.ConnConfig.RuntimeParams, connectionSettings)
	maps.Copy(cfg.ConnConfig.RuntimeParams, config.Settings)
	cfg.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if !config.NoRoles {
			if err := takeBaseRole(ctx, conn); err != nil {
				return err
			}
		}
		return liftConnectDeadline(conn)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		PresizeArrays(conn.TypeMap())
		return compressByLZ4(ctx, conn)
	}
	return cfg, nil
}
