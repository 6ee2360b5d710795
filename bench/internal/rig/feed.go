package rig

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// ahead is the number of submitted tasks that may be on their way to the worker.
const ahead = 4000

// Feed submits batches until a time, as fast as they are done. It passes the time that each call
// took to took, which may be nil.
func (r *Rig) Feed(
	ctx context.Context, t *TaskType, end time.Time, took func(time.Duration),
) error {
	first := r.next
	var arrived, submitted atomic.Int64
	arrived.Store(int64(first))
	submitted.Store(int64(first))
	g, running := errgroup.WithContext(ctx)
	for range Submitters {
		g.Go(func() error {
			for time.Now().Before(end) {
				if submitted.Load()-arrived.Load() > ahead {
					time.Sleep(time.Millisecond)
					continue
				}
				start := time.Now()
				n := int(submitted.Add(BatchSize)) - BatchSize
				if err := r.API.SubmitBatch(running, t.Name, n, ""); err != nil {
					return err
				}
				if took != nil {
					took(time.Since(start))
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		return Poll(running, 10*time.Millisecond, func() (bool, error) {
			c, err := r.WorkerCounts(running)
			arrived.Store(int64(c.Distinct))
			return !time.Now().Before(end), err
		})
	})
	err := g.Wait()
	r.Take(t, int(submitted.Load())-first)
	return err
}

// Finish waits until all that was fed is done, and checks it.
func (r *Rig) Finish(ctx context.Context, t *TaskType) error {
	ctx, cancel := context.WithTimeout(ctx, Patience(ahead))
	defer cancel()
	if err := r.awaitFinal(ctx, t, r.next); err != nil {
		return err
	}
	return r.checkFinals(ctx, t)
}
