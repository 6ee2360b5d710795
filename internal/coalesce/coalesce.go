// Package coalesce bounds the work for calls that anyone may make: all callers share one run of
// it at a time.
package coalesce

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// pauseFactor is how many times as long as a run the pause after it is: at most a quarter of
	// the time is spent on runs, however many ask.
	pauseFactor = 3
	// maxPause bounds the pause.
	maxPause = time.Second
)

// Runs makes a value for all that ask for it. It is safe for concurrent use.
type Runs[T any] struct {
	run     func(context.Context) (T, error)
	timeout time.Duration // of one run

	mu      sync.Mutex
	running bool
	next    *result[T] // of the next run; nil: nobody waits for one
}

// result is what one run made, once done is closed.
type result[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// New returns runs of a function that makes a value within a time.
func New[T any](timeout time.Duration, run func(context.Context) (T, error)) *Runs[T] {
	return &Runs[T]{run: run, timeout: timeout}
}

// Get returns the result of a run that began after the call. All who wait for that run share its
// value and must not change it. The error may also be that of ctx.
func (r *Runs[T]) Get(ctx context.Context) (T, error) {
	return r.join().wait(ctx)
}

func (r *result[T]) wait(ctx context.Context) (value T, err error) {
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// join returns the next run, which it sees to.
func (r *Runs[T]) join() *result[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &result[T]{done: make(chan struct{})}
	}
	if !r.running {
		r.running = true
		go r.runAll()
	}
	return r.next
}

// runAll runs as long as somebody waits for it.
func (r *Runs[T]) runAll() {
	for next := r.begin(); next != nil; next = r.begin() {
		began := time.Now()
		next.value, next.err = r.runOne()
		close(next.done)
		time.Sleep(min(pauseFactor*time.Since(began), maxPause))
	}
}

// begin takes the run that is waited for; nil: there is none.
func (r *Runs[T]) begin() *result[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next, r.running = nil, next != nil
	return next
}

// runOne runs once. A panic is an error: there is no caller above it to end.
func (r *Runs[T]) runOne() (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	return r.run(ctx)
}
