package pool

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// work makes a pool do n things at once.
func work(p *Pool, n int) {
	done := make(chan struct{})
	for range n {
		p.Do(func() { <-done })
	}
	synctest.Wait()
	close(done)
	synctest.Wait()
}

// resting returns the channels of the idle goroutines.
func (p *Pool) resting() []chan func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.idle)
}

// The pool reuses goroutines, the one that was busy last first. Goroutines that aren't needed end
// after a while, and all of them when the pool is dismissed. One that outlives the test fails it.
func TestPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{}
		work(p, 5)
		require.Len(t, p.resting(), 5)
		last := p.resting()[4]
		busy := make(chan struct{})
		p.Do(func() { <-busy })
		require.NotContains(t, p.resting(), last)
		close(busy)
		synctest.Wait()
		require.Equal(t, last, p.resting()[4])
		work(p, 3)
		work(p, 5)
		require.Len(t, p.resting(), 5, "they are the same ones")

		pass := func() {
			time.Sleep(poolLook)
			synctest.Wait()
		}
		pass() // from here on it is known that five are there
		for range 3 {
			work(p, 2)
			pass()
			require.Len(t, p.resting(), 2, "three had nothing to do all the while")
		}
		pass()
		require.Empty(t, p.resting())

		work(p, 4)
		busy = make(chan struct{})
		p.Do(func() { <-busy })
		p.Dismiss()
		synctest.Wait()
		require.Empty(t, p.resting())
		close(busy)
		ran := false
		p.Do(func() { ran = true })
		synctest.Wait()
		require.True(t, ran, "what is still to be done is done")
		pass()
	})
}
