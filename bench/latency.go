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

func beginLatency(ctx context.Context, r *rounds) (measure, error) {
	p, err := r.register(ctx, "latency", "")
	if err == nil {
		err = r.warmUp(ctx, p)
	}
	return func(ctx context.Context) (figures, error) { return r.latency(ctx, p, r.latencyTime) }, err
}

// beginHalf: batches of 100 at half of the rate that the scenario post has reached last.
func beginHalf(ctx context.Context, r *rounds) (measure, error) {
	p, err := r.register(ctx, "half", "")
	if err == nil {
		err = r.warmUp(ctx, p)
	}
	return func(ctx context.Context) (figures, error) {
		if r.mostRate == 0 {
			all, err := r.rate(ctx, p, r.tasks)
			if err != nil {
				return nil, err
			}
			r.mostRate = all[0].value
		}
		return r.halfRate(ctx, p)
	}, err
}

func (r *rounds) halfRate(ctx context.Context, p *pipe) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, r.latencyTime+slack)
	defer cancel()
	rate := r.mostRate / 2
	calls := int(rate * r.latencyTime.Seconds() / 2 / batchSize) // half as long as the other
	first := r.take(p, calls*batchSize)
	sent, err := trickle(ctx, calls, rate/batchSize, func(ctx context.Context, i int) error {
		return r.api.submitBatch(ctx, p.name, first+i*batchSize, "")
	})
	if err != nil {
		return nil, err
	}
	each := make([]int64, 0, calls*batchSize)
	for _, at := range sent {
		for range batchSize {
			each = append(each, at)
		}
	}
	all, err := r.arrivalFigures(ctx, first, each)
	return append(all, figure{"offered", "Offered", "tasks/s", rate}), err
}

// latency measures the time from the moment before a submit is sent until the
// worker has the task, at a rate that is far from the limit.
func (b *bench) latency(ctx context.Context, p *pipe, lasting time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+slack)
	defer cancel()
	tasks := int(lasting.Seconds() * latencyRate)
	first := b.take(p, tasks)
	sent, err := trickle(ctx, tasks, latencyRate, func(ctx context.Context, i int) error { return b.api.submit(ctx, p.name, first+i) })
	if err != nil {
		return nil, err
	}
	return b.arrivalFigures(ctx, first, sent)
}

// arrivalFigures waits for tasks, the first of them by its number, and returns how long
// they took since they were sent, in Unix nanoseconds.
func (b *bench) arrivalFigures(ctx context.Context, first int, sent []int64) (figures, error) {
	arrived, err := b.arrivals(ctx, first, first+len(sent))
	if err != nil {
		return nil, err
	}
	latencies := make([]float64, len(sent))
	for i := range sent {
		latencies[i] = float64(arrived[i]-sent[i]) / 1e6
	}
	return figures{
		{"latency_p50", "Submit to arrival, p50", "ms", percentile(latencies, 50)},
		{"latency_p95", "Submit to arrival, p95", "ms", percentile(latencies, 95)},
		{"latency_p99", "Submit to arrival, p99", "ms", percentile(latencies, 99)},
	}, nil
}

// trickle makes calls at a rate, in calls a second, and returns when each was made, in
// Unix nanoseconds. They are made on schedule, whether earlier ones are answered or not.
func trickle(ctx context.Context, calls int, rate float64, call func(ctx context.Context, i int) error) ([]int64, error) {
	sent := make([]int64, calls)
	g, running := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range sent {
		select {
		case <-running.Done():
			return nil, errors.Join(g.Wait(), ctx.Err())
		case <-time.After(time.Until(start.Add(time.Duration(float64(i) / rate * float64(time.Second))))):
		}
		g.Go(func() error {
			sent[i] = time.Now().UnixNano()
			return call(running, i)
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
