package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// waitingType puts a stage that waits for a signal between two others.
func waitingType() asyncflow.TaskType {
	return asyncflow.TaskType{Name: "orders", Stages: []asyncflow.Stage{{Name: "ask"},
		{Name: "wait", Mode: asyncflow.ModeWait, Wait: &asyncflow.Wait{Signal: "approved",
			Timeout:   asyncflow.NewDuration(time.Hour),
			OnTimeout: &asyncflow.StageFailure{Next: "escalate"}}},
		{Name: "ship", Next: []string{asyncflow.NextFinish}}, {Name: "escalate"}}}.WithDefaults()
}

func TestDecisionsOnWaits(t *testing.T) {
	t.Parallel()
	spec := waitingType()
	require.NoError(t, spec.Validate())
	now := time.Now()
	l := asyncflow.Lease{Stage: "wait", Attempt: 1, OrderTime: now}
	decide := func(o asyncflow.Outcome) asyncflow.Verdict {
		return asyncflow.Decide(spec, l, o, now)
	}
	v := decide(asyncflow.Outcome{Kind: asyncflow.OutcomeAwaits})
	require.Equal(t, []any{asyncflow.Park, asyncflow.WaitSignal, asyncflow.StatusWaiting},
		[]any{v.Kind, v.Reason, v.Status(now)})
	require.Equal(t, "ship", decide(asyncflow.Signalled("approved", nil)).Stage)
	require.Equal(t, "escalate", decide(spec.Stages[1].Wait.TimedOut()).Stage)
	v = decide(asyncflow.Outcome{Kind: asyncflow.OutcomeLost})
	require.Equal(t, []any{asyncflow.Return, 1}, []any{v.Kind, v.Attempt}, "it costs no attempt")
	spec.Stages[1].Wait.OnTimeout = nil
	require.Equal(t, asyncflow.Fail, decide(spec.Stages[1].Wait.TimedOut()).Kind)
	l.Options.Child = &asyncflow.Child{}
	require.Equal(t, asyncflow.Succeed, decide(asyncflow.Signalled("approved", nil)).Kind,
		"the next stages are its parent's")
}

func TestWaitsThatChange(t *testing.T) {
	t.Parallel()
	old := waitingType()
	for name, c := range map[string]struct {
		change func(*asyncflow.TaskType)
		want   bool
	}{
		"nothing": {func(*asyncflow.TaskType) {}, false},
		"its time": {func(t *asyncflow.TaskType) {
			t.Stages[1].Wait.Timeout = asyncflow.NewDuration(time.Minute)
		}, false},
		"its signal": {func(t *asyncflow.TaskType) { t.Stages[1].Wait.Signal = "paid" }, true},
		"its mode":   {func(t *asyncflow.TaskType) { t.Stages[1] = asyncflow.Stage{Name: "wait"} }, true},
		"its name": {func(t *asyncflow.TaskType) {
			t.Stages[1].Name = "decision"
			t.StageMapping = map[string]string{"wait": "decision"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := waitingType()
			c.change(&changed)
			require.Equal(t, c.want, changed.ChangesWaits(old))
		})
	}
}
