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
)

// newsOfNodes is when a node knows of another one that came or went: each looks every 5 s.
const newsOfNodes = 6 * time.Second

// nodesTurns is how often one node and two have their turn in a round: so often that a machine
// that gets faster or slower does so for both.
const nodesTurns = 3

// beginNodes measures one node and two, each with a database of its own, by turns. Half of the
// submits go to each of the two.
func beginNodes(ctx context.Context, r *rounds) (measure, error) {
	var sides [2]nodesSide
	for i := range sides {
		var err error
		if sides[i], err = r.nodesSide(ctx, i+1); err != nil {
			return nil, err
		}
	}
	r.countDead(sides[1].bench, sides[1].pipe)
	return func(ctx context.Context) (all figures, err error) {
		err = sides[0].run(ctx, func(ctx context.Context) error {
			return sides[1].run(ctx, func(ctx context.Context) error {
				all, err = oneAndTwo(ctx, sides[0], sides[1], r.tasks)
				return err
			})
		})
		return all, err
	}, nil
}

// nodesSide is some nodes on a database.
type nodesSide struct {
	*bench
	pipe  *pipe
	count int
}

func (r *rounds) nodesSide(ctx context.Context, count int) (s nodesSide, err error) {
	s.count = count
	if s.bench, err = r.side(ctx, fmt.Sprintf("nodes%d", count), ""); err != nil {
		return s, err
	}
	return s, s.withNode(ctx, func(ctx context.Context) (err error) {
		if err = s.makeTenant(ctx); err == nil {
			s.pipe, err = s.registerShape(ctx, "nodes", shape{})
		}
		return err
	})
}

// run does something while the nodes run.
func (s nodesSide) run(ctx context.Context, do func(context.Context) error) error {
	for range s.count {
		next := do
		do = func(ctx context.Context) error { return s.withNode(ctx, next) }
	}
	return do(ctx)
}

// oneAndTwo measures one node and two by turns, and compares them.
func oneAndTwo(ctx context.Context, one, two nodesSide, tasks int) (figures, error) {
	if err := sleep(ctx, newsOfNodes); err != nil {
		return nil, err
	}
	turns := []nodesSide{one, two}
	for _, s := range turns {
		if err := s.warmUp(ctx, s.pipe); err != nil {
			return nil, err
		}
	}
	before, err := two.attempts(ctx, two.pipe)
	if err != nil {
		return nil, err
	}
	measured := map[int][]figures{}
	for range nodesTurns {
		for _, s := range turns {
			f, err := s.rate(ctx, s.pipe, tasks)
			if err != nil {
				return nil, err
			}
			measured[s.count] = append(measured[s.count], f)
		}
		slices.Reverse(turns)
	}
	after, err := two.attempts(ctx, two.pipe)
	if err != nil {
		return nil, err
	}
	ofOne, all := meanOf(measured[1]), meanOf(measured[2])
	oneBound, ok := ofOne.find("cpu_bound")
	twoBound, _ := all.find("cpu_bound")
	all = append(all, figure{"one_rate", "One node in the same round", "tasks/s", ofOne[0].value},
		figure{"over_one", "Two nodes ÷ one node", "×", all[0].value / ofOne[0].value},
		figure{"least_share", "Share of the node that did less", "%", leastShare(before, after)})
	if ok {
		all = append(all, figure{"cpu_over_one", "By CPU of all, ÷ one node", "×", twoBound / oneBound})
	}
	return all, nil
}

// leastShare returns the share of what was done of the node that did least, in percent.
func leastShare(before, after []float64) float64 {
	sum, least := 0.0, math.Inf(1)
	for i := range after {
		done := after[i] - before[i]
		sum, least = sum+done, min(least, done)
	}
	return 100 * least / sum
}

// attempts returns how many attempts at tasks of a pipe each node has made, by its metrics.
func (b *bench) attempts(ctx context.Context, p *pipe) (counts []float64, err error) {
	for _, n := range b.nodes {
		text, err := n.api.call(ctx, http.MethodGet, "/metrics", nil)
		if err != nil {
			return nil, err
		}
		sum := 0.0
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), "} ")
			if strings.HasPrefix(name, "asyncflow_attempts_total{") && strings.Contains(name, `type="`+p.name+`"`) {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return nil, fmt.Errorf("metrics: %q: %w", lines.Text(), err)
				}
				sum += n
			}
		}
		counts = append(counts, sum)
	}
	return counts, nil
}
