package asyncflow_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The drawing of the states shows all transitions there are, and no others.
func TestDiagramOfStates(t *testing.T) {
	t.Parallel()
	_, drawing, found := strings.Cut(readText(t, "docs/state-machine.md"),
		"```mermaid\nstateDiagram-v2\n")
	require.True(t, found)
	drawing, _, _ = strings.Cut(drawing, "```")
	var drawn []asyncflow.Transition
	for _, m := range regexp.MustCompile(
		`(?m)^\s*(\S+) --> (\S+): (.+)$`).FindAllStringSubmatch(drawing, -1) {
		from := asyncflow.Status(strings.TrimPrefix(m[1], "[*]"))
		for act := range strings.SplitSeq(m[3], ", ") {
			drawn = append(drawn, asyncflow.Transition{From: from, Action: act,
				To: asyncflow.Status(m[2])})
		}
	}
	require.ElementsMatch(t, asyncflow.Transitions, drawn)
}

// Every verdict on every outcome is a transition of the table.
func TestVerdictsAreTransitions(t *testing.T) {
	t.Parallel()
	for _, kind := range []asyncflow.OutcomeKind{asyncflow.OutcomeDone, asyncflow.OutcomeFailed,
		asyncflow.OutcomeRejected,
		asyncflow.OutcomeLost, asyncflow.OutcomeReleased, asyncflow.OutcomeCancelled} {
		t.Run(string(kind), func(t *testing.T) {
			for _, stage := range []string{"inspect", "resize", "report", "gone"} {
				for _, attempt := range []int{1, 2, 3} {
					for _, pause := range []float64{-1, -3600} {
						retry := &asyncflow.RetryPolicy{Interval: asyncflow.Seconds(pause)}
						l := asyncflow.Lease{Stage: stage, Attempt: attempt, OrderTime: now,
							Options: asyncflow.Options{Retry: retry}}
						v := asyncflow.Decide(pipeline(), l, asyncflow.Outcome{Kind: kind}, now)
						step := asyncflow.Transition{From: asyncflow.StatusRunning,
							Action: string(v.Kind),
							To:     v.Status(now)}
						require.True(t, slices.Contains(asyncflow.Transitions, step), "%+v", step)
					}
				}
			}
		})
	}
}

// There is a transition from every status that isn't final, and every status can be reached.
func TestTransitionsAreConnected(t *testing.T) {
	t.Parallel()
	for _, status := range asyncflow.Statuses {
		require.True(t, slices.ContainsFunc(asyncflow.Transitions,
			func(s asyncflow.Transition) bool {
				return s.To == status
			}), "nothing leads to %s", status)
		moves := slices.ContainsFunc(asyncflow.Transitions,
			func(s asyncflow.Transition) bool { return s.From == status })
		require.Equal(t, status != asyncflow.StatusSucceeded, moves, status)
	}
}
