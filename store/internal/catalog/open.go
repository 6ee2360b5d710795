package catalog

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	_ "github.com/asyncflow/asyncflow/internal/expression" // evaluates retry expressions
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/news"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Open connects, and checks that the schema is current. An unreachable or outdated database is
// CodeUnavailable, with a message that says what to do. The catalog is empty until Load.
func Open(ctx context.Context, cfg Config) (*Core, error) {
	if cfg.Pool == 0 {
		cfg.Pool = 10
	}
	if cfg.HotPool == 0 {
		cfg.HotPool = 4
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	cfg.DefaultQuotas = cfg.DefaultQuotas.Or(asyncflow.DefaultQuotas)
	c := newCore(cfg)
	if err := c.connect(ctx); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Load fills the catalog.
func (c *Core) Load(ctx context.Context) error { return c.Catalog.open(ctx) }

// closePatience bounds how long Close waits for connections in use.
const closePatience = 5 * time.Second

// Close closes the connections, but doesn't wait for long for connections in use.
func (c *Core) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if c.Catalog != nil {
			c.Catalog.close()
		}
		if c.Base != nil {
			c.Base.Close()
		}
		if c.pooled != nil {
			c.pooled.Close()
		}
		if c.workers != nil {
			c.workers.close()
		}
		if c.HotPool != nil {
			c.HotPool.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
}

// Ping returns nil if the database answers and accepts writes, also through the pooler if there is
// one, and the schema asyncflow is current.
// A tenant that is behind doesn't count: this node serves all others.
func (c *Core) Ping(ctx context.Context) error {
	if err := schema.CheckBase(ctx, c.Base, c.Config.URL); err != nil {
		return err
	}
	var readOnly bool
	err := c.Base.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).
		Scan(&readOnly)
	if err != nil {
		return postgres.ConnectError(c.Config.URL, err)
	}
	if readOnly { // another host may accept writes now: only connecting checks that
		c.group.Reset()
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the database is read-only")
	}
	if c.pooled == nil {
		return nil
	}
	if err := c.pooler.Check(ctx, c.pooled); err != nil {
		return postgres.ConnectError(c.Config.PooledURL, err)
	}
	return nil
}

// A Loop is what Run does once a period.
type Loop struct {
	Name   string        // for the log
	Delay  time.Duration // before the first time
	Period time.Duration
	Do     func(context.Context) error
}

// Run maintains the clock, the catalog, the node's row and the wake-ups until ctx ends, and runs
// the loops of the rooms above. Open and Load have just read the clock and the catalog. The delays
// keep the loops out of step: at once, each would take a connection of its own.
func (c *Core) Run(ctx context.Context, loops ...Loop) error {
	g, ctx := errgroup.WithContext(ctx)
	loops = append(loops, Loop{Name: "node", Period: nodeEvery, Do: c.beat},
		Loop{Name: "catalog", Delay: RefreshEvery, Period: RefreshEvery, Do: c.Catalog.follow},
		Loop{Name: "clock", Delay: news.ClockEvery / 2, Period: news.ClockEvery,
			Do: func(ctx context.Context) error { return news.RefreshClock(ctx, c.Clock) }})
	if c.workers != nil {
		loops = append(loops, Loop{Name: "placements", Delay: RefreshEvery, Period: RefreshEvery,
			Do: c.workers.follow})
		g.Go(func() error { return c.workers.watch(ctx) })
	}
	for _, l := range loops {
		g.Go(func() error { return c.every(ctx, l) })
	}
	g.Go(func() error { return c.prober.Run(ctx) })
	if c.Config.Notify {
		g.Go(func() error { return c.Wakeups.send(ctx) })
		g.Go(func() error { return c.Wakeups.listen(ctx) })
		g.Go(func() error { return c.Wakeups.followConfig(ctx) })
	} else {
		g.Go(func() error { return c.Wakeups.followServer(ctx) })
	}
	err := g.Wait()
	c.leave()
	return err
}

// every runs a loop: after its delay, and then once a period. It logs failures and goes on, as the
// database may be away for a while.
func (c *Core) every(ctx context.Context, l Loop) error {
	if !sleep.For(ctx, l.Delay) {
		return nil
	}
	ticker := time.NewTicker(l.Period)
	defer ticker.Stop()
	for {
		doCtx, cancel := context.WithTimeout(ctx, max(l.Period, postgres.ConnectTimeout))
		if err := l.Do(doCtx); err != nil && ctx.Err() == nil {
			c.Log.Warn("can't refresh, trying again", "what", l.Name, "error", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
