package main

import (
	"context"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// claims and oneClaim ask: how fast do workers get the tasks that they ask for? The tasks are in
// line before, and are completed after what is measured.
var (
	claims = scenario{"claims", "Claims, 50 a call, 4 claimers", treeTurns, claiming(4, 50)}
	// oneClaim makes many small calls at once.
	oneClaim = scenario{"one-claim", "Claims, one a call, 64 claimers", treeTurns, claiming(64, 1)}
)

func claiming(claimers, most int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		name := "claims"
		if most == 1 {
			name = "one-claim"
		}
		t, err := r.Register(ctx, name, rig.Shape{Claim: true})
		if err != nil {
			return nil, err
		}
		_, err = r.PassClaims(ctx, t, rig.WarmUpTasks, claimers, most)
		return func(ctx context.Context) (all report.Figures, err error) {
			n := r.treeSize()
			cost, err := r.PassClaims(ctx, t, n, claimers, most)
			all.Add("rate", "Rate", "tasks/s", cost.Rate(n))
			return append(all, cost.Figures(n)...), err
		}, err
	}
}
