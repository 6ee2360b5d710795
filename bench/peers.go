package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/bare"
	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/peer"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// The peers ask: how fast do others do the same work?
var (
	bareLoop = scenario{
		"bare", "Bare loop, one POST per task", 3,
		program{name: "bare", post: true, command: bareCommand}.begin,
	}
	riverPost = scenario{
		"river-post", "River, one POST per job", 1,
		program{name: "river-post", post: true, needs: riverBinary, command: riverCommand}.begin,
	}
	river = scenario{
		"river", "River, no-op jobs in its process", 1,
		program{name: "river", needs: riverBinary, command: riverCommand}.begin,
	}
	riverOne = scenario{
		"river-one", "River, jobs inserted singly, one POST each", singleTurns,
		riverSingly("river-one", peer.Flags{}).begin,
	}
	riverKinds = scenario{
		"river-kinds", "River, 1,000 kinds, inserted singly, one POST each", singleTurns,
		riverSingly("river-kinds", peer.Flags{Kinds: riverKindsCount}).begin,
	}
	riverSkew = scenario{
		"river-skew", "River, 80 % of the jobs of 20 % of 1,000 kinds", singleTurns,
		riverSingly("river-skew", peer.Flags{Kinds: riverKindsCount, Skewed: true}).begin,
	}
	riverTypes = scenario{
		"river-types", "River, 1,000 kinds, 200 jobs/s", 1,
		riverSingly("river-types", peer.Flags{Kinds: riverKindsCount, Rate: typesRate}).begin,
	}
	graphilePost = scenario{
		"graphile-post", "graphile-worker, one POST per job", 1,
		program{
			name: "graphile-post", post: true, needs: graphileModule, command: graphileCommand,
		}.begin,
	}
	graphile = scenario{
		"graphile", "graphile-worker, no-op jobs in its processes", 1,
		program{name: "graphile", needs: graphileModule, command: graphileCommand}.begin,
	}
)

const (
	riverBinary    = "bin/peers/river"
	graphileScript = "bench/peers/graphile.mjs"
	graphileModule = "bench/peers/node_modules/graphile-worker/package.json"
)

// riverKindsCount is the number of kinds beside as many task types.
const riverKindsCount = 1000

// program is a peer: it does the same work in another way, in a database of its own. Package peer
// defines the protocol.
type program struct {
	name    string // of its scenario, and of its database
	post    bool   // one POST per job
	needs   string // a file that must be there
	command func() ([]string, error)
	how     peer.Flags // in addition to the database, the number of jobs and the URL
}

// riverSingly is River with jobs that are inserted one by one while it works.
func riverSingly(name string, how peer.Flags) program {
	how.Singly = true
	return program{name: name, post: true, needs: riverBinary, command: riverCommand, how: how}
}

// jobs returns how many there are in a round, in which other scenarios run r.tasks.
func (p program) jobs(r *rounds) int {
	switch {
	case p.how.Rate > 0:
		return int(p.how.Rate * r.latencyTime.Seconds())
	case p.how.Singly:
		return r.tasks / singlePart
	}
	return r.tasks
}

func riverCommand() ([]string, error) { return []string{riverBinary}, nil }

func graphileCommand() ([]string, error) { return []string{"node", graphileScript}, nil }

func bareCommand() ([]string, error) {
	self, err := os.Executable()
	return []string{self, bare.Mode}, err
}

// begin makes the peer's database.
func (p program) begin(ctx context.Context, r *rounds) (measure, error) {
	if p.needs != "" {
		if _, err := os.Stat(p.needs); err != nil {
			return nil, notAvailable("make bench-peers installs it")
		}
	}
	url, err := r.MakeDatabase(ctx, p.name)
	flags := p.how
	flags.Database, flags.Jobs = url, p.jobs(r)
	if p.post {
		flags.URL = r.Worker.Base + worker.RawPath
	}
	return func(ctx context.Context) (report.Figures, error) {
		return p.run(ctx, r.Rig, flags)
	}, err
}

// peerLimit is how long a peer may take for a round.
const peerLimit = 2 * time.Minute

// run starts a peer, lets it work, and ends it.
func (p program) run(
	ctx context.Context, r *rig.Rig, flags peer.Flags,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	before, err := deadIn(ctx, flags.Database)
	if err != nil {
		return nil, err
	}
	args, err := p.command()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], flags.Args()...)...)
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
	process, err := rig.StartProcess(p.name, cmd)
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	all, err = watchPeer(ctx, r, process, flags.Jobs, input, bufio.NewReader(output))
	_ = input.Close()
	if err = errors.Join(err, process.Wait()); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	after, err := deadIn(ctx, flags.Database)
	rows := (after - before) / float64(flags.Jobs+rig.WarmUpTasks)
	all.Add("dead", "Dead rows", "rows/task", rows)
	return all, err
}

// deadIn returns the number of row versions that died in a peer's database. Its connections report
// all of them by their end.
func deadIn(ctx context.Context, url string) (rows float64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, `
		SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8
		FROM pg_stat_user_tables`).Scan(&rows)
	return rows, err
}

// watchPeer lets a peer begin when it is ready, and measures it.
func watchPeer(
	ctx context.Context, r *rig.Rig, process *rig.Process, jobs int,
	input io.Writer, output *bufio.Reader,
) (all report.Figures, err error) {
	if err := peer.AwaitReady(output); err != nil {
		return nil, err
	}
	if err := r.DB.Checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := readWithPeer(ctx, r, process)
	if err != nil {
		return nil, err
	}
	result, err := peer.Begin(input, output)
	if err != nil {
		return nil, err
	}
	after, err := readWithPeer(ctx, r, process)
	if err != nil {
		return nil, err
	}
	cost := after.CostSince(before, time.Duration(result.Seconds*float64(time.Second)))
	all.Add("rate", "Rate", "jobs/s", float64(jobs)/result.Seconds)
	all.Add("settled_p50", "Insert to completion, p50", "ms", result.P50)
	all.Add("settled_p99", "Insert to completion, p99", "ms", result.P99)
	if result.InsertMean > 0 {
		all.Add("submit_mean", "Insert, mean", "ms", result.InsertMean)
	}
	return append(all, cost.Figures(jobs)...), nil
}

// readWithPeer reads the counters with the peer in the place of the node. There is no client: the
// peer inserts its jobs itself.
func readWithPeer(
	ctx context.Context, r *rig.Rig, process *rig.Process,
) (now rig.Reading, err error) {
	if now, err = r.Read(ctx); err != nil {
		return now, err
	}
	now.Client = 0
	now.Node, err = machine.CPUOfFamily(process.PID())
	return now, err
}
