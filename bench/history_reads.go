package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

const (
	liveTasks = 200             // pending tasks, and as many waiting ones, while reads are measured
	readTime  = 5 * time.Second // after which no more requests of a kind are sent
)

// lists are the first pages that are read, by the filter.
var lists = []struct{ key, name, query string }{
	{"all", "all", ""},
	{"pending", "pending", "&status=pending"},
	{"waiting", "waiting", "&status=waiting"},
	{"succeeded", "succeeded", "&status=succeeded"},
	{"failed", "failed", "&status=failed"},
	{"cancelled", "cancelled", "&status=cancelled"},
	{"stage", "in the stage", "&stage=call"},
	{"no_stage", "in a stage without tasks", "&stage=nowhere"},
	{"error", "with a frequent error", "&error=upstream"},
	{"rare_error", "with a rare error", "&error=teapot"},
	{"no_error", "with an error that nobody had", "&error=dragons"},
	{"failed_no_error", "failed, with an error that nobody had", "&status=failed&error=dragons"},
}

// historyReads measures how long it takes to get a task and to list tasks of a type.
func historyReads(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, n int,
) (all report.Figures, err error) {
	old, fresh, err := someTasks(ctx, r.DB, t.Name)
	if err != nil {
		return nil, err
	}
	measure := func(key, name string, path func() string) {
		if err != nil {
			return
		}
		var took []float64
		if took, err = timeReads(ctx, r.API, n, path); err != nil {
			return
		}
		all.Add(key+"_p50", name+", p50", "ms", report.Percentile(took, 50))
		all.Add(key+"_p99", name+", p99", "ms", report.Percentile(took, 99))
	}
	list := func(key, name, query string) {
		path := "/v1/tasks?type=" + t.Name + query
		measure("list_"+key, "List "+name, func() string { return path })
	}
	get := func(numbers []int64) func() string {
		return func() string {
			number := numbers[rand.IntN(len(numbers))]
			return "/v1/tasks/" + asyncflow.TaskID{Type: t.Name, Number: number}.String()
		}
	}
	measure("get_old", "Get an old task", get(old))
	measure("get_new", "Get a new task", get(fresh))
	list("no_pending", "pending, there is none", "&status=pending")
	list("no_waiting", "waiting, there is none", "&status=waiting")
	list("running", "running, there is none", "&status=running")
	if err != nil {
		return nil, err
	}
	if err = leaveLive(ctx, r, t); err != nil {
		return nil, err
	}
	for _, l := range lists {
		list(l.key, l.name, l.query)
	}
	return all, err
}

// leaveLive leaves tasks of the type pending, since it is paused, and others waiting.
func leaveLive(ctx context.Context, r *rig.Rig, t *rig.TaskType) error {
	if err := r.Pause(ctx, t); err != nil {
		return err
	}
	for range liveTasks / rig.BatchSize {
		for _, more := range []string{`"delay":"1h",`, ""} {
			if err := r.API.SubmitBatch(ctx, t.Name, r.Take(t, rig.BatchSize), more); err != nil {
				return err
			}
		}
	}
	return nil
}

// timeReads sends requests one after the other and returns how many milliseconds each took.
func timeReads(
	ctx context.Context, api *rig.Client, n int, path func() string,
) (took []float64, err error) {
	end := time.Now().Add(readTime)
	for len(took) < n && (len(took) < 3 || time.Now().Before(end)) {
		start := time.Now()
		if _, err := api.Call(ctx, http.MethodGet, path(), nil); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(start))/1e6)
	}
	return took, nil
}

// someTasks returns the numbers of some tasks of a type: from all of its oldest tenth, and of its
// newest.
func someTasks(
	ctx context.Context, d *rig.Database, taskType string,
) (old, fresh []int64, err error) {
	tables, err := d.Tables(ctx, "task", taskType)
	if err != nil {
		return nil, nil, err
	}
	err = d.Conn.QueryRow(ctx, fmt.Sprintf(`
		SELECT ARRAY(SELECT t.id FROM (
		    SELECT least + ((most - least) / 10 * random())::bigint AS x
		    FROM (SELECT min(id) AS least, max(id) AS most FROM %[1]s o) t,
		      generate_series(1, 1000)) s,
		    LATERAL (SELECT id FROM %[1]s o WHERE id >= x ORDER BY id LIMIT 1) t),
		  ARRAY(SELECT id FROM %[2]s f ORDER BY id DESC LIMIT 100)`,
		tables[0].Rows(), tables[len(tables)-1].Rows())).Scan(&old, &fresh)
	return old, fresh, err
}
