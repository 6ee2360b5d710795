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
)

// profiled is added to the program that is profiled.
//
//go:embed testdata/profiled.go.txt
var profiled []byte

// profileConfig says how much is profiled.
type profileConfig struct {
	options
	tasks int
}

func parseProfile(args []string) (profileConfig, error) {
	var cfg profileConfig
	err := cfg.parse(args, "5,000 tasks, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.tasks, "tasks", 60_000, "tasks")
	})
	if cfg.short {
		cfg.tasks = 5000
	}
	if err == nil && (cfg.given || cfg.tasks < batchSize) {
		err = fmt.Errorf("--tasks must be at least %d, and --binary empty: the program is built for it", batchSize)
	}
	return cfg, err
}

// runProfile tells where the time of the scenario post goes: in the node by its profiles,
// in Postgres by statement.
func runProfile(ctx context.Context, args []string) error {
	cfg, err := parseProfile(args)
	if err != nil {
		return err
	}
	b := &bench{options: cfg.options, settings: map[string]string{"shared_preload_libraries": "pg_stat_statements"}}
	if err := b.begin(ctx, b.startPostgres, b.startWorker, b.buildProfiled, b.startNode, b.makeTenant); err != nil {
		return err
	}
	defer b.stop()
	m := describeMachine()
	if m.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	p, err := b.register(ctx, "bench", "")
	if err == nil {
		err = b.warmUp(ctx, p)
	}
	if err != nil {
		return err
	}
	var w passage
	err = b.profiling(ctx, func() (err error) {
		w, err = b.pass(ctx, p, cfg.tasks)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s. %d tasks.\n\n", m, cfg.tasks)
	for _, f := range w.figures() {
		fmt.Printf("%s: %s %s\n", f.name, number(f.value), f.unit)
	}
	if err := b.db.writeStatements(ctx, os.Stdout, cfg.tasks); err != nil {
		return err
	}
	return b.writeProfiles(ctx, os.Stdout)
}

// buildProfiled builds the program with the profiler in it.
func (b *bench) buildProfiled(ctx context.Context) error {
	const program = "github.com/asyncflow/asyncflow/cmd/asyncflow"
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", program).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w", program, err)
	}
	added := filepath.Join(strings.TrimSpace(string(dir)), "bench_profile.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{added: b.dir.join("profile.go")}})
	err = errors.Join(err, os.WriteFile(b.dir.join("profile.go"), profiled, 0o600), os.WriteFile(b.dir.join("overlay.json"), overlay, 0o600))
	if err != nil {
		return err
	}
	b.binary = b.dir.join("asyncflow")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", b.dir.join("overlay.json"), "-o", b.binary, program)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return os.Setenv("BENCH_PROFILES", b.dir.path) // which the node gets too
}

// profiling profiles the node and counts statements while something is done.
func (b *bench) profiling(ctx context.Context, do func() error) error {
	if _, err := b.db.conn.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()`); err != nil {
		return err
	}
	node := b.nodes[0].cmd.Process
	if err := node.Signal(syscall.SIGUSR1); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := node.Signal(syscall.SIGUSR2); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(b.dir.join("done"))
		return err == nil, nil
	})
}

// writeStatements writes what statements cost the server.
func (d *database) writeStatements(ctx context.Context, w io.Writer, tasks int) error {
	rows, err := d.conn.Query(ctx, `
		SELECT regexp_replace(regexp_replace(query, '--[^\n]*', '', 'g'), '\s+', ' ', 'g'), calls, total_exec_time * 1000, wal_bytes::float8
		FROM pg_stat_statements WHERE toplevel AND query <> 'CHECKPOINT' ORDER BY total_exec_time DESC LIMIT 16`)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n| Statement | Calls per 1,000 tasks | µs/task | WAL, bytes/task |\n|---|---:|---:|---:|\n")
	var text string
	var calls int64
	var time, wal float64
	n := float64(tasks)
	_, err = pgx.ForEachRow(rows, []any{&text, &calls, &time, &wal}, func() error {
		text = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), schema+".", ""), "|", `\|`)
		_, err := fmt.Fprintf(w, "| `%.90s` | %s | %s | %s |\n", text, number(1000*float64(calls)/n), number(time/n), number(wal/n))
		return err
	})
	return err
}

// writeProfiles writes what takes the node's time and memory, by function.
func (b *bench) writeProfiles(ctx context.Context, w io.Writer) error {
	for _, of := range []struct{ title, profile, index, sort string }{
		{"CPU by function and what it calls", "cpu", "cpu", "-cum"},
		{"CPU by function", "cpu", "cpu", "-flat"},
		{"Bytes allocated, since the node began", "allocs", "alloc_space", "-flat"},
	} {
		fmt.Fprintf(w, "\n%s:\n\n", of.title)
		cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", of.sort, "-nodecount=50", "-sample_index="+of.index, b.binary, b.dir.join(of.profile))
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go tool pprof: %w", err)
		}
	}
	return nil
}
