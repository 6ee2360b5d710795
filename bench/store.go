package main

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/rawstore"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// storeAlone asks: what does the database allow at all? The store of this tree submits, leases and
// settles in this process, with nothing in between.
var storeAlone = scenario{"store", "The store alone", 1, beginStore(storeDatabase, false)}

// storeLabels and storeSearch ask: what does it cost that tasks are found by two fields?
var (
	storeLabels = scenario{"store-labels", "The store alone, tasks with labels", 1,
		beginStore("store_labels", true)}
	storeSearch = scenario{"store-search", "The same, found by two of the labels", 1,
		beginStore("store_search", true, asyncflow.SearchUser, asyncflow.SearchMetadata+"order")}
)

// storeDatabase is the database of the store. The nodes take no part in it.
const storeDatabase = "store"

// beginStore begins a measurement of a store in a database of its own, of tasks with or without
// labels, and a type with searchable fields.
func beginStore(
	database string, labelled bool, searchable ...string,
) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		return measureStore(ctx, r, database, labelled, searchable)
	}
}

func measureStore(
	ctx context.Context, r *rounds, database string, labelled bool, searchable []string,
) (measure, error) {
	if r.binary != "" {
		return nil, notAvailable("the store is that of this tree, not of the program that is " +
			"measured")
	}
	url, err := r.MakeDatabase(ctx, database)
	if err != nil {
		return nil, err
	}
	err = rawstore.Prepare(ctx, url)
	return func(ctx context.Context) (report.Figures, error) {
		return storeCycle(ctx, r.Rig, url, r.tasks, labelled, searchable)
	}, err
}

func storeCycle(
	ctx context.Context, r *rig.Rig, url string, tasks int, labelled bool, searchable []string,
) (all report.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience(tasks))
	defer cancel()
	s, err := rawstore.Open(ctx, url, searchable...)
	if err != nil {
		return nil, err
	}
	s.Labelled = labelled
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
