package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// debounce asks: how long does a submit take that replaces a task, when all have one key, or one of
// 500? And what does this cost the submits of another type beside?
var debounce = scenario{
	"debounce", "One key, 1,000 submits/s that replace its task", 1,
	func(ctx context.Context, r *rounds) (measure, error) {
		return beginDebounce(ctx, r, "debounce", 1)
	},
}

var debounceKeys = scenario{
	"debounce-keys", "500 keys, 1,000 submits/s that replace their tasks", 1,
	func(ctx context.Context, r *rounds) (measure, error) {
		return beginDebounce(ctx, r, "debounce_keys", 500)
	},
}

const (
	debounceRate = 1000 // submits a second of the keys
	besideRate   = 200  // submits a second of the other type
	// debounceMore are the members of a task that is replaced; %d is the number of its key.
	debounceMore = `"key":"hot-%d","on_conflict":"replace","delay":"1h",`
)

// beginDebounce submits tasks of a type by turns of its keys.
func beginDebounce(ctx context.Context, r *rounds, name string, keys int) (measure, error) {
	hot, err := r.Register(ctx, name, rig.Shape{})
	if err != nil {
		return nil, err
	}
	plain, err := r.Register(ctx, name+"_beside", rig.Shape{})
	if err != nil {
		return nil, err
	}
	if err := r.Pause(ctx, plain); err != nil {
		return nil, err
	}
	r.countDead(r.Rig, plain)
	return func(ctx context.Context) (all report.Figures, err error) {
		submits := int(r.latencyTime.Seconds())
		alone, err := timedTrickle(ctx, r.Rig, plain, submits*besideRate, besideRate, noMore)
		if err != nil {
			return nil, err
		}
		var took, beside callTimes
		var g errgroup.Group
		g.Go(func() (err error) {
			beside, err = timedTrickle(ctx, r.Rig, plain, submits*besideRate, besideRate, noMore)
			return err
		})
		took, err = timedTrickle(ctx, r.Rig, hot, submits*debounceRate, debounceRate,
			func(i int) string { return fmt.Sprintf(debounceMore, i%keys) })
		if err := g.Wait(); err != nil {
			return nil, err
		}
		all = append(all, took.figures()...)
		all.Add("submit_p50", "Submit, p50", "ms", took.percentile(50))
		all.Add("alone_p99", "Other submits before, p99", "ms", alone.percentile(99))
		all.Add("beside_p99", "Other submits beside, p99", "ms", beside.percentile(99))
		return all, err
	}, nil
}

func noMore(int) string { return "" }

// timedTrickle submits tasks of a type at a rate, one a call, and returns how long each call took.
// more returns further members of the i-th task.
func timedTrickle(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int, rate float64,
	more func(i int) string,
) (callTimes, error) {
	first := r.Take(t, tasks)
	took := make(callTimes, tasks)
	_, err := rig.Trickle(ctx, tasks, rate, func(ctx context.Context, i int) error {
		body := rig.AppendTask(nil, t.Name, first+i, payload.Usual, more(i))
		start := time.Now()
		_, err := r.API.Call(ctx, http.MethodPost, "/v1/tasks", body)
		took[i] = time.Since(start)
		return err
	})
	return took, err
}
