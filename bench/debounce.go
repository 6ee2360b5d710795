package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// debounce asks: how long does a submit take that replaces a task, when all are of one key, or of
// one of 500? And what does this cost the submits of another type beside, compared with as many
// submits that replace nothing?
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
	other, err := r.Register(ctx, name+"_plain", rig.Shape{})
	if err != nil {
		return nil, err
	}
	for _, t := range []*rig.TaskType{plain, other} {
		if err := r.Pause(ctx, t); err != nil {
			return nil, err
		}
		r.countDead(r.Rig, t)
	}
	return func(ctx context.Context) (all report.Figures, err error) {
		submits := int(r.latencyTime.Seconds())
		alone, err := timedTrickle(ctx, r.Rig, plain, submits*besideRate, besideRate, noMore)
		if err != nil {
			return nil, err
		}
		_, among, err := besideEachOther(ctx, r, plain, other, submits, noMore)
		if err != nil {
			return nil, err
		}
		took, beside, err := besideEachOther(ctx, r, plain, hot, submits,
			func(i int) string { return fmt.Sprintf(debounceMore, i%keys) })
		if err != nil {
			return nil, err
		}
		all = append(all, took.figures()...)
		all.Add("submit_p50", "Submit, p50", "ms", took.percentile(50))
		all.Add("alone_p99", "Other submits before, p99", "ms", alone.percentile(99))
		all.Add("among_p99", "Other submits beside as many that replace nothing, p99", "ms",
			among.percentile(99))
		all.Add("beside_p99", "Other submits beside, p99", "ms", beside.percentile(99))
		return all, err
	}, nil
}

// besideEachOther submits tasks of busy at debounceRate, and tasks of plain at besideRate, for that
// many seconds. It returns how long the calls of each took. more is as for timedTrickle.
func besideEachOther(
	ctx context.Context, r *rounds, plain, busy *rig.TaskType, seconds int, more func(i int) string,
) (took, beside callTimes, err error) {
	var g errgroup.Group
	g.Go(func() (err error) {
		beside, err = timedTrickle(ctx, r.Rig, plain, seconds*besideRate, besideRate, noMore)
		return err
	})
	took, err = timedTrickle(ctx, r.Rig, busy, seconds*debounceRate, debounceRate, more)
	err = errors.Join(err, g.Wait())
	return took, beside, err
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
