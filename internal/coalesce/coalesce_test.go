package coalesce_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/coalesce"
)

// However many ask while a run is under way, they share the one after it.
func TestCallersShareARun(t *testing.T) {
	t.Parallel()
	var runs, under, asked atomic.Int64
	begun, release := make(chan struct{}, 1), make(chan struct{})
	r := coalesce.New(time.Minute, func(context.Context) (int64, error) {
		assert.Equal(t, int64(1), under.Add(1), "one run at a time")
		defer under.Add(-1)
		begun <- struct{}{}
		<-release
		return runs.Add(1), nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		value, err := r.Get(t.Context())
		assert.Equal(t, int64(1), value)
		assert.NoError(t, err)
	})
	<-begun
	for range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waiting := r.Join()
			if asked.Add(1) == 1000 {
				close(release)
			}
			_, err := waiting(ctx)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	assert.Equal(t, int64(2), runs.Load())
}

// Errors and panics are those of all who waited; the next run begins anew.
func TestFailedRuns(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	r := coalesce.New(time.Minute, func(context.Context) (string, error) {
		switch n.Add(1) {
		case 1:
			return "", errors.New("no database")
		case 2:
			panic("at the disco")
		}
		return "well", nil
	})
	_, err := r.Get(t.Context())
	require.EqualError(t, err, "no database")
	_, err = r.Get(t.Context())
	require.ErrorContains(t, err, "panic: at the disco")
	value, err := r.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "well", value)
}

// A caller doesn't wait longer than it wants to, and a run not longer than it may.
func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	r := coalesce.New(time.Millisecond, func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	_, err := r.Get(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Get(ctx)
	require.Error(t, err)
}
