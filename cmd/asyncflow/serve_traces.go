package main

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/internal/tracing"
)

// lastExport is how long a node that stops tries to export the spans that are left.
const lastExport = 5 * time.Second

// startTracer starts the tracer that the environment asks for; nil: it asks for none. stop exports
// what is left.
func startTracer(
	ctx context.Context, g *globals, cfg tracing.Config,
) (tracer *tracing.Tracer, stop func(), err error) {
	cfg.Env = g.env
	cfg.Version = version
	cfg.Console = g.stdout
	tracer, err = tracing.Start(ctx, cfg)
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastExport)
		defer cancel()
		tracer.Stop(ctx)
	}, err
}
