package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// historyConfig says how long the histories are and how much is measured on each.
type historyConfig struct {
	options
	sizes  sizes // finished tasks of each type
	rounds int
	tasks  int // of a round
	reads  int // requests of each kind
}

// sizes are numbers of finished tasks.
type sizes []int

func (s *sizes) String() string { return fmt.Sprint([]int(*s)) }

// Set reads numbers with commas in between.
func (s *sizes) Set(text string) error {
	*s = nil
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a number of tasks", field)
		}
		*s = append(*s, n)
	}
	return nil
}

func parseHistory(args []string) (historyConfig, error) {
	cfg := historyConfig{sizes: sizes{0, 200_000}}
	err := cfg.parse(args, "a few small rounds, to see that nothing is broken", func(f *flag.FlagSet) {
		f.Var(&cfg.sizes, "sizes", "finished tasks of each type, such as 0,1000000,10000000")
		f.IntVar(&cfg.rounds, "rounds", 6, "how often the rate is measured for each type")
		f.IntVar(&cfg.tasks, "tasks", 30000, "tasks of a round")
		f.IntVar(&cfg.reads, "reads", 500, "how often each kind of request is sent")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks, cfg.reads = 2, 5000, 20
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < batchSize || cfg.reads < 1) {
		err = fmt.Errorf("--rounds and --reads must be at least 1 and --tasks at least %d", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	return cfg, err
}

// runHistory measures whether a long history slows work: for each size there is a
// task type with so many finished tasks.
func runHistory(ctx context.Context, args []string) error {
	cfg, err := parseHistory(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	g := grid{Machine: describeMachine(), By: "Finished tasks of the type"}
	if g.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	var pipes []*pipe
	for _, size := range cfg.sizes {
		p, err := b.pipeWithHistory(ctx, size)
		if err != nil {
			return fmt.Errorf("a history of %d: %w", size, err)
		}
		pipes = append(pipes, p)
		g.Columns = append(g.Columns, number(float64(size)))
	}
	if err := b.historyRates(ctx, cfg, pipes, &g); err != nil {
		return err
	}
	for i, p := range pipes {
		fmt.Fprintf(os.Stderr, "bench: reads with a history of %s\n", g.Columns[i])
		figures, err := b.reads(ctx, p, cfg.reads)
		if err != nil {
			return fmt.Errorf("reads of %s: %w", p.name, err)
		}
		g.add(figures)
	}
	g.writeMarkdown(os.Stdout)
	err = g.plot(cfg.plots,
		chart{file: "history-rate", title: "New tasks, by the length of the history", y: "tasks/s", keys: []string{"end_to_end"}},
		chart{file: "history-reads", title: "Reads, by the length of the history", y: "ms, median",
			keys: []string{"get_old_p50", "get_new_p50", "list_all_p50", "list_pending_p50", "list_failed_p50", "list_error_p50"}})
	if err != nil {
		return err
	}
	return writeJSON(cfg.json, g)
}

func (b *bench) pipeWithHistory(ctx context.Context, size int) (*pipe, error) {
	p, err := b.register(ctx, "history"+strconv.Itoa(size), "")
	if err != nil {
		return nil, err
	}
	if size > 0 {
		fmt.Fprintf(os.Stderr, "bench: writing a history of %s\n", number(float64(size)))
		if p.history, err = b.db.fillHistory(ctx, p.name, size); err != nil {
			return nil, err
		}
	}
	return p, b.warmUp(ctx, p)
}

// historyRates measures how fast new tasks are done. The types take turns, each round
// another one first, so that what else the machine does hits all alike.
func (b *bench) historyRates(ctx context.Context, cfg historyConfig, pipes []*pipe, g *grid) error {
	all := make([]report, len(pipes))
	for n := range cfg.rounds {
		for turn := range pipes {
			i := (n + turn) % len(pipes)
			p := pipes[i]
			fmt.Fprintf(os.Stderr, "bench: round %d of %d with a history of %s\n", n+1, cfg.rounds, g.Columns[i])
			f, err := b.endToEnd(ctx, p, cfg.tasks)
			if err == nil {
				err = f.check()
			}
			if err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, p.name, err)
			}
			all[i].add(f)
		}
	}
	for i := range all {
		medians := figures{}
		for _, s := range all[i].Figures {
			medians = append(medians, figure{s.Key, s.Name, s.Unit, s.Median})
			if s.Key == "end_to_end" {
				change := 100 * (s.Median/all[0].Figures[0].Median - 1)
				medians = append(medians, figure{"change", "End to end, against " + g.Columns[0], "%", change})
			}
		}
		g.add(medians)
	}
	return nil
}
