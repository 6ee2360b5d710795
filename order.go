package asyncflow

import "time"

// Soon is how far ahead of its order_time a task may be in ready. Tasks that are due later are
// in wait, and are promoted when they are due this soon, so that an old ready table empties
// within about a minute of its roll.
const Soon = time.Minute

// SubmitOrder returns the order_time of a new task: now minus the head start of its first
// stage. A delayed task is ordered by the time it is due; its priority doesn't apply.
func SubmitOrder(t TaskType, n NewTask, now time.Time) time.Time {
	switch {
	case n.Delay.Std() > 0:
		return now.Add(n.Delay.Std())
	case n.RunAt.After(now):
		return n.RunAt
	default:
		return EnterOrder(t, 0, n.Options, now)
	}
}

// EnterOrder returns the order_time of a task that enters a stage now.
func EnterOrder(t TaskType, stage int, o Options, now time.Time) time.Time {
	return now.Add(-headStart(t, stage, o))
}

// headStart returns the head start of a task in a stage: its own, or else the stage's. A
// removed stage (-1) gives none.
func headStart(t TaskType, stage int, o Options) time.Duration {
	if stage < 0 {
		return 0
	}
	if head, ok := o.Priority.ForStage(stage); ok {
		return head
	}
	return time.Duration(t.Stages[stage].Priority) * time.Second
}
