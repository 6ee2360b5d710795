package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/report"
)

// scenario is a question that is measured in each round.
type scenario struct {
	name  string // for --only; the keys of its figures begin with it
	title string
	// times is how often it is measured in a round, by turns with the ones beside it that are
	// measured as often: when the machine gets faster or slower, it does so for all of them.
	times int
	// begin makes what all rounds need, once, and returns what measures a round.
	begin func(context.Context, *rounds) (measure, error)
}

// measure measures once.
type measure func(context.Context) (report.Figures, error)

// scenarios are in the order of a round: what is compared stands together.
var scenarios = []scenario{
	post, bareLoop, riverPost, graphilePost,
	batch, river, graphile,
	stages,
	accepted,
	single,
	one, riverOne, tenants, riverKinds, skew, riverSkew,
	nodes, nodes20, nodes50,
	latency,
	half,
	told, waits,
	types, oneType, riverTypes,
	types1500,
	context10k, context100k,
	children, plain, join, release,
	claims, oneClaim,
	debounce,
	debounceKeys,
	unfair, fair, unfairBacklog, fairBacklog,
	pending,
	expire,
	httpAlone, storeAlone, storeLabels, storeSearch,
}

// chosen returns the scenarios with the names; all when there are none.
func chosen(only names) ([]scenario, error) {
	if len(only) == 0 {
		return scenarios, nil
	}
	var some []scenario
	for _, s := range scenarios {
		if slices.Contains(only, s.name) {
			some = append(some, s)
		}
	}
	if len(some) == len(only) {
		return some, nil
	}
	var known names
	for _, s := range scenarios {
		known = append(known, s.name)
	}
	return nil, fmt.Errorf("--only %s: choose from %s, each once", &only, &known)
}

// names are names of scenarios.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

// Set reads names with commas in between.
func (n *names) Set(text string) error {
	*n = strings.Split(text, ",")
	return nil
}

// notAvailable says why a scenario can't be measured here. That doesn't fail the run.
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
