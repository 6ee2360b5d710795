package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// rawConnections is how many goroutines send without a pause.
const rawConnections = 64

func beginHTTP(_ context.Context, r *rounds) (measure, error) {
	return func(ctx context.Context) (figures, error) { return r.rawRoundTrips(ctx, r.httpTime) }, nil
}

// rawRoundTrips measures what HTTP alone allows here: POSTs to the worker, which
// reads them and answers 200. No dispatcher on net/http delivers faster.
func (b *bench) rawRoundTrips(ctx context.Context, lasting time.Duration) (figures, error) {
	body := []byte(strings.Repeat("x", contextBytes))
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var trips atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range rawConnections {
		g.Go(func() error {
			for time.Since(start) < lasting {
				if _, err := b.sink.call(ctx, http.MethodPost, rawPath, body); err != nil {
					return err
				}
				trips.Add(1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := b.usage()
	n := int(trips.Load())
	if err == nil && n == 0 {
		err = errors.New("broken: not one round trip")
	}
	u := after.since(before)
	return figures{
		{"rate", "Rate", "round trips/s", float64(n) / elapsed.Seconds()},
		{"cpu_submitter", "CPU of the client", "µs/round trip", micros(u.submitter, n)},
		{"cpu_worker", "CPU of the worker", "µs/round trip", micros(u.worker, n)},
		{"cpu_all", "CPU of both", "µs/round trip", micros(u.submitter+u.worker, n)},
	}, err
}
