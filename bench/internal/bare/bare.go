// Package bare is the least that a durable dispatcher does: tasks are inserted, leased, POSTed one
// by one and deleted, all but the POSTs in batches. As in a node, 1,024 tasks are under way and
// contexts are text. Nothing is signed, retried, recorded or limited; there is no API.
package bare

import (
	"context"
	"net/http"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/peer"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/callbacks"
)

// Mode is the argument that makes the bench program the bare loop.
const Mode = "bare"

// newTransport returns that of a node.
func newTransport() http.RoundTripper {
	return callbacks.NewTransport(callbacks.Config{Connections: 256, Egress: asyncflow.Anywhere})
}

// tuneMemory sets what a node sets.
func tuneMemory() {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
}

// Run is the program of a peer.
func Run(ctx context.Context, args []string) error {
	flags, err := peer.ParseFlags(Mode, args)
	if err != nil {
		return err
	}
	tuneMemory()
	pool, err := open(ctx, flags.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	transport := newTransport()
	measure := func(tasks int) (peer.Result, error) {
		l := &loop{
			pool:      pool,
			transport: transport,
			url:       flags.URL,
			tasks:     tasks,
			leased:    make(chan job, slots),
			posted:    make(chan job, slots),
			slots:     make(chan struct{}, slots),
		}
		return l.measure(ctx)
	}
	if _, err := measure(rig.WarmUpTasks); err != nil {
		return err
	}
	return peer.Serve(func() (peer.Result, error) { return measure(flags.Jobs) })
}

// open makes the table, empty. Plans are pinned, since the table is never analyzed.
func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = rig.Submitters + 4
	for _, setting := range []string{"enable_seqscan", "enable_sort", "enable_bitmapscan"} {
		cfg.ConnConfig.RuntimeParams[setting] = "off"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{
		`CREATE TABLE IF NOT EXISTS bare (
			id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			leased  boolean NOT NULL DEFAULT false,
			created timestamptz NOT NULL,
			context text NOT NULL)`,
		`CREATE INDEX IF NOT EXISTS bare_pending ON bare (id) WHERE NOT leased`,
		`TRUNCATE bare`,
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	return pool, nil
}
