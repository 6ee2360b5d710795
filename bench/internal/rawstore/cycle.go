package rawstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

const (
	slots     = 512 // tasks that are leased at once
	leaseSize = 200 // tasks of a lease
)

// Cycle submits tasks as fast as it can, and leases and settles them meanwhile.
func (s *Store) Cycle(ctx context.Context, tasks int) error {
	g, ctx := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for range rig.Submitters {
		g.Go(func() error { return s.submitAll(ctx, &taken, tasks) })
	}
	g.Go(func() error { return s.LeaseAll(ctx, tasks) })
	return g.Wait()
}

// submitAll submits batches until all tasks are taken.
func (s *Store) submitAll(ctx context.Context, taken *atomic.Int64, tasks int) error {
	for ctx.Err() == nil {
		first := int(taken.Add(rig.BatchSize)) - rig.BatchSize
		if first >= tasks {
			return nil
		}
		if err := s.submit(ctx, first); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// SubmitAt submits batches at a rate, in tasks a second, until ctx ends.
func (s *Store) SubmitAt(ctx context.Context, rate int) error {
	var sent atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range rig.Submitters {
		g.Go(func() error {
			for {
				n := sent.Add(rig.BatchSize) - rig.BatchSize
				due := start.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(due)):
				}
				if err := s.submit(ctx, int(n)); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// LeaseAll leases and settles until all tasks are settled.
func (s *Store) LeaseAll(ctx context.Context, tasks int) error {
	free := semaphore.NewWeighted(slots)
	var failed atomic.Pointer[error]
	for left := tasks; left > 0 && failed.Load() == nil; {
		if err := free.Acquire(ctx, leaseSize); err != nil {
			return err
		}
		start := time.Now()
		leases, err := s.lease(ctx, leaseSize)
		if err != nil {
			return err
		}
		if s.Leased != nil {
			s.Leased(time.Since(start), leases)
		}
		free.Release(int64(leaseSize - len(leases)))
		left -= len(leases)
		for _, l := range leases {
			s.settle(l, settled(l, free, &failed))
		}
		if len(leases) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := free.Acquire(ctx, slots); err != nil { // all are settled
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// settled returns what to do once a lease is settled: note an error, and free its slot.
func settled(
	l asyncflow.Lease, free *semaphore.Weighted, failed *atomic.Pointer[error],
) func(error) {
	return func(err error) {
		if err != nil {
			err = fmt.Errorf("broken: settling %s: %w", l.ID, err)
			failed.Store(&err)
		}
		free.Release(1)
	}
}
