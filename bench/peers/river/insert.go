package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"
)

const (
	batchInserters  = 4
	batch           = 100 // jobs of an insert
	singleInserters = 64
)

// inserter inserts jobs: in batches of one kind, or one by one, each of any of the kinds.
type inserter struct {
	client *river.Client[pgx.Tx]
	singly bool
	rate   float64 // jobs a second, singly; 0: as many as possible
	kinds  int
	skewed bool // 80 % of the jobs are of 20 % of the kinds
}

// insert returns how long the inserts of single jobs took, added up.
func (in *inserter) insert(ctx context.Context, jobs int) (time.Duration, error) {
	switch {
	case in.rate > 0:
		return in.onSchedule(ctx, jobs)
	case in.singly:
		return in.each(ctx, jobs)
	}
	return 0, in.batches(ctx, jobs)
}

func (in *inserter) batches(ctx context.Context, jobs int) error {
	var taken atomic.Int64
	var g errgroup.Group
	for range batchInserters {
		g.Go(func() error {
			for {
				n := min(batch, jobs-(int(taken.Add(batch))-batch))
				if n <= 0 {
					return nil
				}
				params := make([]river.InsertManyParams, n)
				for i := range params {
					params[i].Args = in.args()
				}
				if _, err := in.client.InsertManyFast(ctx, params); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// each inserts one job after the other in many goroutines.
func (in *inserter) each(ctx context.Context, jobs int) (time.Duration, error) {
	var taken, inserting atomic.Int64
	var g errgroup.Group
	for range singleInserters {
		g.Go(func() error {
			for int(taken.Add(1)) <= jobs {
				if err := in.one(ctx, &inserting); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Duration(inserting.Load()), err
}

// onSchedule inserts jobs at the rate, whether or not earlier ones are inserted.
func (in *inserter) onSchedule(ctx context.Context, jobs int) (time.Duration, error) {
	var inserting atomic.Int64
	var g errgroup.Group
	start := time.Now()
	for i := range jobs {
		due := time.Duration(float64(i) / in.rate * float64(time.Second))
		time.Sleep(time.Until(start.Add(due)))
		g.Go(func() error { return in.one(ctx, &inserting) })
	}
	err := g.Wait()
	return time.Duration(inserting.Load()), err
}

func (in *inserter) one(ctx context.Context, inserting *atomic.Int64) error {
	start := time.Now()
	_, err := in.client.Insert(ctx, in.args(), nil)
	inserting.Add(int64(time.Since(start)))
	return err
}

// args returns the arguments of the next job.
func (in *inserter) args() args {
	first, kinds := 0, in.kinds
	if in.skewed {
		if rand.Float64() < 0.8 {
			kinds /= 5
		} else {
			first = kinds / 5
		}
	}
	return args{Pad: padding, kind: kindName(first + rand.IntN(kinds-first))}
}
