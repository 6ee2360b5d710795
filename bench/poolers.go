package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// poolersConfig says which PgBouncer is measured, and how much.
type poolersConfig struct {
	config
	program  string
	prepared int
}

func parsePoolers(args []string) (poolersConfig, error) {
	var cfg poolersConfig
	const short = "one small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.StringVar(&cfg.program, "pgbouncer", "pgbouncer", "the PgBouncer to measure")
		f.IntVar(&cfg.prepared, "prepared", 0,
			"its max_prepared_statements, from version 1.21 on; 0: it is older")
		f.IntVar(&cfg.rounds, "rounds", 3, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 60_000, "tasks of a round")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks = 1, 3000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < singlePart*rig.BatchSize) {
		err = errors.New("--rounds must be at least 1, --tasks at least 300")
	}
	return cfg, err
}

// poolerWay is a way from the node to the server.
type poolerWay struct {
	name, mode, flag string
	prepared         int
}

func (cfg poolersConfig) ways() []poolerWay {
	none := 0
	if cfg.prepared == 0 {
		none = -1
	}
	ways := []poolerWay{
		{name: "direct"},
		{"session mode", "session", "--database-url", none},
		{"transaction mode, unprepared", "transaction", "--pooled-url", none},
	}
	if cfg.prepared > 0 {
		ways = append(ways, poolerWay{"transaction mode, prepared", "transaction", "--pooled-url",
			cfg.prepared})
	}
	return ways
}

// runPoolers asks: what does a pooler cost each task? It measures a node that is connected
// directly, and one behind each kind of pooler, by turns.
func runPoolers(ctx context.Context, args []string) error {
	cfg, err := parsePoolers(args)
	if err != nil {
		return err
	}
	r := rig.New(cfg.options.rig())
	if err := r.Begin(ctx, r.StartPostgres, r.Build, r.StartWorker); err != nil {
		return err
	}
	defer r.Stop()
	poolers := cfg.ways()
	w := ways{by: "Connections", against: -1,
		measure: func(ctx context.Context, t *rig.TaskType, i int) (report.Figures, error) {
			return cfg.measure(ctx, r, t, poolers[i])
		}}
	for _, one := range poolers {
		w.names = append(w.names, one.name)
	}
	return w.compare(ctx, r, cfg.config)
}

// measure measures a new node that is connected in a way.
func (cfg poolersConfig) measure(
	ctx context.Context, r *rig.Rig, taskType *rig.TaskType, way poolerWay,
) (all report.Figures, err error) {
	used := func() (time.Duration, error) { return 0, nil }
	r.NodeArgs = nil
	if way.mode != "" {
		b, err := r.StartPgBouncer(ctx, cfg.program, way.mode, way.prepared)
		if err != nil {
			return nil, err
		}
		used = b.CPU
		r.NodeArgs = []string{way.flag, b.URL}
	}
	measured := func(key, name string, tasks int,
		measure func() (report.Figures, error),
	) error {
		before, err := used()
		if err != nil {
			return err
		}
		figures, err := measure()
		if err != nil {
			return err
		}
		after, err := used()
		own := rig.Micros(after-before, tasks)
		for _, f := range figures {
			switch f.Key {
			case "cpu_all":
				all.Add(key+"_cpu_pooler", name+": CPU of the pooler", f.Unit, own)
				all.Add(key+"_cpu_all", name+": CPU of all five", f.Unit, f.Value+own)
			case "rate", "cpu_node", "cpu_postgres":
				all.Add(key+"_"+f.Key, name+": "+f.Name, f.Unit, f.Value)
			}
		}
		return err
	}
	err = r.WithNode(ctx, func(ctx context.Context) error {
		if err := r.WarmUp(ctx, taskType); err != nil {
			return err
		}
		err := measured("batches", "Submits of 100", cfg.tasks, func() (report.Figures, error) {
			return r.Measure(ctx, taskType, cfg.tasks)
		})
		if err != nil {
			return err
		}
		singles := cfg.tasks / singlePart
		return measured("one", "Single submits", singles, func() (report.Figures, error) {
			return measureSingly(ctx, r, taskType, singles)
		})
	})
	return all, err
}
