package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// registerWarm registers a type and passes its first tasks.
func registerWarm(
	ctx context.Context, r *rig.Rig, name string, shape rig.Shape,
) (*rig.TaskType, error) {
	t, err := r.Register(ctx, name, shape)
	if err != nil {
		return nil, err
	}
	return t, r.WarmUp(ctx, t)
}

// measureByTurns measures each type in each round. The types take turns, each round another one
// first: other work on the machine disturbs all of them alike. The titles are for the log.
func measureByTurns(
	rounds int, types []*rig.TaskType, titles []string,
	measure func(*rig.TaskType) (report.Figures, error),
) ([]report.Rounds, error) {
	all := make([]report.Rounds, len(types))
	for n := range rounds {
		for turn := range types {
			i := (n + turn) % len(types)
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, rounds, titles[i])
			f, err := measure(types[i])
			if err != nil {
				return nil, fmt.Errorf("round %d of %s: %w", n+1, types[i].Name, err)
			}
			all[i].Add(f)
		}
	}
	return all, nil
}

// addAgainstFirst adds the medians of each type to a grid, with the change of its first figure
// against the first type.
func addAgainstFirst(g *report.Grid, all []report.Rounds, title string) {
	for _, rounds := range all {
		medians := rounds.Medians()
		medians.Add("change", title, "%", 100*(rounds[0].Median/all[0][0].Median-1))
		g.Add(medians)
	}
}

// measureArrivals measures tasks from the first submit to the last arrival. title is that of their
// rate.
func measureArrivals(
	ctx context.Context, r *rig.Rig, tasks int, title string, submit func(context.Context) error,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(tasks))
	defer cancel()
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return nil, err
	}
	if err := submit(ctx); err != nil {
		return nil, err
	}
	arrived := 0
	err = rig.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		c, err := r.WorkerCounts(ctx)
		arrived = c.Distinct - meter.Before.Distinct
		return arrived >= tasks, err
	})
	if err != nil {
		return nil, errors.Join(err, fmt.Errorf("%d of %d tasks have arrived", arrived, tasks))
	}
	cost, err := meter.Stop(ctx)
	all.Add("rate", title, "tasks/s", cost.Rate(tasks))
	all = append(all, cost.CPUFigures(tasks)...)
	return all, errors.Join(err, all.Check())
}
