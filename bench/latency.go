package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// latencyRate is how many tasks a second are submitted, one by one.
const latencyRate = 100

// latency measures the time from the moment before a submit is sent until the
// worker has the task, at a rate that is far from the limit. Submits are sent on
// schedule, whether earlier ones are answered or not.
func (b *bench) latency(ctx context.Context, p *pipe, lasting time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+slack)
	defer cancel()
	first := b.next
	sent, err := b.trickle(ctx, p, int(lasting.Seconds()*latencyRate))
	if err != nil {
		return nil, err
	}
	arrived, err := b.arrivals(ctx, first, first+len(sent))
	if err != nil {
		return nil, err
	}
	latencies := make([]float64, len(sent))
	for i := range sent {
		latencies[i] = float64(arrived[i]-sent[i]) / 1e6
	}
	return figures{
		{"latency_p50", "Submit to arrival at 100/s, p50", "ms", percentile(latencies, 50)},
		{"latency_p95", "Submit to arrival at 100/s, p95", "ms", percentile(latencies, 95)},
		{"latency_p99", "Submit to arrival at 100/s, p99", "ms", percentile(latencies, 99)},
	}, nil
}

// trickle submits tasks at latencyRate and returns when each was sent, in Unix
// nanoseconds.
func (b *bench) trickle(ctx context.Context, p *pipe, tasks int) ([]int64, error) {
	first := b.take(p, tasks)
	sent := make([]int64, tasks)
	g, ctx := errgroup.WithContext(ctx)
	ticker := time.NewTicker(time.Second / latencyRate)
	defer ticker.Stop()
	for i := range sent {
		select {
		case <-ctx.Done():
			return nil, errors.Join(g.Wait(), ctx.Err())
		case <-ticker.C:
		}
		g.Go(func() error {
			sent[i] = time.Now().UnixNano()
			return b.api.submit(ctx, p.name, first+i)
		})
	}
	return sent, g.Wait()
}

// arrivals waits until the worker has the tasks from first to end, and returns
// when each came.
func (b *bench) arrivals(ctx context.Context, first, end int) (times []int64, err error) {
	missing := 0
	err = poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := b.sink.get(ctx, fmt.Sprintf("%s?from=%d&to=%d", arrivalsPath, first, end), &times)
		missing = 0
		for _, t := range times {
			if t == 0 {
				missing++
			}
		}
		return missing == 0, err
	})
	if err != nil {
		err = errors.Join(err, fmt.Errorf("%d of %d tasks have not arrived", missing, end-first))
	}
	return times, err
}
