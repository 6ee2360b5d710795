package trees

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A link of the first pass of a task with a long journal is looked up by one walk through it:
// anybody who has such a link may open it again and again.
func TestRoundOfALongJournalIsOneWalk(t *testing.T) {
	t.Parallel()
	ask := asyncflow.Stage{Name: "ask"}
	wait := asyncflow.Stage{Name: "wait", Mode: asyncflow.ModeWait, Wait: &asyncflow.Wait{
		Signal: "s", Links: &asyncflow.Links{Decisions: []string{"yes"}}}}
	kind := &config.Type{StoredType: config.StoredType{
		TaskType: asyncflow.TaskType{Stages: []asyncflow.Stage{ask, wait}}}}
	passed := visitRow{stage: "ask", outcome: asyncflow.OutcomeDone}
	signalled := visitRow{stage: "wait", outcome: asyncflow.OutcomeSignalled}
	redriven := visitRow{stage: "wait", outcome: asyncflow.OutcomeRedriven}
	const n = 30_000
	for name, c := range map[string]struct {
		odd, even visitRow
		found     []int // the round of the first pass, and its signal
	}{
		"a loop":                {passed, signalled, []int{0, 2}},
		"redrives to the wait":  {redriven, signalled, []int{n - 1, n}},
		"no signal in any pass": {passed, passed, []int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			v := Visits{}
			for seq := 1; seq <= n; seq += 2 {
				odd, even := c.odd, c.even
				if seq == 1 {
					odd, even = passed, signalled
				}
				if name == "no signal in any pass" {
					even = passed
				}
				odd.seq, even.seq = seq, seq+1
				v = append(v, odd, even)
			}
			round, taken := v.Round(kind, "wait", 0)
			require.Equal(t, c.found, []int{round, taken})
			fastest := func(n int) time.Duration {
				best := time.Hour
				for range 5 {
					began := time.Now()
					v[:n].Round(kind, "wait", 0)
					best = min(best, time.Since(began))
				}
				return best
			}
			// Of ten times as many rows, pairs are a hundred times as many.
			require.Less(t, fastest(n), 40*fastest(n/10))
		})
	}
}
