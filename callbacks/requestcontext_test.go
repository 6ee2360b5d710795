package callbacks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// It keeps what package context promises, also to the contexts made from it.
func TestRequestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	over := context.DeadlineExceeded
	for name, c := range map[string]struct {
		asked bool // for Done, before it ends
		end   func(cancel func(), r *requestContext)
		want  error
	}{
		"time is up":               {false, func(func(), *requestContext) { time.Sleep(time.Minute) }, over},
		"time is up, awaited":      {true, func(func(), *requestContext) { time.Sleep(time.Minute) }, over},
		"the caller ends":          {false, func(cancel func(), _ *requestContext) { cancel() }, context.Canceled},
		"the caller ends, awaited": {true, func(cancel func(), _ *requestContext) { cancel() }, context.Canceled},
		"it is over, awaited":      {true, func(_ func(), r *requestContext) { r.end() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
				defer cancel()
				r := newRequestContext(caller, time.Minute)
				defer r.end()
				deadline, ok := r.Deadline()
				require.True(t, ok)
				require.Equal(t, time.Minute, time.Until(deadline))
				require.Equal(t, 7, r.Value(key{}))
				require.NoError(t, r.Err())
				var derived context.Context = r
				if c.asked {
					var cancel context.CancelFunc
					derived, cancel = context.WithCancel(r)
					defer cancel()
					require.NoError(t, derived.Err())
				}
				c.end(cancel, r)
				synctest.Wait()
				require.Equal(t, c.want, r.Err())
				require.Equal(t, c.want, derived.Err())
				<-r.Done()
				<-derived.Done()
			})
		})
	}
}

// The caller's deadline counts where it is the earlier one.
func TestRequestContextOfADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, callers := range []time.Duration{time.Second, time.Hour} {
			least := min(callers, time.Minute)
			caller, cancel := context.WithTimeout(t.Context(), callers)
			defer cancel()
			r := newRequestContext(caller, time.Minute)
			defer r.end()
			deadline, _ := r.Deadline()
			require.Equal(t, least, time.Until(deadline))
			time.Sleep(least)
			synctest.Wait()
			require.ErrorIs(t, r.Err(), context.DeadlineExceeded)
		}
	})
}
