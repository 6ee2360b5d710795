package store

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Run maintains the clock, the catalog, the node's row, the figures of endpoints and the
// wake-ups until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.every(ctx, clockEvery, "clock", s.Clock.refresh) })
	g.Go(func() error { return s.every(ctx, catalogEvery, "catalog", s.Catalog.follow) })
	g.Go(func() error { return s.every(ctx, nodeEvery, "node", s.beat) })
	g.Go(func() error { return s.every(ctx, minutesEvery, "minutes of endpoints", s.writeMinutes) })
	g.Go(func() error { return s.every(ctx, catalogEvery, "charges of submits", s.writeCharges) })
	if s.cfg.MaxContext > 0 {
		g.Go(func() error {
			return s.every(ctx, catalogEvery, "limits of submits by SQL",
				s.newSubmitLimits().write)
		})
	}
	if s.cfg.Notify {
		g.Go(func() error { return s.Wakeups.send(ctx) })
		g.Go(func() error { return s.Wakeups.listen(ctx) })
		g.Go(func() error { return s.Wakeups.followConfig(ctx) })
	}
	err := g.Wait()
	s.leave()
	return err
}

// every calls do at once and then once a period. It logs failures and goes on, as the database
// may be away for a while.
func (s *Store) every(
	ctx context.Context,
	period time.Duration,
	name string,
	do func(context.Context) error,
) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		doCtx, cancel := context.WithTimeout(ctx, max(period, postgres.ConnectTimeout))
		if err := do(doCtx); err != nil && ctx.Err() == nil {
			s.log.Warn("can't refresh, trying again", "what", name, "error", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
