package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The choice of a worker in a stage that was renamed meanwhile counts by the rule of the new name.
// If that doesn't allow it, the journal says so, and the same report again is no error.
func TestAChoiceInARenamedStage(t *testing.T) {
	for name, c := range map[string]struct{ next, stage, problem string }{
		"allowed": {"third", "third", ""},
		"not allowed": {"begin", "begin", `stage "first" was removed during the attempt, so the ` +
			`task goes on with "begin": next_stage "begin" is not allowed after stage "begin": it ` +
			`must be next_stage: "second" or next_stage: "third" or finish: true`},
		"finish": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			spec := looping()
			spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"})
			spec.Stages[0].Next = []string{"second", "third", asyncflow.NextFinish}
			b.put(spec.WithDefaults())
			id := b.submit(newTask(`0`))[0].ID
			l := b.leaseAll(b.known(), 1)[0]
			spec.Stages[0].Name = "begin"
			spec.Stages[1].Next[0] = "begin"
			spec.StageMapping = map[string]string{"first": "begin"}
			b.put(spec.WithDefaults())
			report := to(c.next, `1`)
			b.goTo(l, report)
			task := b.task(id)
			if c.next == "" {
				require.Equal(t, asyncflow.StatusSucceeded, task.Status)
			} else {
				require.Equal(t, []any{c.stage, c.problem}, []any{task.Stage, task.Error})
			}
			_, same, err := b.WrittenAs(t.Context(), b.known(), id, l.Seq, report)
			require.NoError(t, err)
			require.True(t, same)
		})
	}
}

// A snooze in a stage that is removed meanwhile counts as one.
func TestASnoozeInARemovedStage(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submit(newTask(`0`))
	l := b.leaseAll(b.known(), 1)[0]
	spec := twoStages()
	spec.Stages = spec.Stages[1:]
	spec.StageMapping = map[string]string{"first": "second"}
	b.put(spec)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed,
		FirstSent: b.Clock.Now(), RetryAfter: 1})
	require.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
	require.Equal(t, tallied{Submitted: 1, Snoozes: 1}, first(b.tallies(tenant, "pipe")))
}
