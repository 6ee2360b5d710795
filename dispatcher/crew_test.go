package dispatcher

import (
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

func (c *crew) resting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

// Goroutines are used again, the one that was busy last first; those that nobody needs end
// after a while, and all of them when they are dismissed: one that hasn't ended when the test
// does fails it.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &crew{}
		work(c, 5)
		require.Equal(t, 5, c.resting())
		last := c.idle[4]
		c.do(func() {})
		require.NotContains(t, c.idle, last)
		synctest.Wait()
		require.Equal(t, last, c.idle[4])
		work(c, 3)
		work(c, 5)
		require.Equal(t, 5, c.resting(), "they are the same ones")

		pass := func() {
			time.Sleep(crewLook)
			synctest.Wait()
		}
		pass() // from here on it is known that five are there
		for range 3 {
			work(c, 2)
			pass()
			require.Equal(t, 2, c.resting(), "three had nothing to do all the while")
		}
		pass()
		require.Zero(t, c.resting())

		work(c, 4)
		busy := make(chan struct{})
		c.do(func() { <-busy })
		c.dismiss()
		synctest.Wait()
		require.Zero(t, c.resting())
		close(busy)
		ran := false
		c.do(func() { ran = true })
		synctest.Wait()
		require.True(t, ran, "what is still to be done is done")
		pass()
	})
}
