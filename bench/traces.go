package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// tracesConfig says with which revision traces are compared, and how much is measured.
type tracesConfig struct {
	config
	base string
}

func parseTraces(args []string) (tracesConfig, error) {
	var cfg tracesConfig
	const short = "one small round, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.StringVar(&cfg.base, "base", "", "a revision to compare with; default: none")
		f.IntVar(&cfg.rounds, "rounds", 5, "how often each is measured")
		f.IntVar(&cfg.tasks, "tasks", 20_000, "tasks of a round, submitted one by one")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks = 1, 3000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < 1000) {
		err = errors.New("--rounds must be at least 1, --tasks at least 1000")
	}
	return cfg, err
}

// tracedNode is a node that records some share of its spans, or none.
type tracedNode struct {
	name, binary string
	env          []string
}

// runTraces asks: what do traces cost each task? It measures nodes that record none, and shares of
// their spans, by turns. The receiver is in this process and only counts the bytes that it gets.
func runTraces(ctx context.Context, args []string) error {
	cfg, err := parseTraces(args)
	if err != nil {
		return err
	}
	var received atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer receiver.Close()
	r := rig.New(cfg.options.rig())
	if err := r.Begin(ctx, r.StartPostgres, r.Build, r.StartWorker); err != nil {
		return err
	}
	defer r.Stop()
	nodes, err := cfg.nodes(ctx, r, receiver.URL)
	if err != nil {
		return err
	}
	w := ways{by: "Traces", against: len(nodes) - tracedNodes,
		measure: func(ctx context.Context, t *rig.TaskType, i int) (report.Figures, error) {
			before := received.Load()
			f, err := cfg.measure(ctx, r, t, nodes[i])
			f.Add("bytes", "Exported", "bytes/task",
				float64(received.Load()-before)/float64(cfg.tasks))
			return f, err
		}}
	for _, one := range nodes {
		w.names = append(w.names, one.name)
	}
	return w.compare(ctx, r, cfg.config)
}

// tracedNodes is how many nodes of this revision are measured, the first one without traces.
const tracedNodes = 3

// nodes returns the nodes to measure, the base first, if there is one.
func (cfg tracesConfig) nodes(
	ctx context.Context, r *rig.Rig, receiver string,
) ([]tracedNode, error) {
	share := func(ratio string) []string {
		return []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver,
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + ratio,
			"OTEL_BSP_MAX_QUEUE_SIZE=16384", "ASYNCFLOW_TRACE_LIMIT=100000"}
	}
	all := []tracedNode{
		{"off", r.Binary, nil},
		{"1 %", r.Binary, share("0.01")},
		{"100 %", r.Binary, share("1")},
	}
	if cfg.base == "" {
		return all, nil
	}
	base, err := r.BuildRevision(ctx, cfg.base)
	return append([]tracedNode{{"base", base, nil}}, all...), err
}

func (cfg tracesConfig) measure(
	ctx context.Context, r *rig.Rig, taskType *rig.TaskType, node tracedNode,
) (all report.Figures, err error) {
	r.Binary = node.binary
	r.NodeEnv = node.env
	err = r.WithNode(ctx, func(ctx context.Context) error {
		if err := r.WarmUp(ctx, taskType); err != nil {
			return err
		}
		figures, err := measureSingly(ctx, r, taskType, cfg.tasks)
		for _, f := range figures {
			switch f.Key {
			case "rate", "cpu_node", "cpu_postgres", "cpu_all":
				all.Add(f.Key, f.Name, f.Unit, f.Value)
			}
		}
		return err
	})
	return all, err
}
