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
		{"raw_http", "HTTP alone", "round trips/s", float64(n) / elapsed.Seconds()},
		{"raw_http_cpu_client", "HTTP alone, CPU of the client", "µs/round trip", micros(u.submitter, n)},
		{"raw_http_cpu_worker", "HTTP alone, CPU of the worker", "µs/round trip", micros(u.worker, n)},
	}, err
}
