package news

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long the round trips take, and however fast the clocks drift apart: a measurement is
// never ahead, and behind by at most its shortest round trip and the drift. The node's time comes
// to it without a step back, unless the database's clock was set back. Until then it may be ahead
// by what the clocks drifted apart between two measurements.
func TestClockIsNeverAheadAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := NewClock(nil)
		truth, at, longest := int64(1e18), time.Duration(0), time.Duration(0)
		c.adopt(at, clockSample{truth, truth})
		now := func() int64 { return c.offset.Load().after(at) + int64(at) }
		for range rapid.IntRange(1, 50).Draw(t, "measurements") {
			pause := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "pause"))
			earlier := now()
			at += pause
			longest = max(longest, min(pause, 2*ClockEvery))
			most := int64(min(pause, 2*ClockEvery)) / 2001
			truth += rapid.Int64Range(-most, most).Draw(t, "drift")
			setBack := rapid.IntRange(0, 20).Draw(t, "set back") == 0
			if setBack {
				truth -= int64(time.Hour)
			}
			before := now()
			require.GreaterOrEqual(t, before, earlier)
			trip := rapid.Int64Range(0, int64(time.Second)).Draw(t, "trip")
			least := truth - rapid.Int64Range(0, trip).Draw(t, "way back")
			c.adopt(at, clockSample{least, least + trip})
			measured := c.offset.Load().nanos
			require.LessOrEqual(t, measured, truth)
			require.GreaterOrEqual(t, measured, least)
			require.LessOrEqual(t, now()-int64(at)-truth, drifted(longest)+1)
			if !setBack {
				require.GreaterOrEqual(t, now(), before, "what was due is due no more")
			}
		}
	})
}

// After ten minutes without a measurement another server answers, whose clock is a quarter of a
// second behind: the node's time is that server's at once.
func TestClockAfterAnOutage(t *testing.T) {
	t.Parallel()
	c := NewClock(nil)
	c.adopt(0, clockSample{1e18, 1e18})
	at := 10 * time.Minute
	truth := int64(1e18 - 250*time.Millisecond)
	c.adopt(at, clockSample{truth - int64(time.Millisecond), truth})
	require.LessOrEqual(t, c.offset.Load().after(at), truth+drifted(2*ClockEvery))
}
