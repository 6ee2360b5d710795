package news

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long the round trips take, and however fast the clocks drift apart, a node is never
// ahead, and is behind by at most its shortest round trip and the drift.
func TestClockIsNeverAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &Clock{}
		truth, at := int64(1e18), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "measurements") {
			pause := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "pause"))
			at += pause
			truth += rapid.Int64Range(-int64(pause)/2001, int64(pause)/2001).Draw(t, "drift")
			if rapid.IntRange(0, 20).Draw(t, "set back") == 0 {
				truth -= int64(time.Hour)
			}
			trip := rapid.Int64Range(0, int64(time.Second)).Draw(t, "trip")
			least := truth - rapid.Int64Range(0, trip).Draw(t, "way back")
			c.adopt(at, clockSample{least, least + trip})
			offset := c.offset.Load()
			require.LessOrEqual(t, offset, truth)
			require.GreaterOrEqual(t, offset, least)
		}
	})
}
