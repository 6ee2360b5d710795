package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestSubmitOrder(t *testing.T) {
	plain := pipeline()
	urgent := pipeline()
	urgent.Stages[0].Priority = 100
	priority := func(p ...int) asyncflow.Options { return asyncflow.Options{Priority: p} }

	parallel(t, map[string]struct {
		taskType asyncflow.TaskType
		task     asyncflow.NewTask
		want     time.Duration // from now
	}{
		"at once":               {plain, asyncflow.NewTask{}, 0},
		"priority of the stage": {urgent, asyncflow.NewTask{}, -100 * time.Second},
		"priority of the task": {plain, asyncflow.NewTask{Options: priority(60)},
			-60 * time.Second},
		"the task's beats the stage's": {urgent, asyncflow.NewTask{Options: priority(5)},
			-5 * time.Second},
		"a task's 0 beats the stage's": {urgent, asyncflow.NewTask{Options: priority(0)}, 0},
		"a list: the first stage's": {urgent, asyncflow.NewTask{Options: priority(7, 70, 700)},
			-7 * time.Second},
		"a year": {plain,
			asyncflow.NewTask{Options: priority(asyncflow.MaxPriority)}, -year},
		"delay": {plain, asyncflow.NewTask{Delay: asyncflow.NewDuration(time.Hour)},
			time.Hour},
		"delay ignores priority": {urgent,
			asyncflow.NewTask{Delay: asyncflow.NewDuration(time.Hour), Options: priority(60)},
			time.Hour},
		"run_at": {plain, asyncflow.NewTask{RunAt: now.Add(time.Hour)}, time.Hour},
		"run_at ignores priority": {urgent,
			asyncflow.NewTask{RunAt: now.Add(time.Hour), Options: priority(60)}, time.Hour},
		"run_at in a moment":       {urgent, asyncflow.NewTask{RunAt: now.Add(1)}, 1},
		"run_at now counts as now": {urgent, asyncflow.NewTask{RunAt: now}, -100 * time.Second},
		"run_at in the past counts so": {urgent, asyncflow.NewTask{RunAt: now.Add(-time.Hour)},
			-100 * time.Second},
		"run_at in the past + priority": {plain,
			asyncflow.NewTask{RunAt: now.Add(-time.Hour), Options: priority(60)},
			-60 * time.Second},
		"run_at in another zone": {plain,
			asyncflow.NewTask{RunAt: now.Add(time.Hour).In(time.FixedZone("", -8*3600))},
			time.Hour},
	}, func(t *testing.T, c struct {
		taskType asyncflow.TaskType
		task     asyncflow.NewTask
		want     time.Duration
	}) {
		require.Equal(t, c.want, asyncflow.SubmitOrder(c.taskType, c.task, now).Sub(now))
	})
}

// Of two tasks without a delay the one submitted earlier goes first, unless the
// other's head start is larger than the time between them.
func TestPriorityIsAHeadStart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.IntRange(0, asyncflow.MaxPriority)
		a, b := head.Draw(t, "a"), head.Draw(t, "b")
		later := rapid.IntRange(0, asyncflow.MaxPriority).Draw(t, "later")
		order := func(priority int, at time.Time) time.Time {
			options := asyncflow.Options{Priority: asyncflow.Priority{priority}}
			return asyncflow.SubmitOrder(pipeline(), asyncflow.NewTask{Options: options}, at)
		}
		first := order(a, now)
		second := order(b, now.Add(time.Duration(later)*time.Second))
		require.Equal(t, b-a > later, second.Before(first))
	})
}
