package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// nodes asks: do two nodes on one machine do the work of one, and share it? One node and two, each
// with a database of its own, take turns.
var nodes = scenario{"nodes", "Two nodes on one database", 1, beginNodes}

// nodes20 and nodes50 ask: how fast are two nodes when the workers take their time?
var (
	nodes20 = scenario{"nodes20", "Two nodes, workers that take 20 ms", 1, slowWorkers("20ms")}
	nodes50 = scenario{"nodes50", "Two nodes, workers that take 50 ms", 1, slowWorkers("50ms")}
)

// nodesKnown is when a node knows of another one that came or went: each looks every 5 s.
const nodesKnown = 6 * time.Second

// nodesTurns is how often one node and two get their turn in a round: when the machine gets faster
// or slower, it does so for both.
const nodesTurns = 3

func beginNodes(ctx context.Context, r *rounds) (measure, error) {
	two, err := r.nodesRig(ctx, 2, rig.Shape{})
	if err != nil {
		return nil, err
	}
	r.countDead(two.Rig, two.taskType)
	if r.comparing {
		return two.measure(r), nil
	}
	one, err := r.nodesRig(ctx, 1, rig.Shape{})
	return func(ctx context.Context) (all report.Figures, err error) {
		err = one.run(ctx, func(ctx context.Context) error {
			return two.run(ctx, func(ctx context.Context) error {
				all, err = oneAndTwo(ctx, r, one, two)
				return err
			})
		})
		return all, err
	}, err
}

// slowWorkers returns the begin of a scenario of two nodes with a worker that answers after a
// delay.
func slowWorkers(delay string) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		two, err := r.nodesRig(ctx, 2, rig.Shape{Path: worker.AfterPath + delay})
		if err != nil {
			return nil, err
		}
		r.countDead(two.Rig, two.taskType)
		return two.measure(r), nil
	}
}

// nodesRig is a database with a number of nodes.
type nodesRig struct {
	*rig.Rig
	taskType *rig.TaskType
	count    int
}

func (r *rounds) nodesRig(ctx context.Context, count int, s rig.Shape) (n nodesRig, err error) {
	n.count = count
	name := fmt.Sprintf("%s_%d", r.scenario.name, count)
	if n.Rig, err = r.Side(ctx, name, r.Binary); err != nil {
		return n, err
	}
	return n, n.WithNode(ctx, func(ctx context.Context) (err error) {
		if err = n.MakeTenant(ctx); err != nil {
			return err
		}
		n.taskType, err = n.Register(ctx, "nodes", s)
		return err
	})
}

// run calls do while the nodes run.
func (n nodesRig) run(ctx context.Context, do func(context.Context) error) error {
	return n.WithNodes(ctx, n.count, do)
}

// ready waits until the nodes know of each other, and warms them up.
func (n nodesRig) ready(ctx context.Context, r *rounds) error {
	if !r.short {
		if !sleep.For(ctx, nodesKnown) {
			return ctx.Err()
		}
	}
	return n.WarmUp(ctx, n.taskType)
}

// measure returns what measures the nodes by themselves.
func (n nodesRig) measure(r *rounds) measure {
	return func(ctx context.Context) (all report.Figures, err error) {
		err = n.run(ctx, func(ctx context.Context) error {
			if err := n.ready(ctx, r); err != nil {
				return err
			}
			all, err = n.Measure(ctx, n.taskType, r.tasks)
			return err
		})
		return all, err
	}
}

// oneAndTwo measures one node and two by turns, and compares them.
func oneAndTwo(ctx context.Context, r *rounds, one, two nodesRig) (report.Figures, error) {
	if err := two.ready(ctx, r); err != nil {
		return nil, err
	}
	if err := one.WarmUp(ctx, one.taskType); err != nil {
		return nil, err
	}
	before, err := attempts(ctx, two)
	if err != nil {
		return nil, err
	}
	measured := map[int][]report.Figures{}
	turns := []nodesRig{one, two}
	for range nodesTurns {
		for _, n := range turns {
			f, err := n.Measure(ctx, n.taskType, r.tasks)
			if err != nil {
				return nil, err
			}
			measured[n.count] = append(measured[n.count], f)
		}
		slices.Reverse(turns)
	}
	after, err := attempts(ctx, two)
	if err != nil {
		return nil, err
	}
	ofOne, all := report.MeanOf(measured[1]), report.MeanOf(measured[2])
	oneBound, ok := ofOne.Find("cpu_bound")
	twoBound, _ := all.Find("cpu_bound")
	rate := all[0].Value
	all.Add("one_rate", "One node in the same round", "tasks/s", ofOne[0].Value)
	all.Add("over_one", "Two nodes ÷ one node", "×", rate/ofOne[0].Value)
	all.Add("least_share", "Share of the node that did less", "%", leastShare(before, after))
	if ok {
		all.Add("cpu_over_one", "By CPU of all, ÷ one node", "×", twoBound/oneBound)
	}
	return all, nil
}

// leastShare returns the share of the node that did least, in percent.
func leastShare(before, after []float64) float64 {
	sum, least := 0.0, math.Inf(1)
	for i := range after {
		done := after[i] - before[i]
		sum, least = sum+done, min(least, done)
	}
	return 100 * least / sum
}

// attempts returns how many attempts at tasks of the type each node made, by its metrics.
func attempts(ctx context.Context, of nodesRig) (counts []float64, err error) {
	for _, n := range of.Nodes {
		admin, err := of.Admin(n.API)
		if err != nil {
			return nil, err
		}
		text, err := admin.Call(ctx, http.MethodGet, "/metrics", nil)
		if err != nil {
			return nil, err
		}
		sum := 0.0
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), "} ")
			if !strings.HasPrefix(name, "asyncflow_attempts_total{") ||
				!strings.Contains(name, `type="`+of.taskType.Name+`"`) {
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("metrics: %q: %w", lines.Text(), err)
			}
			sum += n
		}
		counts = append(counts, sum)
	}
	return counts, nil
}
