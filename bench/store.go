package main

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/rawstore"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// storeAlone asks: what does the database allow at all? The store of this tree submits, leases and
// settles in this process, with nothing in between.
var storeAlone = scenario{"store", "The store alone", 1, beginStore}

// storeDatabase is the database of the store. The nodes have no part in it.
const storeDatabase = "store"

func beginStore(ctx context.Context, r *rounds) (measure, error) {
	if r.binary != "" {
		return nil, notAvailable("the store is that of this tree, not of the program that is " +
			"measured")
	}
	url, err := r.MakeDatabase(ctx, storeDatabase)
	if err == nil {
		err = rawstore.Prepare(ctx, url)
	}
	return func(ctx context.Context) (report.Figures, error) {
		return storeCycle(ctx, r.Rig, url, r.tasks)
	}, err
}

func storeCycle(
	ctx context.Context, r *rig.Rig, url string, tasks int,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(tasks))
	defer cancel()
	s, err := rawstore.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := r.DB.Checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := r.Usage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.Cycle(ctx, tasks); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := r.Usage()
	if err != nil {
		return nil, err
	}
	u := after.Since(before)
	all.Add("rate", "Rate", "tasks/s", float64(tasks)/elapsed.Seconds())
	all.Add("cpu_submitter", "CPU of its process", "µs/task", rig.Micros(u.Client, tasks))
	all.Add("cpu_postgres", "CPU of Postgres", "µs/task", rig.Micros(u.Postgres, tasks))
	all.Add("cpu_all", "CPU of both", "µs/task", rig.Micros(u.Client+u.Postgres, tasks))
	return all, nil
}
