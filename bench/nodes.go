package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

// nodesTurns is how often one node and two have their turn in a round: each is short, so that
// a machine that gets faster or slower does so for both.
const nodesTurns = 3

// beginNodes measures the node that runs and, by turns, two of another database; half of the
// submits go to each of these.
func beginNodes(ctx context.Context, r *rounds) (measure, error) {
	two, err := r.side(ctx, "nodes", "")
	if err != nil {
		return nil, err
	}
	var ofTwo *pipe
	ofOne, err := r.registerShape(ctx, "nodes", shape{})
	if err == nil {
		err = two.withNode(ctx, func(ctx context.Context) (err error) {
			if err = two.makeTenant(ctx); err == nil {
				ofTwo, err = two.registerShape(ctx, "nodes", shape{})
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	r.countDead(two, ofTwo)
	return func(ctx context.Context) (all figures, err error) {
		err = two.withNode(ctx, func(ctx context.Context) error {
			return two.withNode(ctx, func(ctx context.Context) error {
				all, err = r.oneAndTwo(ctx, ofOne, two, ofTwo)
				return err
			})
		})
		return all, err
	}, nil
}

// oneAndTwo measures the node of the rounds and two others by turns, and compares them.
func (r *rounds) oneAndTwo(ctx context.Context, ofOne *pipe, two *bench, ofTwo *pipe) (figures, error) {
	err := errors.Join(sleep(ctx, newsOfNodes), r.warmUp(ctx, ofOne), two.warmUp(ctx, ofTwo))
	if err != nil {
		return nil, err
	}
	before, err := two.attempts(ctx, ofTwo)
	if err != nil {
		return nil, err
	}
	var ones, twos []figures
	turns := []func() error{
		func() error { return appendRate(ctx, &ones, r.bench, ofOne, r.tasks/2) },
		func() error { return appendRate(ctx, &twos, two, ofTwo, r.tasks/2) },
	}
	for range nodesTurns {
		if err := errors.Join(turns[0](), turns[1]()); err != nil {
			return nil, err
		}
		slices.Reverse(turns)
	}
	after, err := two.attempts(ctx, ofTwo)
	one, all := meanOf(ones), meanOf(twos)
	all = append(all, figure{"one_rate", "One node in the same round", "tasks/s", one[0].value},
		figure{"over_one", "Two nodes ÷ one node", "×", all[0].value / one[0].value},
		figure{"least_share", "Share of the node that did less", "%", leastShare(before, after)})
	ofCPU, ok := one.find("cpu_bound")
	if bound, _ := all.find("cpu_bound"); ok {
		all = append(all, figure{"cpu_over_one", "By CPU of all, ÷ one node", "×", bound / ofCPU})
	}
	return all, err
}

// appendRate measures the rate of a bench's nodes.
func appendRate(ctx context.Context, to *[]figures, b *bench, p *pipe, tasks int) error {
	f, err := b.rate(ctx, p, tasks)
	*to = append(*to, f)
	return err
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
