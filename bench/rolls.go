package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

// rollRows is how many tasks a roll has here; in use they are millions.
const rollRows = 2000

// rollsConfig says how much is measured.
type rollsConfig struct {
	options
	rounds  int
	lasting time.Duration // of each type's turn in a round
}

func parseRolls(args []string) (rollsConfig, error) {
	var cfg rollsConfig
	err := cfg.parse(args, "one round of a few seconds, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 5, "how often both are measured")
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Second, "for how long, each time")
	})
	if cfg.short {
		cfg.rounds, cfg.lasting = 1, 8*time.Second
	}
	if err == nil && (cfg.rounds < 1 || cfg.lasting < time.Second) {
		err = fmt.Errorf("--rounds must be at least 1 and --lasting at least 1s")
	}
	return cfg, err
}

// runRolls measures what submits take at full speed, by turns of a type whose tables
// roll again and again and of one whose don't.
func runRolls(ctx context.Context, args []string) error {
	cfg, err := parseRolls(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options, "--job", "roll=@every 1s")
	if err != nil {
		return err
	}
	defer b.stop()
	g := grid{Machine: describeMachine(), By: "Submits of " + fmt.Sprint(batchSize)}
	if g.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	var turns []*submits
	for _, of := range []struct{ name, more string }{{"still", ""}, {"rolling", fmt.Sprintf(`"roll_rows":%d,`, rollRows)}} {
		p, err := b.register(ctx, of.name, of.more)
		if err != nil {
			return err
		}
		if err := b.warmUp(ctx, p); err != nil {
			return err
		}
		turns = append(turns, &submits{pipe: p})
		g.Columns = append(g.Columns, of.name)
	}
	for n := range cfg.rounds {
		for turn := range turns {
			s := turns[(n+turn)%len(turns)]
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, s.name)
			if err := b.submitRound(ctx, s, cfg.lasting); err != nil {
				return fmt.Errorf("round %d of %s: %w", n+1, s.name, err)
			}
		}
	}
	for _, s := range turns {
		g.add(s.medians())
	}
	g.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, g)
}

// submits are the rounds of one type.
type submits struct {
	*pipe
	rounds report
	rolls  int // that there were
}

func (b *bench) submitRound(ctx context.Context, s *submits, lasting time.Duration) error {
	if err := b.db.checkpoint(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	var took []float64 // ms
	start, before := time.Now(), s.submitted
	err := b.feed(ctx, s.pipe, start.Add(lasting), func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(d)/1e6)
	})
	if err != nil {
		return err
	}
	if err := b.finish(ctx, s.pipe); err != nil {
		return err
	}
	s.rounds.add(figures{
		{"rate", "End to end", "tasks/s", float64(s.submitted-before) / time.Since(start).Seconds()},
		{"p50", "Submit, p50", "ms", percentile(took, 50)},
		{"p99", "Submit, p99", "ms", percentile(took, 99)},
		{"max", "Submit, at most", "ms", percentile(took, 100)},
	})
	s.rolls, err = b.db.rolls(ctx, s.name)
	return err
}

func (s *submits) medians() figures {
	var all figures
	for _, f := range s.rounds.Figures {
		all = append(all, figure{f.Key, f.Name, f.Unit, f.Median})
	}
	return append(all, figure{"rolls", "Rolls", "", float64(s.rolls)})
}

// rolls returns how many rolls a type has had.
func (d *database) rolls(ctx context.Context, taskType string) (n int, err error) {
	err = d.conn.QueryRow(ctx, `SELECT end_pos FROM `+schema+`.task_types WHERE name = $1`, taskType).Scan(&n)
	return n, err
}
