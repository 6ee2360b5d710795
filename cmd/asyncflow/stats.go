package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type statsCmd struct {
	Type      string        `placeholder:"NAME" help:"Only this task type."`
	Watch     bool          `help:"Show them again every 2 seconds, until interrupted."`
	Autoscale string        `placeholder:"TYPE/STAGE" help:"Show how many slots the stage needs."`
	Target    time.Duration `placeholder:"TIME" help:"When the backlog is to be gone (1m)."`
	History   bool          `help:"Show what happened over time."`
	Since     time.Duration `placeholder:"TIME" help:"Since that long ago (1h), at most 720h."`
	Step      time.Duration `placeholder:"TIME" help:"The time of one point, 1m to 24h."`
	Stage     string        `placeholder:"NAME" help:"With --history: only this stage."`
	ByType    bool          `help:"With --history: a line for each task type."`
}

func (c *statsCmd) Help() string {
	return `OLDEST-DUE is the longest time that a task has been due without being started. BACKLOG
is the number of tasks that are due, and what they wait for: capacity (a dispatcher with a free
slot), endpoint_unhealthy, endpoint and so on, as in the field waits_for of a task. IN/s
(submitted), OUT/s (final), FAILURES/s (attempts that failed, were rejected or lost) and SNOOZES/s
(deliveries that workers put off) are those of the last minute. P50 and P99 are how long half and
99 % of the attempts at endpoints took at most in the last 5 minutes. WAIT-P50 and WAIT-P99 are how
long tasks were due until they were started, TASK-P50 and TASK-P99 how long tasks took from their
submit to their end, in the same time; with --type the waits follow by stage, and the claims and
votes that led to nothing. SUCCEEDED, FAILED and CANCELLED are totals since the type was created;
EXPIRED says how many of FAILED were not begun or ended in time.

--autoscale shows how many tasks the workers of a stage should be able to do at once: those that
keep pace with the tasks that start, and those that do the backlog within --target.

--history shows what the tasks did, by minute for the last 24 hours and by hour for the last 30
days: a chart on a terminal, in which a blank is no data or 0, elsewhere a table; then deploys,
pauses, alerts and stopped endpoints. With --by-type, each type that did something has a line.

Examples:

    asyncflow stats --type thumbnails --watch
    asyncflow stats --type thumbnails --history --since 24h --step 5m
    asyncflow stats --history --by-type --step 5m
    asyncflow stats --autoscale thumbnails/resize --target 5m`
}

// watchEvery is the pause between two requests of a watch.
const watchEvery = 2 * time.Second

// Run shows the counts, once or until it is interrupted.
func (c *statsCmd) Run(ctx context.Context, g *globals) error {
	if err := c.checkHistory(); err != nil {
		return usageError(err)
	}
	if c.History {
		return c.history(ctx, g, isTerminal(g.stdout))
	}
	switch {
	case c.Autoscale != "" && (c.Type != "" || c.Watch):
		return usageError(asyncflow.InvalidField("--autoscale",
			"goes with neither --type nor --watch"))
	case c.Autoscale != "":
		return c.scale(ctx, g)
	case c.Target != 0:
		return usageError(asyncflow.InvalidField("--target", "needs --autoscale"))
	}
	if c.Watch {
		return c.watch(ctx, g, isTerminal(g.stdout), watchEvery)
	}
	return c.show(ctx, g)
}

// show asks for the counts and prints them.
func (c *statsCmd) show(ctx context.Context, g *globals) error {
	stats, err := g.client().Stats(ctx, c.Type)
	if done, err := g.asDocument(asList(stats, ""), err); done {
		return err
	}
	at := now()
	rows := make([][]string, len(stats))
	for i, s := range stats {
		rows[i] = statsRow(s, at)
	}
	err = g.printTable("TYPE WAITING PENDING RUNNING SUCCEEDED FAILED EXPIRED CANCELLED "+
		"OLDEST-DUE IN/s OUT/s FAILURES/s SNOOZES/s P50 P99 WAIT-P50 WAIT-P99 "+
		"TASK-P50 TASK-P99 ROLLS BACKLOG", rows)
	if err != nil {
		return err
	}
	if c.Type != "" {
		if err := errors.Join(g.printStageWaits(stats), g.printLargestKeys(stats)); err != nil {
			return err
		}
	}
	return g.printStopped(stats)
}

// printLargestKeys names below the table the flow keys with the most due tasks.
func (g *globals) printLargestKeys(stats []client.Stats) error {
	for _, s := range stats {
		for _, k := range s.LargestKeys {
			key := "flow key " + printable(k.FlowKey)
			if k.FlowKey == "" {
				key = "no flow key"
			}
			if _, err := fmt.Fprintf(g.stdout, "%s: %s: %d due\n", s.Type, key,
				k.Tasks); err != nil {
				return err
			}
		}
	}
	return nil
}

// printStageWaits says below the table how long tasks waited in each stage, if there are several,
// and which claims and votes led to nothing.
func (g *globals) printStageWaits(stats []client.Stats) error {
	for _, s := range stats {
		for _, c := range s.StageClaims {
			_, err := fmt.Fprintf(g.stdout, "%s/%s: %d late votes, %d calls with a closed window\n",
				s.Type, c.Stage, c.LateVotes, c.ClosedWindows)
			if err != nil {
				return err
			}
		}
		if len(s.StageWaits) < 2 {
			continue
		}
		for _, w := range s.StageWaits {
			_, err := fmt.Fprintf(g.stdout, "%s/%s: waits p50 %s, p99 %s\n", s.Type, w.Stage,
				latencyText(w.P50Ms), latencyText(w.P99Ms))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// printStopped lists, below the table, the endpoints that get no deliveries at present.
func (g *globals) printStopped(stats []client.Stats) error {
	for _, s := range stats {
		for _, b := range s.Backlog {
			if b.WaitsBecause == "" {
				continue
			}
			_, err := fmt.Fprintf(g.stdout, "%s/%s: %s\n", s.Type, b.Stage,
				printable(b.WaitsBecause))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func statsRow(s client.Stats, at time.Time) []string {
	name := s.Type
	if s.Paused {
		name += " (paused)"
	}
	due := ""
	if !s.OldestDue.IsZero() { // the clock of this machine may be behind
		due = longText(max(0, at.Sub(s.OldestDue)))
	}
	row := []string{name}
	for _, n := range []int64{s.Waiting, s.Pending, s.Running, s.Succeeded, s.Failed,
		s.Expired, s.Cancelled} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	row = append(row, due)
	rates := s.Rates
	for _, rate := range []float32{rates.Submitted, rates.Finished, rates.Failures, rates.Snoozes} {
		row = append(row, strconv.FormatFloat(float64(rate), 'f', 1, 32))
	}
	for _, l := range []client.Latency{s.Latency, s.Wait, s.Turnaround} {
		row = append(row, latencyText(l.P50Ms), latencyText(l.P99Ms))
	}
	return append(row, strconv.Itoa(s.Rolls), backlogText(s.Backlog))
}

// backlogText returns the due tasks by what they wait for: "600 endpoint_unhealthy, 3
// capacity".
func backlogText(backlog []client.Backlog) string {
	parts := make([]string, len(backlog))
	for i, b := range backlog {
		parts[i] = strconv.FormatInt(b.Tasks, 10) + " " + string(b.WaitsFor)
		if b.Stage != "" {
			parts[i] += " (" + b.Stage + ")"
		}
	}
	return strings.Join(parts, ", ")
}

// clearScreen clears a terminal and moves to its top.
const clearScreen = "\x1b[H\x1b[2J"

// watch shows the counts again and again, on a terminal in place of the previous ones,
// elsewhere below them. It ends without an error when ctx ends.
func (c *statsCmd) watch(
	ctx context.Context, g *globals, terminal bool, every time.Duration,
) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		var page bytes.Buffer // written at once, so that nothing flickers
		if terminal {
			page.WriteString(clearScreen)
		}
		once := *g
		once.stdout = &page
		err := c.show(ctx, &once)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if _, err := g.stdout.Write(page.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

type nodesCmd struct{}

func (c *nodesCmd) Help() string {
	return `A node is gone if it has been silent for 15 s and was not shut down; it is forgotten
after a day. The roles are those of the nodes that are alive, and so are the versions: more than one
during an upgrade. Operators see the nodes by name with asyncflow governance status.

Example:

    asyncflow nodes -o json | jq .roles.dispatcher`
}

// Run shows how many nodes there are.
func (c *nodesCmd) Run(ctx context.Context, g *globals) error {
	n, err := g.client().NodeCounts(ctx)
	if done, err := g.asDocument(n, err); done {
		return err
	}
	return g.printFields("alive", strconv.Itoa(n.Alive), "gone", strconv.Itoa(n.Gone),
		"api", strconv.Itoa(n.Roles.API), "dispatcher", strconv.Itoa(n.Roles.Dispatcher),
		"governance", strconv.Itoa(n.Roles.Governance), "versions", strings.Join(n.Versions, ", "))
}
