package main

import (
	"context"
	"fmt"
	"strings"
)

// warmUpTasks open connections, fill caches and prepare statements.
const warmUpTasks = 2000

func (b *bench) warmUp(ctx context.Context, p *pipe) error {
	_, err := b.endToEnd(ctx, p, warmUpTasks)
	return err
}

// round measures everything once.
func (b *bench) round(ctx context.Context, cfg config, p *pipe) (figures, error) {
	var all figures
	for _, part := range []struct {
		name    string
		measure func(context.Context) (figures, error)
	}{
		{"end to end", func(ctx context.Context) (figures, error) { return b.endToEnd(ctx, p, cfg.tasks) }},
		{"latency", func(ctx context.Context) (figures, error) { return b.latency(ctx, p, cfg.latency) }},
		{"HTTP alone", func(ctx context.Context) (figures, error) { return b.rawRoundTrips(ctx, cfg.rawHTTP) }},
		{"store alone", func(ctx context.Context) (figures, error) { return b.rawStoreCycle(ctx, cfg.tasks) }},
	} {
		f, err := part.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		all = append(all, f...)
	}
	return all, all.check()
}

// figure is one measured value.
type figure struct {
	key   string // in JSON
	name  string // in the table
	unit  string
	value float64
}

type figures []figure

// check refuses rates of zero: nothing was done.
func (f figures) check() error {
	for _, one := range f {
		if strings.HasSuffix(one.unit, "/s") && !(one.value > 0) {
			return fmt.Errorf("broken: %s is %g %s", one.name, one.value, one.unit)
		}
	}
	return nil
}
