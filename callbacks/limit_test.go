package callbacks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The reason for a missing answer names what ended the request.
func TestReason(t *testing.T) {
	t.Parallel()
	other := errors.New("connection refused")
	for name, c := range map[string]struct {
		caller time.Duration // the timeout of the caller's context; 0: none
		stop   bool          // the caller's context is cancelled
		wait   time.Duration
		err    error
		want   string
	}{
		"in time":         {0, false, 0, other, "connection refused"},
		"at the deadline": {0, false, time.Minute, other, "no answer within 1m0s"},
		"at the caller's deadline": {time.Second, false, time.Second, other,
			"no answer within 1m0s"},
		"the node stops": {0, true, 0, other, "the node stopped before the answer came"},
		"a private address": {0, false, time.Minute, fmt.Errorf("dial: %w", errPrivate),
			errPrivate.Error()},
		"a rule": {0, true, 0, fmt.Errorf("dial: %w", errRule), errRule.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.caller > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.caller)
					defer cancel()
				}
				l := newLimit(time.Minute)
				require.False(t, l.hasEnded(ctx))
				if c.stop {
					cancel()
				}
				time.Sleep(c.wait)
				synctest.Wait()
				require.Equal(t, c.stop || c.wait > 0, l.hasEnded(ctx))
				require.EqualError(t, l.reason(ctx, c.err), c.want)
			})
		})
	}
}
