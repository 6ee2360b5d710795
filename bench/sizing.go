package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// sizingConfig says how much is measured.
type sizingConfig struct {
	options
	tasks int
	only  string
}

func parseSizing(args []string) (sizingConfig, error) {
	cfg := sizingConfig{}
	err := cfg.parse(args, "2,000 tasks of each kind, to see that nothing is broken",
		func(f *flag.FlagSet) {
			f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of each kind; of long contexts a tenth")
			f.StringVar(&cfg.only, "only", "", "the names of some kinds, with commas; default: all")
		})
	if cfg.short {
		cfg.tasks = 2000
	}
	if err == nil && cfg.tasks < 1000 {
		err = errors.New("--tasks must be at least 1000")
	}
	return cfg, err
}

// sized is a kind of task that is measured.
type sized struct {
	name  string
	title string
	shape rig.Shape
	more  func(n int) string // further members of a task
	part  int                // divides the number of tasks; 0: 1
	// pass lets that many tasks pass; nil: they are submitted by batch calls.
	pass func(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error
}

// sizedKinds returns the kinds of tasks. In all but the first there is one thing more.
func sizedKinds(r *rig.Rig) []sized {
	children := func(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
		_, err := r.PassTree(ctx, t, tasks)
		return err
	}
	claims := func(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
		_, err := r.PassClaims(ctx, t, tasks, 4, 50)
		return err
	}
	slowly := func(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
		_, err := r.PassBy(ctx, t, tasks, func(ctx context.Context) error {
			first := r.Take(t, tasks)
			_, err := rig.Trickle(ctx, tasks, 100, func(ctx context.Context, i int) error {
				return r.API.Submit(ctx, t.Name, first+i)
			})
			return err
		})
		return err
	}
	numbered := func(format string) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, n) }
	}
	labels := func(n int) string {
		return fmt.Sprintf(`"user":"customer-%d","metadata":{"order":"%d"},`, n%1000, n)
	}
	return []sized{
		{name: "plain", title: "One stage, context of 200 bytes, submits of 100"},
		{name: "single", title: "submits of one", part: 5, shape: rig.Shape{Batch: 1}},
		{name: "slow", title: "submits of one, 100 a second", part: 10, pass: slowly},
		{name: "stages", title: "three stages", shape: rig.Shape{Stages: 3}},
		{name: "accepted", title: "the worker answers 202, and completes",
			shape: rig.Shape{Path: worker.AcceptPath}},
		{name: "output", title: "an output of 10 bytes", shape: rig.Shape{Path: worker.ChildPath}},
		{name: "keys", title: "an idempotency key of 16 bytes",
			more: numbered(`"key":"order-%010d",`)},
		{name: "searchable", title: "two searchable fields",
			shape: rig.Shape{More: `"searchable":["user","metadata.order"],`}, more: labels},
		{name: "labels", title: "a user and an entry of metadata", more: labels},
		{name: "delay", title: "a delay of 1 s",
			more: func(int) string { return `"delay":"1s",` }},
		{name: "ordered", title: "ordered flow keys, four tasks a key",
			shape: rig.Shape{More: `"flow":{"ordered":true},`},
			more:  func(n int) string { return fmt.Sprintf(`"flow_key":"k-%d",`, n/4) }},
		{name: "lifetime", title: "a lifetime",
			more: func(int) string { return `"end_by":"1h",` }},
		{name: "told", title: "on_final", shape: rig.Shape{More: r.OnFinal()}},
		{name: "claims", title: "claimed 50 a call, completed one by one",
			shape: rig.Shape{Claim: true}, pass: claims},
		{name: "children", title: "a child of one parent",
			shape: rig.Shape{FanOut: `{"shards":%d}`}, pass: children},
		{name: "context1k", title: "context of 1 kB", shape: rig.Shape{Size: 1000}},
		{name: "context10k", title: "context of 10 kB", part: 4,
			shape: rig.Shape{Size: 10_000, Batch: 50}},
		{name: "context100k", title: "context of 100 kB", part: 20,
			shape: rig.Shape{Size: 100_000, Batch: 10}},
	}
}

// runSizing asks: what does a task cost in CPU, WAL and disk, by the features that it uses? Each
// kind is a type of its own, and passes once before it is measured.
func runSizing(ctx context.Context, r *rig.Rig, cfg sizingConfig) error {
	g := report.Grid{Machine: describe(r), By: "For each task"}
	only := strings.Split(cfg.only, ",")
	for _, kind := range sizedKinds(r) {
		if cfg.only != "" && !slices.Contains(only, kind.name) {
			continue
		}
		figures, err := kind.measure(ctx, r, cfg.tasks/max(kind.part, 1))
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		g.Columns = append(g.Columns, kind.title)
		g.Add(figures)
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// measure measures a kind of task.
func (k sized) measure(ctx context.Context, r *rig.Rig, tasks int) (all report.Figures, err error) {
	if k.shape.FanOut != "" {
		k.shape.FanOut = fmt.Sprintf(k.shape.FanOut, tasks)
	}
	t, err := r.Register(ctx, "sized_"+k.name, k.shape)
	if err != nil {
		return nil, err
	}
	if err := k.passAll(ctx, r, t, tasks); err != nil { // a warm-up
		return nil, err
	}
	before, err := r.DB.Kept(ctx)
	if err != nil {
		return nil, err
	}
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	if err := k.passAll(ctx, r, t, tasks); err != nil {
		return nil, err
	}
	cost, err := meter.Stop(ctx)
	if err != nil {
		return nil, err
	}
	after, err := r.DB.Kept(ctx)
	all.Add("rate", "Rate", "tasks/s", cost.Rate(tasks))
	all.Add("disk", "Disk", "bytes/task", float64(after-before)/float64(tasks))
	return append(all, cost.Figures(tasks)...), err
}

// passAll lets tasks pass, with the follow-ups of their ends.
func (k sized) passAll(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
	pass := k.pass
	if pass == nil {
		pass = func(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
			_, err := r.PassBy(ctx, t, tasks, func(ctx context.Context) error {
				if k.more == nil {
					return r.SubmitAll(ctx, t, tasks)
				}
				return r.SubmitAllWith(ctx, t, tasks, k.more)
			})
			return err
		}
	}
	if err := pass(ctx, r, t, tasks); err != nil {
		return err
	}
	return rig.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		n, err := r.DB.Undone(ctx)
		return n == 0, err
	})
}
