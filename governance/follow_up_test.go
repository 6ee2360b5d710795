package governance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/governance"
)

// A tenant with much to do takes turns with the others, and one with a failed step waits for the
// next run.
func TestFollowUpsTakeTurns(t *testing.T) {
	t.Parallel()
	var steps []string
	step := func(_ context.Context, tenant string) (int, bool, error) {
		steps = append(steps, tenant)
		if tenant == "bad" {
			return 0, true, errors.New("no")
		}
		return 1, tenant == "busy", nil
	}
	over := func() bool { return len(steps) >= 5 }
	n, err := governance.InRounds(t.Context(), []string{"bad", "busy", "calm"}, over, step)
	assert.EqualError(t, err, "no")
	assert.Equal(t, []string{"bad", "busy", "calm", "busy", "busy"}, steps)
	assert.Equal(t, 4, n)
}
