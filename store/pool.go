package store

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// statementCache bounds the prepared statements of a connection. A hot type
	// needs four to ten; the server keeps some 50 kB for each.
	statementCache = 512
	// connectionAge recycles connections: a backend's catalog cache only grows.
	connectionAge = 30 * time.Minute

	connectTimeout = 5 * time.Second
)

// newPool opens a pool of at most size connections with connectionSettings and
// more on top, which have the base role unless noRoles.
func newPool(ctx context.Context, url string, size int, more map[string]string, noRoles bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(size)
	cfg.MaxConnLifetime = connectionAge
	cfg.MaxConnLifetimeJitter = connectionAge / 10
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	cfg.ConnConfig.StatementCacheCapacity = statementCache
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	maps.Copy(cfg.ConnConfig.RuntimeParams, connectionSettings)
	maps.Copy(cfg.ConnConfig.RuntimeParams, more)
	if !noRoles {
		cfg.ConnConfig.AfterConnect = connectAsBase
	}
	cfg.ConnConfig.OnNotice = noteNotReplicated
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		makeRoomy(conn.TypeMap())
		return compressWell(ctx, conn)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("newPool: %w", err)
	}
	return pool, nil
}
