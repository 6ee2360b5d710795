package store

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A connection must not keep rows locked when its node is stopped or cut off:
// the server ends a transaction that sits idle for 5 s and a statement that
// runs for 30 s, and gives up a peer that is silent on TCP for about 10 s.
var connectionSettings = map[string]string{
	"application_name":                    "asyncflow",
	"timezone":                            "UTC",
	"synchronous_commit":                  "on",
	"idle_in_transaction_session_timeout": "5000",
	"statement_timeout":                   "30000",
	"tcp_keepalives_idle":                 "5",
	"tcp_keepalives_interval":             "2",
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "10000",
}

// The hot statements read a few rows by index from tables that are never
// analysed (their size swings between nothing and millions), so the planner is
// left no other plan, and plans once for each connection. Parallel workers cost more to
// start than a few rows take (a page of a list from 10 million tasks: 18 ms, else 1 ms).
var hotSettings = map[string]string{
	"enable_seqscan":    "off",
	"enable_sort":       "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"plan_cache_mode":   "force_generic_plan",
	"jit":               "off",

	"max_parallel_workers_per_gather": "0",
}

const (
	// statementCache bounds the prepared statements of a connection. A hot type
	// needs about ten; the server keeps some 50 kB for each.
	statementCache = 256
	// connectionAge recycles connections: a backend's catalog cache only grows.
	connectionAge = 30 * time.Minute

	connectTimeout = 5 * time.Second
)

// newPool opens a pool of at most size connections with the settings above and
// more on top.
func newPool(ctx context.Context, url string, size int, more map[string]string) (*pgxpool.Pool, error) {
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
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("newPool: %w", err)
	}
	return pool, nil
}
