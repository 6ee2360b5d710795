package main

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// told and waits ask: how soon after its end is a task told? told makes 1,000 ends a second, each
// with an on_final; waits makes 100 submits a second that wait for the end of their task.
var (
	told = scenario{
		"told", "End of a task to its event at 1,000 ends/s", 1,
		beginTold,
	}
	waits = scenario{
		"waits", "End of a task to the answer of the submit that waits for it, at 100/s", 1,
		beginWaits,
	}
)

// toldRate is the number of ends a second of told, waitsRate that of submits of waits.
const (
	toldRate  = 1000
	waitsRate = 100
)

func beginTold(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "told", rig.Shape{More: r.OnFinal()})
	return func(ctx context.Context) (all report.Figures, err error) {
		ctx, cancel := context.WithTimeout(ctx, r.latencyTime+rig.Slack)
		defer cancel()
		before, err := r.Lateness(ctx, 0)
		if err != nil {
			return nil, err
		}
		calls := int(r.latencyTime.Seconds() * toldRate / rig.BatchSize)
		first := r.Take(t, calls*rig.BatchSize)
		_, err = rig.Trickle(ctx, calls, toldRate/rig.BatchSize,
			func(ctx context.Context, i int) error {
				return r.API.SubmitBatch(ctx, t.Name, first+i*rig.BatchSize, "")
			})
		if err != nil {
			return nil, err
		}
		late, err := r.Lateness(ctx, len(before)+calls*rig.BatchSize)
		if err != nil {
			return nil, err
		}
		addLateness(&all, late[len(before):])
		return all, nil
	}, err
}

func beginWaits(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "waits", rig.Shape{})
	return func(ctx context.Context) (all report.Figures, err error) {
		ctx, cancel := context.WithTimeout(ctx, r.latencyTime+rig.Slack)
		defer cancel()
		calls := int(r.latencyTime.Seconds() * waitsRate)
		first := r.Take(t, calls)
		late := make([]time.Duration, calls)
		_, err = rig.Trickle(ctx, calls, waitsRate, func(ctx context.Context, i int) (err error) {
			late[i], err = r.API.SubmitAndWait(ctx, t.Name, first+i)
			return err
		})
		if err != nil {
			return nil, err
		}
		addLateness(&all, late)
		return all, nil
	}, err
}

// addLateness adds how long after the end of tasks somebody was told of it.
func addLateness(all *report.Figures, late []time.Duration) {
	ms := make([]float64, len(late))
	for i, d := range late {
		ms[i] = d.Seconds() * 1e3
	}
	all.Add("late_p50", "End to told, p50", "ms", report.Percentile(ms, 50))
	all.Add("late_p99", "End to told, p99", "ms", report.Percentile(ms, 99))
}
