package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// profiled is added to the program that is profiled.
//
//go:embed testdata/profiled.go.txt
var profiled []byte

// profileConfig says how much is profiled.
type profileConfig struct {
	options
	tasks int
	many  bool    // single submits of many types, not batches of one
	rate  float64 // of many, in tasks/s; 0: as fast as possible
	tree  bool    // children of one task, not tasks that are submitted
	keys  int     // number of keys with submits that replace tasks; 0: none
}

func parseProfile(args []string) (profileConfig, error) {
	var cfg profileConfig
	const short = "5,000 tasks, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.tasks, "tasks", 60_000, "tasks")
		f.BoolVar(&cfg.many, "many", false,
			"tasks of 1,000 types in 100 tenants, submitted one by one; default: one type, 100 "+
				"at a time")
		f.Float64Var(&cfg.rate, "rate", 0,
			"with --many: tasks a second; default: as fast as possible")
		f.BoolVar(&cfg.tree, "children", false, "the children of one task")
		f.IntVar(&cfg.keys, "keys", 0,
			"1,000 submits a second that replace the tasks of this number of keys, and "+
				"others beside")
	})
	if cfg.short {
		cfg.tasks = 5000
	}
	if err == nil && (cfg.binary != "" || cfg.tasks < rig.BatchSize) {
		err = fmt.Errorf("--tasks must be at least %d, and --binary empty: the program is built "+
			"for it",
			rig.BatchSize)
	}
	if err == nil && (cfg.rate < 0 || cfg.rate > 0 && !cfg.many) {
		err = errors.New("--rate must be positive, and needs --many")
	}
	return cfg, err
}

// runProfile asks: where does the time of a task go, with one POST per task? It prints the CPU
// time of the node by function, and that of Postgres by statement.
func runProfile(ctx context.Context, args []string) error {
	cfg, err := parseProfile(args)
	if err != nil {
		return err
	}
	r := rig.New(rig.Config{Settings: map[string]string{
		"shared_preload_libraries": "pg_stat_statements",
		"pg_stat_statements.max":   "50000", // each tenant uses statements of its own
	}})
	build := func(ctx context.Context) error { return buildProfiled(ctx, r) }
	err = r.Begin(ctx, r.StartPostgres, r.StartWorker, build, r.StartNode, r.MakeTenant)
	if err != nil {
		return err
	}
	defer r.Stop()
	m := describe(r)
	pass, err := cfg.begin(ctx, r)
	if err != nil {
		return err
	}
	var all report.Figures
	err = profiling(ctx, r, func() (err error) {
		all, err = pass(ctx)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s. %d tasks.\n\n", m, cfg.tasks)
	for _, f := range all {
		fmt.Printf("%s: %s %s\n", f.Name, report.Number(f.Value), f.Unit)
	}
	if err := writeStatements(ctx, r.DB, os.Stdout, cfg.tasks); err != nil {
		return err
	}
	return writeProfiles(ctx, r, os.Stdout)
}

// begin lets tasks pass that aren't profiled, and returns what lets those pass that are.
func (cfg profileConfig) begin(
	ctx context.Context, r *rig.Rig,
) (pass func(context.Context) (report.Figures, error), err error) {
	switch {
	case cfg.keys > 0:
		return cfg.beginKeys(ctx, r)
	case cfg.many:
		return cfg.beginMany(ctx, r)
	case cfg.tree:
		return cfg.beginTree(ctx, r)
	}
	t, err := registerWarm(ctx, r, "bench", rig.Shape{})
	return func(ctx context.Context) (report.Figures, error) {
		p, err := r.Pass(ctx, t, cfg.tasks)
		return p.Figures(), err
	}, err
}

func (cfg profileConfig) beginKeys(
	ctx context.Context, r *rig.Rig,
) (pass func(context.Context) (report.Figures, error), err error) {
	seconds := time.Duration(max(1, cfg.tasks/debounceRate)) * time.Second
	return beginDebounce(ctx, &rounds{Rig: r, config: config{latencyTime: seconds}}, "debounce",
		cfg.keys)
}

func (cfg profileConfig) beginMany(
	ctx context.Context, r *rig.Rig,
) (pass func(context.Context) (report.Figures, error), err error) {
	types, tenants := config{options: cfg.options}.many()
	m := manyRig{Rig: r, count: types}
	if m.types, err = r.NewManyTypes(ctx, tenants); err != nil {
		return nil, err
	}
	if err = m.types.Add(ctx, types, true); err != nil {
		return nil, err
	}
	err = m.warmUp(ctx)
	return func(ctx context.Context) (all report.Figures, err error) {
		if cfg.rate > 0 {
			return m.measureTrickle(ctx, cfg.rate, typesWarmUp, cfg.tasks)
		}
		cost, _, err := m.pass(ctx, cfg.tasks, anyOf)
		all.Add("rate", "Rate", "tasks/s", cost.Rate(cfg.tasks))
		return append(all, cost.Figures(cfg.tasks)...), err
	}, err
}

func (cfg profileConfig) beginTree(
	ctx context.Context, r *rig.Rig,
) (pass func(context.Context) (report.Figures, error), err error) {
	n := min(cfg.tasks, treeSize)
	t, err := r.Register(ctx, "children", rig.Shape{FanOut: fmt.Sprintf(`{"shards":%d}`, n)})
	if err != nil {
		return nil, err
	}
	_, err = r.PassTree(ctx, t, n)
	return func(ctx context.Context) (report.Figures, error) {
		var sum rig.Cost
		for range cfg.tasks / n {
			cost, err := r.PassTree(ctx, t, n)
			if err != nil {
				return nil, err
			}
			sum = cost // the trees are alike
		}
		return sum.Figures(n), nil
	}, err
}

// buildProfiled builds the program with the profiler in it.
func buildProfiled(ctx context.Context, r *rig.Rig) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", rig.Program).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w", rig.Program, err)
	}
	added := filepath.Join(strings.TrimSpace(string(dir)), "bench_profile.go")
	source, overlay := r.Path("profile.go"), r.Path("overlay.json")
	document, err := json.Marshal(map[string]any{"Replace": map[string]string{added: source}})
	err = errors.Join(err,
		os.WriteFile(source, profiled, 0o600),
		os.WriteFile(overlay, document, 0o600))
	if err != nil {
		return err
	}
	if err = r.BuildWith(ctx, "-overlay", overlay); err != nil {
		return err
	}
	return os.Setenv("BENCH_PROFILES", r.Path("")) // which the node gets too
}

// profiling profiles the node, and counts statements, while do runs.
func profiling(ctx context.Context, r *rig.Rig, do func() error) error {
	_, err := r.DB.Conn.Exec(ctx, `
		CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()`)
	if err != nil {
		return err
	}
	node := r.Nodes[0]
	if err := node.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := node.Signal(syscall.SIGUSR2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rig.Slack)
	defer cancel()
	return rig.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(r.Path("done"))
		return err == nil, nil
	})
}

// writeStatements writes what statements cost the server.
func writeStatements(ctx context.Context, d *rig.Database, w io.Writer, tasks int) error {
	rows, err := d.Conn.Query(ctx, `
		SELECT regexp_replace(regexp_replace(regexp_replace(query, '--[^\n]*', '', 'g'), '\s+', ' ',
		  'g'),
		  '"?tenant_\w+"?\.', '', 'g') AS text, sum(calls), sum(total_exec_time) * 1000,
		  sum(wal_bytes)::float8
		FROM pg_stat_statements WHERE toplevel AND query <> 'CHECKPOINT'
		GROUP BY text ORDER BY 3 DESC LIMIT 16`)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n| Statement | Calls per 1,000 tasks | µs/task | WAL, bytes/task |\n"+
		"|---|---:|---:|---:|\n")
	var text string
	var calls int64
	var time, wal float64
	n := float64(tasks)
	short := strings.NewReplacer("|", `\|`)
	_, err = pgx.ForEachRow(rows, []any{&text, &calls, &time, &wal}, func() error {
		_, err := fmt.Fprintf(w, "| `%.90s` | %s | %s | %s |\n",
			short.Replace(strings.TrimSpace(text)),
			report.Number(1000*float64(calls)/n), report.Number(time/n), report.Number(wal/n))
		return err
	})
	return err
}

// writeProfiles writes what takes the node's time and memory, by function.
func writeProfiles(ctx context.Context, r *rig.Rig, w io.Writer) error {
	for _, of := range []struct{ title, profile, index, sort string }{
		{"CPU by function and what it calls", "cpu", "cpu", "-cum"},
		{"CPU by function", "cpu", "cpu", "-flat"},
		{"Bytes allocated, since the node began", "allocs", "alloc_space", "-flat"},
	} {
		fmt.Fprintf(w, "\n%s:\n\n", of.title)
		cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", of.sort, "-nodecount=50",
			"-sample_index="+of.index, r.Binary, r.Path(of.profile))
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go tool pprof: %w", err)
		}
	}
	return nil
}
