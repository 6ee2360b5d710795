package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// newsOfNodes is when a node knows of another one that came or went: each looks every 5 s.
const newsOfNodes = 6 * time.Second

// beginNodes: the same tasks with one node, with two, and with one again, as the machine
// may be getting faster or slower; with two, half of the submits go to each.
func beginNodes(ctx context.Context, r *rounds) (measure, error) {
	p, err := r.registerShape(ctx, "nodes", shape{})
	if err == nil {
		err = r.warmUp(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	r.countDead(r.bench, p)
	return func(ctx context.Context) (two figures, err error) {
		before, err := r.rate(ctx, p, r.tasks/2)
		if err != nil {
			return nil, err
		}
		err = r.withNode(ctx, func(ctx context.Context) (err error) {
			if err = sleep(ctx, newsOfNodes); err == nil {
				two, err = r.twoNodes(ctx, p)
			}
			return err
		})
		if err == nil {
			err = sleep(ctx, newsOfNodes)
		}
		if err != nil {
			return nil, err
		}
		after, err := r.rate(ctx, p, r.tasks/2)
		if err != nil {
			return nil, err
		}
		return append(two, overOne(two, before, after)...), nil
	}, nil
}

// overOne compares two nodes with one, before and after, by the harmonic means of these.
func overOne(two, before, after figures) (all figures) {
	one := func(key string) float64 {
		a, _ := before.find(key)
		b, _ := after.find(key)
		return 2 / (1/a + 1/b)
	}
	all = figures{{"one_rate", "One node in the same round", "tasks/s", one("rate")},
		{"over_one", "Two nodes ÷ one node", "×", two[0].value / one("rate")}}
	if bound, ok := two.find("cpu_bound"); ok {
		all = append(all, figure{"cpu_over_one", "By CPU of all, ÷ one node", "×", bound / one("cpu_bound")})
	}
	return all
}

// twoNodes measures with the nodes that run, and adds the least share of one.
func (r *rounds) twoNodes(ctx context.Context, p *pipe) (figures, error) {
	if err := r.warmUp(ctx, p); err != nil {
		return nil, err
	}
	before, err := r.attempts(ctx, p)
	if err != nil {
		return nil, err
	}
	all, err := r.rate(ctx, p, r.tasks/2)
	if err != nil {
		return nil, err
	}
	after, err := r.attempts(ctx, p)
	sum, least := 0.0, 1.0
	for i := range after {
		after[i] -= before[i]
		sum += after[i]
	}
	for _, n := range after {
		least = min(least, n/sum)
	}
	return append(all, figure{"least_share", "Share of the node that did less", "%", 100 * least}), err
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
