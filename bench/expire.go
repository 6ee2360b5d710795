package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// expire asks: how fast are many tasks ended whose lifetime is over in the same moment, and how
// quickly do tasks of another type still arrive?
var expire = scenario{
	"expire", "Tasks that expire at once", 1,
	beginExpire,
}

// The tasks expire when they are submitted for sure, and what comes before was measured.
const (
	expireSubmits = 5000 // submits a second, at least
	expireMargin  = 10 * time.Second
)

// beginExpire submits tasks, in each round anew, to a type that is paused.
func beginExpire(ctx context.Context, r *rounds) (measure, error) {
	expiring, err := r.Register(ctx, "expiring", rig.Shape{})
	if err != nil {
		return nil, err
	}
	if err := r.Pause(ctx, expiring); err != nil {
		return nil, err
	}
	beside, err := r.Register(ctx, "expire_beside", rig.Shape{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (report.Figures, error) {
		return expireRound(ctx, r, expiring, beside)
	}, r.WarmUp(ctx, beside)
}

// expireRound measures from the moment when the tasks expire until all have ended.
func expireRound(
	ctx context.Context, r *rounds, expiring, beside *rig.TaskType,
) (all report.Figures, err error) {
	tasks := r.expiring
	submits := time.Duration(tasks) * time.Second / expireSubmits
	end := time.Now().Add(submits + r.latencyTime + expireMargin).Truncate(time.Second)
	ctx, cancel := context.WithDeadline(ctx, end.Add(rig.Patience(tasks)+2*time.Minute))
	defer cancel()
	failed, err := failedTasks(ctx, r, expiring)
	if err != nil {
		return nil, err
	}
	if err := submitExpiring(ctx, r, expiring, tasks, end); err != nil {
		return nil, err
	}
	before, err := r.Latencies(ctx, beside, r.latencyTime)
	if err != nil {
		return nil, err
	}
	if !time.Now().Before(end) {
		return nil, fmt.Errorf("the tasks have expired already: their submit took too long")
	}
	if err := rig.Sleep(ctx, time.Until(end.Add(-time.Second))); err != nil {
		return nil, err
	}
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	took, during, err := watchExpiry(ctx, r, expiring, beside, end)
	if err != nil {
		return nil, err
	}
	cost, err := meter.Stop(ctx)
	if err != nil {
		return nil, err
	}
	after, err := failedTasks(ctx, r, expiring)
	if n := after - failed; err == nil && n != tasks {
		err = fmt.Errorf("%d of %d tasks have failed", n, tasks)
	}
	p99 := report.Percentile(during, 99)
	all.Add("rate", "Ended", "tasks/s", float64(tasks)/took.Seconds())
	all.Add("ended", "Until all had ended", "s", took.Seconds())
	all.Add("before_p99", "Another type before, submit to arrival, p99", "ms",
		report.Percentile(before, 99))
	all.Add("beside_p99", "Another type beside, submit to arrival, p99", "ms", p99)
	all.Add("over_before", "p99 beside ÷ before", "×", p99/report.Percentile(before, 99))
	return append(all, cost.Figures(tasks)...), err
}

// submitExpiring submits tasks that expire at a time, by several submitters at once.
func submitExpiring(
	ctx context.Context, r *rounds, t *rig.TaskType, tasks int, end time.Time,
) error {
	fmt.Fprintf(os.Stderr, "bench: submitting %s tasks that expire at %s\n",
		report.Number(float64(tasks)), end.UTC().Format(time.TimeOnly))
	more := fmt.Sprintf(`"end_by":%q,`, end.UTC().Format(time.RFC3339))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(rig.Submitters)
	for range tasks / rig.BatchSize {
		first := r.Take(t, rig.BatchSize)
		g.Go(func() error { return r.API.SubmitBatch(ctx, t.Name, first, more) })
	}
	return g.Wait()
}

// watchExpiry returns how long after their end the last of the tasks had ended, and how long tasks
// of the other type took meanwhile, in ms.
func watchExpiry(
	ctx context.Context, r *rounds, expiring, beside *rig.TaskType, end time.Time,
) (took time.Duration, latencies []float64, err error) {
	over := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(over)
		if err := rig.Sleep(ctx, time.Until(end)); err != nil {
			return err
		}
		err := rig.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
			live, err := r.DB.Live(ctx, expiring.Name)
			return !live, err
		})
		took = time.Since(end)
		return err
	})
	for running := true; running; {
		some, err := r.Latencies(ctx, beside, 2*time.Second)
		if err != nil {
			return 0, nil, err
		}
		latencies = append(latencies, some...)
		select {
		case <-over:
			running = false
		default:
		}
	}
	return took, latencies, g.Wait()
}

// failedTasks returns how many tasks of a type have failed, by its stats.
func failedTasks(ctx context.Context, r *rounds, t *rig.TaskType) (int, error) {
	answer, err := r.API.Call(ctx, "GET", "/v1/stats?type="+t.Name, nil)
	if err != nil {
		return 0, err
	}
	var stats struct {
		Data []struct {
			Failed int `json:"failed"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &stats); err != nil {
		return 0, err
	}
	return stats.Data[0].Failed, nil
}
