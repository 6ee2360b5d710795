package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Those who end the chores wait for the ones under way; later ones don't begin, also
// those that a timer was set for.
func TestChoresEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c chores
		r := newRates(func() int { return 1 }, func() bool { return false })
		key := rateKey{"acme", "pipe", "k"}
		r.take(key, 1, time.Now(), 1)
		var began, late bool
		r.after(key, time.Second, func() { c.do(func() { late = true }) })
		release, ended := make(chan struct{}), make(chan struct{})
		c.start(func() {
			began = true
			<-release
		})
		go func() {
			c.end()
			close(ended)
		}()
		synctest.Wait()
		require.True(t, began)
		select {
		case <-ended:
			t.Fatal("one is under way")
		default:
		}
		c.start(func() { late = true })
		close(release)
		<-ended
		time.Sleep(time.Minute) // of the bubble's clock
		require.False(t, late)
	})
}
