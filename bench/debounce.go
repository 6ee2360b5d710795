package main

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// debounce asks: how long does a submit take that replaces a task, when all have one key? And what
// does this cost the submits of another type beside?
var debounce = scenario{
	"debounce", "One key, 1,000 submits/s that replace its task", 1,
	beginDebounce,
}

const (
	debounceRate = 1000 // submits a second of the key
	besideRate   = 200  // submits a second of the other type
	// debounceMore are the members of a task that is replaced.
	debounceMore = `"key":"hot","on_conflict":"replace","delay":"1h",`
)

func beginDebounce(ctx context.Context, r *rounds) (measure, error) {
	hot, err := r.Register(ctx, "debounce", rig.Shape{})
	if err != nil {
		return nil, err
	}
	plain, err := r.Register(ctx, "debounce_beside", rig.Shape{})
	if err != nil {
		return nil, err
	}
	if err := r.Pause(ctx, plain); err != nil {
		return nil, err
	}
	r.countDead(r.Rig, plain)
	return func(ctx context.Context) (all report.Figures, err error) {
		submits := int(r.latencyTime.Seconds())
		alone, err := timedTrickle(ctx, r.Rig, plain, submits*besideRate, besideRate, "")
		if err != nil {
			return nil, err
		}
		var took, beside callTimes
		var g errgroup.Group
		g.Go(func() (err error) {
			beside, err = timedTrickle(ctx, r.Rig, plain, submits*besideRate, besideRate, "")
			return err
		})
		took, err = timedTrickle(ctx, r.Rig, hot, submits*debounceRate, debounceRate, debounceMore)
		if err := g.Wait(); err != nil {
			return nil, err
		}
		all = append(all, took.figures()...)
		all.Add("alone_p99", "Other submits before, p99", "ms", alone.percentile(99))
		all.Add("beside_p99", "Other submits beside, p99", "ms", beside.percentile(99))
		return all, err
	}, nil
}

// timedTrickle submits tasks of a type at a rate, one a call, and returns how long each call took.
func timedTrickle(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int, rate float64, more string,
) (callTimes, error) {
	first := r.Take(t, tasks)
	took := make(callTimes, tasks)
	_, err := rig.Trickle(ctx, tasks, rate, func(ctx context.Context, i int) error {
		body := rig.AppendTask(nil, t.Name, first+i, payload.Usual, more)
		start := time.Now()
		_, err := r.API.Call(ctx, http.MethodPost, "/v1/tasks", body)
		took[i] = time.Since(start)
		return err
	})
	return took, err
}
