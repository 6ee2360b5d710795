package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// latencyRate is the number of tasks a second that Latency submits, one by one.
const latencyRate = 100

// Latency measures the time from the moment before a submit is sent until the task is with the
// worker, at a rate that is far from the limit.
func (r *Rig) Latency(
	ctx context.Context, t *TaskType, lasting time.Duration,
) (report.Figures, error) {
	_, all, err := r.Latencies(ctx, t, lasting)
	if err != nil {
		return nil, err
	}
	return latencyFigures(all), nil
}

// Latencies is Latency, and returns for each task when it was submitted, in Unix nanoseconds, and
// how long it took, in ms.
func (r *Rig) Latencies(
	ctx context.Context, t *TaskType, lasting time.Duration,
) (sent []int64, took []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+Slack)
	defer cancel()
	tasks := int(lasting.Seconds() * latencyRate)
	first := r.Take(t, tasks)
	sent, err = Trickle(ctx, tasks, latencyRate, func(ctx context.Context, i int) error {
		return r.API.Submit(ctx, t.Name, first+i)
	})
	if err != nil {
		return nil, nil, err
	}
	took, err = r.arrivals(ctx, first, sent)
	return sent, took, err
}

// Trickle makes calls at a rate, in calls a second, and returns when each was made, in Unix
// nanoseconds. It makes them on schedule, answered or not.
func Trickle(
	ctx context.Context, calls int, rate float64, call func(ctx context.Context, i int) error,
) ([]int64, error) {
	sent := make([]int64, calls)
	g, running := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range sent {
		due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		select {
		case <-running.Done():
			return nil, errors.Join(g.Wait(), ctx.Err())
		case <-time.After(time.Until(due)):
		}
		g.Go(func() error {
			sent[i] = time.Now().UnixNano()
			return call(running, i)
		})
	}
	return sent, g.Wait()
}

// Arrivals waits for tasks and returns how long they took. first is the number of the first task,
// and sent when each was submitted, in Unix nanoseconds.
func (r *Rig) Arrivals(ctx context.Context, first int, sent []int64) (report.Figures, error) {
	latencies, err := r.arrivals(ctx, first, sent)
	if err != nil {
		return nil, err
	}
	return latencyFigures(latencies), nil
}

// arrivals is Arrivals, and returns the time of each task, in ms.
func (r *Rig) arrivals(ctx context.Context, first int, sent []int64) ([]float64, error) {
	arrived, err := r.awaitArrivals(ctx, first, first+len(sent))
	if err != nil {
		return nil, err
	}
	latencies := make([]float64, len(sent))
	for i := range sent {
		latencies[i] = float64(arrived[i]-sent[i]) / 1e6
	}
	return latencies, nil
}

func latencyFigures(latencies []float64) (all report.Figures) {
	all.Add("latency_p50", "Submit to arrival, p50", "ms", report.Percentile(latencies, 50))
	all.Add("latency_p95", "Submit to arrival, p95", "ms", report.Percentile(latencies, 95))
	all.Add("latency_p99", "Submit to arrival, p99", "ms", report.Percentile(latencies, 99))
	return all
}

// awaitArrivals waits until the tasks from first to end are with the worker, and returns when each
// came.
func (r *Rig) awaitArrivals(ctx context.Context, first, end int) (times []int64, err error) {
	missing := 0
	path := fmt.Sprintf("%s?from=%d&to=%d", worker.ArrivalsPath, first, end)
	err = Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := r.Worker.get(ctx, path, &times)
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
