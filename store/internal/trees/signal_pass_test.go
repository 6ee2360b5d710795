package trees

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A link of the first pass of a task that came to its wait 15,000 times is looked up by one walk
// through the journal: anybody who has such a link may open it again and again.
func TestRoundOfALongJournalIsOneWalk(t *testing.T) {
	t.Parallel()
	var v Visits
	for seq := 1; seq < 30_000; seq += 2 {
		v = append(v, visitRow{seq: seq, stage: "ask", outcome: asyncflow.OutcomeDone},
			visitRow{seq: seq + 1, stage: "wait", outcome: asyncflow.OutcomeSignalled})
	}
	round, signalled := v.Round(nil, "wait", 0)
	require.Equal(t, []int{0, 2}, []int{round, signalled})
	round, signalled = v.Round(nil, "wait", 20_000)
	require.Equal(t, []int{20_000, 20_002}, []int{round, signalled})
	fastest := func(n int) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			v[:n].Round(nil, "wait", 0)
			best = min(best, time.Since(began))
		}
		return best
	}
	// Of ten times as many rows, pairs are a hundred times as many.
	require.Less(t, fastest(30_000), 40*fastest(3000))
	t.Log(fastest(30_000))
}
