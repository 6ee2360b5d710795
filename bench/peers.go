package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// peer is a program that does the same work in another way, in a database of its own. It is
// told the database, the number of jobs, and where to POST each, if it shall. It prints
// "ready", begins at a line of its input, prints a peerResult, and ends with its input.
type peer struct {
	name    string // of its scenario
	post    bool   // one POST per job
	needs   string // file that must be there
	command func() ([]string, error)
}

const (
	riverProgram   = "bin/peers/river"
	graphileScript = "bench/peers/graphile.mjs"
	graphileModule = "bench/peers/node_modules/graphile-worker/package.json"
)

var (
	peerRiver        = peer{"river", false, riverProgram, func() ([]string, error) { return []string{riverProgram}, nil }}
	peerRiverPost    = peer{"river-post", true, riverProgram, peerRiver.command}
	peerGraphile     = peer{"graphile", false, graphileModule, func() ([]string, error) { return []string{"node", graphileScript}, nil }}
	peerGraphilePost = peer{"graphile-post", true, graphileModule, peerGraphile.command}
	peerBare         = peer{"bare", true, "", func() ([]string, error) {
		self, err := os.Executable()
		return []string{self, bareMode}, err
	}}
)

// peerResult is what a peer tells in the end.
type peerResult struct {
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_ms"` // from insert to completion
	P99     float64 `json:"p99_ms"`
}

// begin makes the peer's database.
func (p peer) begin(ctx context.Context, r *rounds) (measure, error) {
	if p.needs != "" {
		if _, err := os.Stat(p.needs); err != nil {
			return nil, notAvailable("make bench-peers installs it")
		}
	}
	return func(ctx context.Context) (figures, error) { return r.peer(ctx, p) }, r.postgres.EnsureDatabase(ctx, p.name)
}

// peerLimit is how long a peer may take for a round.
const peerLimit = 2 * time.Minute

// peer starts a peer, has it work, and ends it.
func (r *rounds) peer(ctx context.Context, p peer) (all figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	args, err := p.command()
	if err != nil {
		return nil, err
	}
	args = append(args, "--database", r.postgres.URL(p.name), "--jobs", strconv.Itoa(r.tasks))
	if p.post {
		args = append(args, "--url", r.sink.base+rawPath)
	}
	before, err := r.deadIn(ctx, p.name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd.Stdout = w
	program, err := startProcess(p.name, cmd)
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	all, err = r.watchPeer(ctx, program, input, bufio.NewReader(output))
	_ = input.Close()
	<-program.done
	if err = errors.Join(err, program.err); err != nil {
		return nil, err
	}
	after, err := r.deadIn(ctx, p.name)
	return append(all, figure{"dead", "Dead rows", "rows/task", (after - before) / float64(r.tasks+warmUpTasks)}), err
}

// deadIn returns how many versions of rows have died in a peer's database. Its connections
// have told of all when they have ended.
func (r *rounds) deadIn(ctx context.Context, database string) (rows float64, err error) {
	conn, err := pgx.Connect(ctx, r.postgres.URL(database))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, `SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables`).Scan(&rows)
	return rows, err
}

// watchPeer has a peer begin when it is ready, and measures it.
func (r *rounds) watchPeer(ctx context.Context, program *process, input io.Writer, output *bufio.Reader) (figures, error) {
	line, err := output.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		return nil, fmt.Errorf("%s is not ready: %q, %w", program.name, line, err)
	}
	if err := r.db.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := r.peerReading(ctx, program)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(input, "go\n"); err != nil {
		return nil, err
	}
	if line, err = output.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("%s has told no result: %w", program.name, err)
	}
	after, err := r.peerReading(ctx, program)
	if err != nil {
		return nil, err
	}
	var result peerResult
	if err := json.Unmarshal([]byte(line), &result); err != nil {
		return nil, fmt.Errorf("%s: %q: %w", program.name, line, err)
	}
	all := figures{
		{"rate", "Rate", "jobs/s", float64(r.tasks) / result.Seconds},
		{"settled_p50", "Insert to completion, p50", "ms", result.P50},
		{"settled_p99", "Insert to completion, p99", "ms", result.P99},
	}
	all = append(all, writtenFigures(r.tasks, before.written, after.written)...)
	elapsed := time.Duration(result.Seconds * float64(time.Second))
	return append(all, cpuFigures(r.tasks, elapsed, after.usage.since(before.usage))...), nil
}

// peerReading reads the counters with the peer in the place of the node; it submits itself.
func (r *rounds) peerReading(ctx context.Context, program *process) (all reading, err error) {
	if all.written, err = r.db.written(ctx); err != nil {
		return all, err
	}
	if all.usage, err = r.usage(); err != nil {
		return all, err
	}
	all.usage.submitter = 0
	all.usage.node, err = cpuOfFamily(program.pid())
	return all, err
}
