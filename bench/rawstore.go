package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

const (
	storeType     = "bench"
	storeDatabase = "store" // beside the node's, which has no part in this
	storeSlots    = 512     // tasks held at once, as by a node
	storeLease    = 200     // tasks of a lease
)

// rawStore is a store in this process, without HTTP and workers.
type rawStore struct {
	*store.Store
	committer *dispatcher.Committer
	taskType  *store.Type
	stop      func() error
	leased    func(took time.Duration, leases []asyncflow.Lease) // after each lease
}

// prepareStore makes its database, once.
func (b *bench) prepareStore(ctx context.Context) error {
	if err := b.postgres.EnsureDatabase(ctx, storeDatabase); err != nil {
		return err
	}
	url := b.postgres.URL(storeDatabase)
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant)
	return err
}

func (b *bench) openStore(ctx context.Context) (_ *rawStore, err error) {
	s, err := store.Open(ctx, store.Config{URL: b.postgres.URL(storeDatabase), Node: "bench", Notify: true})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	committer := dispatcher.NewCommitter(s, nil)
	r := &rawStore{Store: s, committer: committer, leased: func(time.Duration, []asyncflow.Lease) {}, stop: func() error {
		committer.Close()
		cancel()
		defer s.Close()
		return <-ended
	}}
	t := asyncflow.TaskType{Name: storeType, Stages: []asyncflow.Stage{{Name: "call"}}}.WithDefaults()
	if _, _, err = s.PutTaskType(ctx, tenant, t); err == nil {
		r.taskType, err = s.Catalog.Type(tenant, storeType)
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// beginStore: the store of this tree, in this process. It tells nothing of another program.
func beginStore(ctx context.Context, r *rounds) (measure, error) {
	if r.bench.given {
		return nil, notAvailable("the store is that of this tree, not of the program that is measured")
	}
	return func(ctx context.Context) (figures, error) { return r.rawStoreCycle(ctx, r.tasks) }, r.prepareStore(ctx)
}

// rawStoreCycle measures what the database allows here: submit, lease and settle
// at once, with nothing in between.
func (b *bench) rawStoreCycle(ctx context.Context, tasks int) (_ figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(tasks)*slowest+slack)
	defer cancel()
	s, err := b.openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := b.db.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := b.usage()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.cycle(ctx, tasks); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := b.usage()
	if err != nil {
		return nil, err
	}
	u := after.since(before)
	return figures{
		{"rate", "Rate", "tasks/s", float64(tasks) / elapsed.Seconds()},
		{"cpu_submitter", "CPU of its process", "µs/task", micros(u.submitter, tasks)},
		{"cpu_postgres", "CPU of Postgres", "µs/task", micros(u.postgres, tasks)},
		{"cpu_all", "CPU of both", "µs/task", micros(u.submitter+u.postgres, tasks)},
	}, nil
}

// cycle submits tasks, and leases and settles them meanwhile.
func (s *rawStore) cycle(ctx context.Context, tasks int) error {
	g, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for range submitters {
		g.Go(func() error { return s.submitAll(ctx, &taken, tasks) })
	}
	g.Go(func() error { return s.leaseAll(ctx, tasks) })
	return g.Wait()
}

// submitAll submits batches until all tasks are taken.
func (s *rawStore) submitAll(ctx context.Context, taken *atomic.Int64, tasks int) error {
	for ctx.Err() == nil {
		first := int(taken.Add(batchSize)) - batchSize
		if first >= tasks {
			return nil
		}
		if err := s.submitBatch(ctx, first); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// submitBatch submits the tasks of the numbers from first on.
func (s *rawStore) submitBatch(ctx context.Context, first int) error {
	batch := make([]asyncflow.NewTask, batchSize)
	for i := range batch {
		batch[i] = asyncflow.NewTask{Type: storeType, Context: json.RawMessage(appendContext(nil, first+i, contextBytes))}
	}
	for _, r := range s.committer.Submit(ctx, tenant, batch) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// leaseAll leases and settles until all tasks are settled. Like a node it holds
// no more than its slots.
func (s *rawStore) leaseAll(ctx context.Context, tasks int) error {
	slots := semaphore.NewWeighted(storeSlots)
	var failed atomic.Pointer[error]
	for left := tasks; left > 0 && failed.Load() == nil; {
		if err := slots.Acquire(ctx, storeLease); err != nil {
			return err
		}
		start := time.Now()
		leases, _, err := s.Lease(ctx, s.taskType, storeLease)
		if err != nil {
			return err
		}
		s.leased(time.Since(start), leases)
		slots.Release(int64(storeLease - len(leases)))
		left -= len(leases)
		for _, l := range leases {
			s.settle(l, slots, &failed)
		}
		if len(leases) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := slots.Acquire(ctx, storeSlots); err != nil { // all are settled
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *rawStore) settle(l asyncflow.Lease, slots *semaphore.Weighted, failed *atomic.Pointer[error]) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200, Duration: time.Millisecond, Endpoint: "http://127.0.0.1:12345" + deliveryPath}
	settlement := asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(s.taskType.TaskType, l, o, s.Clock.Now())}
	s.committer.Settle(tenant, settlement, func(r store.Settled) {
		if r.Err != nil || r.Stale {
			err := fmt.Errorf("broken: settling %s: stale %t: %w", l.ID, r.Stale, r.Err)
			failed.Store(&err)
		}
		slots.Release(1)
	})
}
