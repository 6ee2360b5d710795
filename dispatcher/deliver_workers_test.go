package dispatcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// work has a crew do so many things at once.
func work(c *crew, n int) {
	done := make(chan struct{})
	for range n {
		c.do(func() { <-done })
	}
	synctest.Wait()
	close(done)
	synctest.Wait()
}

// resting returns those that have nothing to do.
func (c *crew) resting() []chan func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.idle)
}

// Goroutines are used again, the one that was busy last first; those that nobody needs end
// after a while, and all of them when they are dismissed: one that hasn't ended when the test
// does fails it.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crew{}
		work(c, 5)
		require.Len(t, c.resting(), 5)
		last := c.resting()[4]
		busy := make(chan struct{})
		c.do(func() { <-busy })
		require.NotContains(t, c.resting(), last)
		close(busy)
		synctest.Wait()
		require.Equal(t, last, c.resting()[4])
		work(c, 3)
		work(c, 5)
		require.Len(t, c.resting(), 5, "they are the same ones")

		pass := func() {
			time.Sleep(crewLook)
			synctest.Wait()
		}
		pass() // from here on it is known that five are there
		for range 3 {
			work(c, 2)
			pass()
			require.Len(t, c.resting(), 2, "three had nothing to do all the while")
		}
		pass()
		require.Empty(t, c.resting())

		work(c, 4)
		busy = make(chan struct{})
		c.do(func() { <-busy })
		c.dismiss()
		synctest.Wait()
		require.Empty(t, c.resting())
		close(busy)
		ran := false
		c.do(func() { ran = true })
		synctest.Wait()
		require.True(t, ran, "what is still to be done is done")
		pass()
	})
}
