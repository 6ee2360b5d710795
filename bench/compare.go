package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// slowestRatio is the median rate, against the base's, below which the comparison fails.
const slowestRatio = 0.75

// compareConfig says what is compared with what.
type compareConfig struct {
	config
	base string // a revision
}

func parseCompare(args []string) (compareConfig, error) {
	cfg := compareConfig{config: config{only: names{"post", "single"}}}
	err := cfg.parse(args, "four pairs of 5,000 tasks", func(f *flag.FlagSet) {
		f.StringVar(&cfg.base, "base", "HEAD", "the revision that this tree is compared with")
		f.Var(&cfg.only, "only", "scenarios with a rate, such as post,single")
		f.IntVar(&cfg.rounds, "rounds", 6, "pairs of each")
		f.IntVar(&cfg.tasks, "tasks", 30000, "tasks of a measurement")
	})
	if cfg.short {
		cfg.rounds, cfg.tasks = 4, 5000
	}
	if err == nil && (cfg.rounds < 1 || cfg.tasks < batchSize) {
		err = fmt.Errorf("--rounds must be at least 1 and --tasks at least %d", batchSize)
	}
	cfg.tasks -= cfg.tasks % batchSize
	if err == nil {
		_, err = chosen(cfg.only)
	}
	return cfg, err
}

// runCompare measures another revision and this tree by turns: A B, B A, and so on. Both
// have a node, a worker and a database of their own in the same Postgres; the one whose
// turn it isn't has nothing to do. What is looked at from the side fits both.
func runCompare(ctx context.Context, args []string) error {
	cfg, err := parseCompare(args)
	if err != nil {
		return err
	}
	b := &bench{options: cfg.options}
	if err := b.begin(ctx, b.startPostgres, b.build); err != nil {
		return err
	}
	defer b.stop()
	base, err := b.buildRevision(ctx, cfg.base)
	if err != nil {
		return err
	}
	c := comparison{Machine: describeMachine(), Base: cfg.base, Tasks: cfg.tasks}
	if c.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	var turns [2]turn
	for i, binary := range []string{base, b.binary} {
		if turns[i], err = b.turn(ctx, []string{"base", "head"}[i], binary, cfg.config); err != nil {
			return err
		}
	}
	if err := c.measure(ctx, turns, cfg.config.rounds); err != nil {
		return err
	}
	c.writeMarkdown(os.Stdout)
	return errors.Join(writeJSON(cfg.json, c), c.verdict())
}

// buildRevision builds the program of a revision from a copy of its files, and returns its
// path.
func (b *bench) buildRevision(ctx context.Context, revision string) (string, error) {
	tree, program := b.dir.join("tree"), b.dir.join("asyncflow-base")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return "", err
	}
	script := `cd "$(git rev-parse --show-toplevel)" && git archive --format=tar "$1^{commit}" | tar -x -C "$2" && cd "$2" && exec go build -o "$3" ./cmd/asyncflow`
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, "bash", revision, tree, program)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", revision, err, strings.TrimSpace(string(said)))
	}
	return program, nil
}

// turn is one of the two that are compared.
type turn struct {
	*rounds
	begun []started
}

func (b *bench) turn(ctx context.Context, database, binary string, cfg config) (t turn, err error) {
	side, err := b.side(ctx, database, binary)
	if err != nil {
		return t, err
	}
	if err := side.begin(ctx, side.startNode, side.makeTenant); err != nil {
		return t, fmt.Errorf("%s: %w", database, err)
	}
	t.rounds = &rounds{bench: side, config: cfg}
	var missing map[string]string
	t.begun, missing, err = t.beginAll(ctx)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s lacks what is to be compared: %v", database, missing)
	}
	return t, err
}

// comparison is the result.
type comparison struct {
	Machine machine    `json:"machine"`
	Base    string     `json:"base"`
	Tasks   int        `json:"tasks"`
	Figures []compared `json:"figures"`
}

// compared is a figure of both, pair by pair.
type compared struct {
	Scenario string    `json:"scenario"`
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Base     []float64 `json:"base"`
	Head     []float64 `json:"head"`
	Ratios   []float64 `json:"ratios"` // head ÷ base
}

// comparedKeys are the figures that are compared.
var comparedKeys = []string{"rate", "cpu_all", "cpu_node", "cpu_postgres"}

func (c *comparison) measure(ctx context.Context, turns [2]turn, pairs int) error {
	for n := range pairs {
		for i := range turns[0].begun {
			var pair [2]figures
			for turn := range turns {
				side := (turn + n) % 2
				f, err := turns[side].begun[i].measure(ctx)
				if err == nil {
					err = f.check()
				}
				if err != nil {
					return fmt.Errorf("pair %d of %s: %w", n+1, turns[side].begun[i].name, err)
				}
				pair[side] = f
			}
			fmt.Fprintf(os.Stderr, "bench: pair %d of %d, %s: %s and %s %s\n", n+1, pairs, turns[0].begun[i].name,
				number(pair[0][0].value), number(pair[1][0].value), pair[0][0].unit)
			c.add(turns[0].begun[i].name, pair)
		}
	}
	return nil
}

func (c *comparison) add(scenario string, pair [2]figures) {
	for _, key := range comparedKeys {
		base, ok1 := pair[0].find(key)
		head, ok2 := pair[1].find(key)
		if !ok1 || !ok2 || base == 0 {
			continue
		}
		of := slices.IndexFunc(pair[0], func(f figure) bool { return f.key == key })
		i := slices.IndexFunc(c.Figures, func(f compared) bool { return f.Scenario == scenario && f.Name == pair[0][of].name })
		if i < 0 {
			i = len(c.Figures)
			c.Figures = append(c.Figures, compared{Scenario: scenario, Name: pair[0][of].name, Unit: pair[0][of].unit})
		}
		f := &c.Figures[i]
		f.Base, f.Head, f.Ratios = append(f.Base, base), append(f.Head, head), append(f.Ratios, head/base)
	}
}

func (c *comparison) writeMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s. This tree against %s: medians of %d pairs of %d tasks.\n\n", c.Machine, c.Base, len(c.Figures[0].Ratios), c.Tasks)
	fmt.Fprint(w, "| | Unit | Base | This tree | Ratio | Min–max |\n|---|---|---:|---:|---:|---:|\n")
	for _, f := range c.Figures {
		fmt.Fprintf(w, "| %s: %s | %s | %s | %s | **%.2f** | %.2f–%.2f |\n", f.Scenario, f.Name, f.Unit, number(median(f.Base)), number(median(f.Head)),
			median(f.Ratios), slices.Min(f.Ratios), slices.Max(f.Ratios))
	}
}

// verdict is an error when a rate is far below the base's, and in no pair as high: one that
// swings so much tells of other work on the machine.
func (c *comparison) verdict() (err error) {
	for _, f := range c.Figures {
		if ratio := median(f.Ratios); strings.HasSuffix(f.Unit, "/s") && ratio < slowestRatio && slices.Max(f.Ratios) < 1 {
			err = errors.Join(err, fmt.Errorf("%s: %.2f of the rate of %s, less than %.2f", f.Scenario, ratio, c.Base, slowestRatio))
		}
	}
	return err
}
