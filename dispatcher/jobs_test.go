package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/dispatcher/internal/rates"
)

// end waits for the jobs under way. Later ones don't begin, nor do those that a timer was set for.
func TestJobsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j jobs
		r := rates.New(func() int { return 1 }, func() bool { return false })
		key := rates.Key{Tenant: "acme", Scope: "pipe", Name: "k"}
		r.Spend(key, 1, time.Now(), 1)
		var began, late bool
		r.After(key, time.Second, func() { j.do(func() { late = true }) })
		release, ended := make(chan struct{}), make(chan struct{})
		j.start(func() {
			began = true
			<-release
		})
		go func() {
			j.end()
			close(ended)
		}()
		synctest.Wait()
		require.True(t, began)
		select {
		case <-ended:
			t.Fatal("one is under way")
		default:
		}
		j.start(func() { late = true })
		close(release)
		<-ended
		time.Sleep(time.Minute) // of the bubble's clock
		require.False(t, late)
	})
}
