package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// A late report for a task that was started again doesn't count, whatever it chooses. Nothing is
// said about the choice: the worker can't mend it.
func TestALateChoiceForATaskThatGoesOn(t *testing.T) {
	b := setup(t)
	b.put(looping())
	id := b.submit(newTask(`0`))[0].ID
	b.goTo(b.leaseAll(b.known(), 1)[0], to("second", `1`))
	l := b.leaseAll(b.known(), 1)[0]
	b.loseAll(b.known(), 1)
	again := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, 2, again.Attempt)
	for _, next := range []string{"first", "second", "gone"} {
		_, taken, err := b.SettleLate(t.Context(), b.known(), id, l.Seq, to(next, `2`))
		require.NoError(t, err)
		require.False(t, taken)
	}
	b.goTo(again, to("", `3`))
	require.Equal(t, asyncflow.StatusSucceeded, b.task(id).Status)
	b.checkTokens("pipe")
}
