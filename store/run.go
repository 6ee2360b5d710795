package store

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// Run maintains the clock, the catalog, the node's row, the figures of endpoints and the
// wake-ups until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	loops := []catalog.Loop{
		{Name: "minutes of endpoints", Period: counts.MinutesEvery,
			Do: func(ctx context.Context) error { return counts.WriteMinutes(ctx, s.countsRoom) }},
		{Name: "charges of submits", Period: catalog.RefreshEvery,
			Do: func(ctx context.Context) error { return hot.WriteCharges(ctx, s.hotRoom) }},
	}
	if s.core.Config.MaxContext > 0 {
		loops = append(loops, catalog.Loop{Name: "limits of submits by SQL",
			Period: catalog.RefreshEvery, Do: settings.NewSubmitLimits(s.settingsRoom).Write})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.core.Run(ctx, loops...) })
	g.Go(func() error { return s.forgetTypes(ctx) })
	return g.Wait()
}

// forgetTypes drops what this node keeps for task types that are gone, after each change of their
// tenant's configuration, until ctx ends.
func (s *Store) forgetTypes(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changes.Changed():
		}
		for tenant := range s.changes.Read().Changed {
			settings.ForgetTypes(s.core, s.hotRoom, tenant)
		}
	}
}
