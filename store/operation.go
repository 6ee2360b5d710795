package store

import (
	"time"

	"github.com/asyncflow/asyncflow"
)

// OperationKind says what an operation does with each task.
type OperationKind string

const (
	CancelTasks  OperationKind = "cancel"
	RedriveTasks OperationKind = "redrive"
)

// OperationState says how an operation stands.
type OperationState string

const (
	OperationRunning OperationState = "running" // governance takes its next step when it is due
	OperationDone    OperationState = "done"    // it has come to its end
	OperationStopped OperationState = "stopped" // by a caller
	OperationFailed  OperationState = "failed"  // it can't go on; Error says why
)

// NewOperation is what a caller asks for.
type NewOperation struct {
	Kind OperationKind
	// Filter says which tasks. Without a status, it cancels all that are not final,
	// and redrives those that failed. Before and Limit play no part.
	Filter Filter

	Reason    string  // of a cancel; kept with each task
	FromStage string  // of a redrive: the stage to go on with; "": each where it ended
	Pace      float64 // tasks a second, at most; 0: as fast as it goes
}

// Operation cancels or redrives the tasks that a filter finds, step by step. It
// concerns those that were there when it began: submitted, and for a redrive ended,
// before that. It visits each once, in the order of their numbers.
type Operation struct {
	ID string
	NewOperation
	State         OperationState
	Total         int64 // how many tasks it concerned when it began
	Done, Skipped int64 // how many it has changed, and how many had moved on
	Error         string
	CreatedAt     time.Time
	FinishedAt    time.Time // zero while it is running

	position int64     // number of the last task looked at
	nextAt   time.Time // when the next step is due
}

// criteria returns what the tasks of an operation are chosen by.
func (o Operation) criteria() criteria {
	c := criteriaOf(o.Filter)
	if c.until.IsZero() || c.until.After(o.CreatedAt) {
		c.until = o.CreatedAt
	}
	switch {
	case o.Kind == RedriveTasks:
		c.endedBefore = o.CreatedAt
		if c.statuses == nil {
			c.statuses = []string{string(asyncflow.StatusFailed)}
		}
	case c.statuses == nil:
		for _, status := range asyncflow.Statuses {
			if !status.Final() {
				c.statuses = append(c.statuses, string(status))
			}
		}
	}
	return c
}

// check tells what is wrong with an operation on a type.
func (n NewOperation) check(t *Type) error {
	if n.FromStage != "" && t.StageIndex(n.FromStage) < 0 {
		return asyncflow.InvalidField("from_stage", "is %q, which is not a stage of %s", n.FromStage,
			t.Name)
	}
	if f := n.Filter; !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return asyncflow.InvalidField("until", "is not after since")
	}
	return nil
}
