package store

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
	statementCache = 512
	// connectionAge recycles connections: a backend's catalog cache only grows.
	connectionAge = 30 * time.Minute
)

// poolConfig says what a pool is like.
type poolConfig struct {
	url       string
	size      int               // connections, at most
	settings  map[string]string // on top of connectionSettings
	noRoles   bool              // else connections have the base role
	statement time.Duration     // bounds each statement
	fate      *distrust         // pools whose connections break together
}

// newPool opens a pool.
func newPool(ctx context.Context, like poolConfig) (*pgxpool.Pool, error) {
	cfg, err := pgxConfig(like)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("newPool: %w", err)
	}
	like.fate.add(pool)
	return pool, nil
}

func pgxConfig(like poolConfig) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(like.url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(like.size)
	cfg.MaxConnLifetime = connectionAge
	cfg.MaxConnLifetimeJitter = connectionAge / 10
	cfg.PingTimeout = pingTime
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	cfg.ConnConfig.DialFunc = like.fate.dial
	cfg.ConnConfig.OnNotice = noteNotReplicated
	cfg.ConnConfig.Tracer = &deadlines{like.statement, like.fate}
	cfg.ConnConfig.StatementCacheCapacity = statementCache
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	maps.Copy(cfg.ConnConfig.RuntimeParams, connectionSettings)
	maps.Copy(cfg.ConnConfig.RuntimeParams, like.settings)
	cfg.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if !like.noRoles {
			if err := connectAsBase(ctx, conn); err != nil {
				return err
			}
		}
		return opened(conn)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		makeRoomy(conn.TypeMap())
		return compressWell(ctx, conn)
	}
	return cfg, nil
}
