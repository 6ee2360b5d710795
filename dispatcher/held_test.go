package dispatcher

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store"
)

// Tasks that take as long as the quickest ones aren't queued, however many there are; of
// those that take longer as many are as there would be less without that.
func TestQueued(t *testing.T) {
	const ms = time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	for name, c := range map[string]struct {
		took        func(i int) time.Duration
		least, most int // of 100
	}{
		"nothing has ended": {nil, 0, 0},
		"all alike":         {func(int) time.Duration { return 50 * ms }, 0, 6},
		"the clock is set at first": {func(i int) time.Duration {
			if i == 0 {
				return -2 * ms
			}
			return 5 * ms
		}, 0, 6},
		"a little noise":               {func(int) time.Duration { return 50*ms + upTo(5*ms) }, 0, 10},
		"they take turns":              {func(int) time.Duration { return ms + upTo(20*ms) }, 60, 99},
		"slow ones that take turns":    {func(int) time.Duration { return 50*ms + upTo(100*ms) }, 25, 70},
		"one in a hundred is quicker":  {func(i int) time.Duration { return 50*ms - 49*ms*time.Duration(1-min(1, i%100)) }, 0, 25},
		"slower than they used to be":  {func(i int) time.Duration { return time.Duration(1+min(1, i/1000)*49) * ms }, 0, 5},
		"quicker than they used to be": {func(i int) time.Duration { return time.Duration(50-min(1, i/1000)*49) * ms }, 0, 5},
		"the last ones were slow":      {func(i int) time.Duration { return time.Duration(1+min(1, i/5080)*49) * ms }, 40, 99},
	} {
		t.Run(name, func(t *testing.T) {
			h, key := newHeld(), store.TypeKey{Tenant: "acme", Type: "pipe"}
			for i := 0; c.took != nil && i < 5100; i++ {
				h.ended(key, c.took(i), time.Time{})
			}
			n := h.queued(key, 100)
			assert.GreaterOrEqual(t, n, c.least, fmt.Sprint(h.lately[key]))
			assert.LessOrEqual(t, n, c.most, fmt.Sprint(h.lately[key]))
			assert.InDelta(t, 3*n, h.queued(key, 300), 3)
		})
	}
}
