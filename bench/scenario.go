package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scenario is something that is measured in each round.
type scenario struct {
	name  string // for --only; its figures' keys begin with it
	title string
	// turns is how often it is measured in a round, by turns with those beside it that are
	// measured as often: so that a machine that gets faster or slower does so for all.
	turns int
	// begin makes what all rounds need, once, and returns what measures a round.
	begin func(context.Context, *rounds) (measure, error)
}

// measure measures once.
type measure func(context.Context) (figures, error)

// scenarios are in the order of a round, so that what is compared stands together.
var scenarios = []scenario{
	{"post", "One POST per task, submits of 100", 3, delivering(shape{}, 1)},
	{"bare", "Bare loop, one POST per task", 3, peerBare.begin},
	{"river-post", "River, one POST per job", 1, peerRiverPost.begin},
	{"graphile-post", "graphile-worker, one POST per job", 1, peerGraphilePost.begin},
	{"batch", "Batch delivery, 50 tasks a POST", 1, delivering(batches, 1)},
	{"river", "River, no-op jobs in its process", 1, peerRiver.begin},
	{"graphile", "graphile-worker, no-op jobs in its processes", 1, peerGraphile.begin},
	{"stages", "Three stages, one POST each", 1, delivering(shape{stages: 3}, 3)},
	{"accepted", "202, and a completion call for each task", 1, delivering(shape{path: acceptPath}, 3)},
	{"single", "Single submits alone, 64 connections", 1, beginSingle},
	{"nodes", "Two nodes on one database", 1, beginNodes},
	{"latency", "Submit to arrival at 100 tasks/s", 1, beginLatency},
	{"half", "Submit to arrival at half of the maximum rate", 1, beginHalf},
	{"types", "1,000 task types in 100 tenants, 200 tasks/s", 1, beginTypes},
	{"context10k", "Contexts of 10 KB", 1, contexts(10<<10, 50, 6)},
	{"context100k", "Contexts of 100 KB", 1, contexts(100<<10, 10, 30)},
	{"pending", "A node with 1 M pending tasks", 1, beginPending},
	{"http", "HTTP alone", 1, beginHTTP},
	{"store", "The store alone", 1, beginStore},
}

// chosen returns the scenarios of some names; all when there are none.
func chosen(names []string) ([]scenario, error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	var some []scenario
	for _, s := range scenarios {
		if slices.Contains(names, s.name) {
			some = append(some, s)
		}
	}
	if len(some) == len(names) {
		return some, nil
	}
	var known []string
	for _, s := range scenarios {
		known = append(known, s.name)
	}
	return nil, fmt.Errorf("--only %s: choose from %s, each once", strings.Join(names, ","), strings.Join(known, ","))
}

// names are those of scenarios, by commas.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

// Set reads a list.
func (n *names) Set(text string) error {
	*n = strings.Split(text, ",")
	return nil
}

// notAvailable tells why a scenario can't be measured here. That is no fault.
type notAvailable string

func (n notAvailable) Error() string { return "not available: " + string(n) }

// whyNot returns why a scenario isn't available; "" when the error is another, or none.
func whyNot(err error) string {
	var n notAvailable
	if errors.As(err, &n) {
		return string(n)
	}
	return ""
}
