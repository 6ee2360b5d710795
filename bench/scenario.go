package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scenario is something that is measured once a round.
type scenario struct {
	name  string // for --only; its figures' keys begin with it
	title string
	// begin makes what all rounds need, once, and returns what measures a round.
	begin func(context.Context, *rounds) (measure, error)
}

// measure measures once.
type measure func(context.Context) (figures, error)

// scenarios are in the order of a round, so that what is compared stands together.
var scenarios = []scenario{
	{"post", "One POST per task, submits of 100", delivering(shape{}, 1)},
	{"bare", "Bare loop, one POST per task", peerBare.begin},
	{"river-post", "River, one POST per job", peerRiverPost.begin},
	{"graphile-post", "graphile-worker, one POST per job", peerGraphilePost.begin},
	{"batch", "Batch delivery, 50 tasks a POST", delivering(batches, 1)},
	{"river", "River, no-op jobs in its process", peerRiver.begin},
	{"graphile", "graphile-worker, no-op jobs in its processes", peerGraphile.begin},
	{"stages", "Three stages, one POST each", delivering(shape{stages: 3}, 3)},
	{"accepted", "202, and a completion call for each task", delivering(shape{path: acceptPath}, 3)},
	{"single", "Single submits alone, 64 connections", beginSingle},
	{"nodes", "Two nodes on one database", beginNodes},
	{"latency", "Submit to arrival at 100 tasks/s", beginLatency},
	{"half", "Submit to arrival at half of the maximum rate", beginHalf},
	{"types", "1,000 task types in 100 tenants, 200 tasks/s", beginTypes},
	{"context10k", "Contexts of 10 KB", contexts(10<<10, 50, 6)},
	{"context100k", "Contexts of 100 KB", contexts(100<<10, 10, 30)},
	{"pending", "A node with 1 M pending tasks", beginPending},
	{"http", "HTTP alone", beginHTTP},
	{"store", "The store alone", beginStore},
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
