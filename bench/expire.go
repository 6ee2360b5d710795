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
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// expire asks: how fast are many tasks ended with lifetimes that are over in the same moment, and
// how quickly do tasks of another type still arrive?
var expire = scenario{
	"expire", "Tasks that expire at once", 1,
	beginExpire,
}

// The tasks expire when they are submitted for sure, and what comes before was measured.
const (
	expireSubmits = 4000 // submits a second, at least
	expireMargin  = 10 * time.Second
	// expireLeast is how many tasks of the other type must be submitted meanwhile for a p99: with
	// fewer, it would be their maximum.
	expireLeast = 100
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

// expireRound measures from the moment when the tasks expire until all are over. It compares how
// long tasks of another type take then, how long they took before the others were there, and how
// long beside them.
func expireRound(
	ctx context.Context, r *rounds, expiring, beside *rig.TaskType,
) (all report.Figures, err error) {
	tasks := r.expiring
	_, before, err := r.Latencies(ctx, beside, r.latencyTime)
	if err != nil {
		return nil, err
	}
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
	_, waiting, err := r.Latencies(ctx, beside, r.latencyTime)
	if err != nil {
		return nil, err
	}
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	if !time.Now().Before(end) {
		return nil, fmt.Errorf("the tasks have expired already: their submit took too long")
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
	all.Add("rate", "Ended", "tasks/s", float64(tasks)/took.Seconds())
	all.Add("ended", "Until all had ended", "s", took.Seconds())
	p99 := func(key, when string, latencies []float64) float64 {
		v := report.Percentile(latencies, 99)
		all.Add(key, "Another type "+when+", submit to arrival, p99", "ms", v)
		return v
	}
	quiet := p99("before_p99", "before", before)
	p99("waiting_p99", "beside waiting ones", waiting)
	all.Add("beside_tasks", "Another type meanwhile", "tasks", float64(len(during)))
	if len(during) >= expireLeast {
		v := p99("beside_p99", "meanwhile", during)
		all.Add("over_before", "p99 meanwhile ÷ before", "×", v/quiet)
	}
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
// of the other type took that were submitted meanwhile, in ms.
func watchExpiry(
	ctx context.Context, r *rounds, expiring, beside *rig.TaskType, end time.Time,
) (took time.Duration, during []float64, err error) {
	if !sleep.For(ctx, time.Until(end)) {
		return 0, nil, ctx.Err()
	}
	over := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(over)
		err := rig.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
			live, err := r.DB.Live(ctx, expiring.Name)
			return !live, err
		})
		took = time.Since(end)
		return err
	})
	var sent []int64
	var latencies []float64
	for running := true; running; {
		at, some, err := r.Latencies(ctx, beside, time.Second)
		if err != nil {
			return 0, nil, err
		}
		sent = append(sent, at...)
		latencies = append(latencies, some...)
		select {
		case <-over:
			running = false
		default:
		}
	}
	if err := g.Wait(); err != nil {
		return 0, nil, err
	}
	for i, at := range sent {
		if at <= end.Add(took).UnixNano() {
			during = append(during, latencies[i])
		}
	}
	return took, during, nil
}

// failedTasks returns how many tasks of a type failed, by its stats.
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
