package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// ahead is how many tasks may be submitted that have not arrived.
const ahead = 4000

// feed submits batches until a time, as fast as they are done. Each call is told of with
// what it took, if anybody wants to know.
func (b *bench) feed(ctx context.Context, p *pipe, end time.Time, took func(time.Duration)) error {
	first := b.next
	var arrived, submitted atomic.Int64
	arrived.Store(int64(first))
	submitted.Store(int64(first))
	g, running := errgroup.WithContext(ctx)
	for range submitters {
		g.Go(func() error {
			for time.Now().Before(end) {
				if submitted.Load()-arrived.Load() > ahead {
					time.Sleep(time.Millisecond)
					continue
				}
				start := time.Now()
				if err := b.api.submitBatch(running, p.name, int(submitted.Add(batchSize))-batchSize, ""); err != nil {
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
		return poll(running, 10*time.Millisecond, func() (bool, error) {
			var c counts
			err := b.sink.get(running, countPath, &c)
			arrived.Store(int64(c.Distinct))
			return !time.Now().Before(end), err
		})
	})
	err := g.Wait()
	b.take(p, int(submitted.Load())-first)
	return err
}

// finish waits until all that was fed is done, and checks it.
func (b *bench) finish(ctx context.Context, p *pipe) error {
	ctx, cancel := context.WithTimeout(ctx, ahead*slowest+slack)
	defer cancel()
	if err := b.awaitFinal(ctx, p, b.next); err != nil {
		return err
	}
	return b.checkFinals(ctx, p)
}
