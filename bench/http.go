package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// httpAlone asks: how many POSTs a second does this machine allow at all? No dispatcher on net/http
// delivers faster.
var httpAlone = scenario{"http", "HTTP alone", 1, beginHTTP}

// httpConnections is the number of goroutines that send without a pause.
const httpConnections = 64

func beginHTTP(_ context.Context, r *rounds) (measure, error) {
	return func(ctx context.Context) (report.Figures, error) {
		return roundTrips(ctx, r.Rig, r.httpTime)
	}, nil
}

// roundTrips measures POSTs to the worker, which reads them and answers 200.
func roundTrips(
	ctx context.Context, r *rig.Rig, lasting time.Duration,
) (all report.Figures, err error) {
	body := []byte(strings.Repeat("x", payload.Usual))
	before, err := r.Usage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var trips atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range httpConnections {
		g.Go(func() error {
			for time.Since(start) < lasting {
				if _, err := r.Worker.Call(ctx, http.MethodPost, worker.RawPath, body); err != nil {
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
	after, err := r.Usage()
	n := int(trips.Load())
	if err == nil && n == 0 {
		err = errors.New("broken: not one round trip")
	}
	u := after.Since(before)
	all.Add("rate", "Rate", "round trips/s", float64(n)/elapsed.Seconds())
	all.Add("cpu_submitter", "CPU of the client", "µs/round trip", rig.Micros(u.Client, n))
	all.Add("cpu_worker", "CPU of the worker", "µs/round trip", rig.Micros(u.Worker, n))
	all.Add("cpu_all", "CPU of both", "µs/round trip", rig.Micros(u.Client+u.Worker, n))
	return all, err
}
