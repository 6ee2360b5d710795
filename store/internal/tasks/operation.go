package tasks

import (
	"encoding/json"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// OperationKind says what an operation does with each task.
type OperationKind string

const (
	CancelTasks  OperationKind = "cancel"
	RedriveTasks OperationKind = "redrive"
	// PrioritizeTasks changes the priority of pending and waiting tasks.
	PrioritizeTasks OperationKind = "priority"
	// DelayTasks changes when pending and waiting tasks run.
	DelayTasks OperationKind = "delay"
	// RerunTasks runs final tasks again, as new tasks.
	RerunTasks OperationKind = "rerun"
	// CountAll counts tasks and changes nothing.
	CountAll OperationKind = "count"
	// EraseTasks erases the contents of final tasks.
	EraseTasks OperationKind = "erase"
)

// OperationState is the state of an operation.
type OperationState string

const (
	// OperationRunning: a background job takes the next step when it is due.
	OperationRunning OperationState = "running"
	// OperationDone: the operation visited all its tasks.
	OperationDone OperationState = "done"
	// OperationStopped: a caller stopped it.
	OperationStopped OperationState = "stopped"
	// OperationFailed: it can't go on; Error says why.
	OperationFailed OperationState = "failed"
)

// NewOperation is a caller's request.
type NewOperation struct {
	Kind OperationKind
	// Filter selects the tasks. Without a status, a cancel selects all tasks that are not final, a
	// redrive all failed tasks, a rerun and an erasure all final tasks, a change of the priority or
	// the time all pending and waiting tasks, and a count all tasks. Before, FromType, Limit and
	// Text are ignored.
	Filter Filter
	// AllTypes asks for the tasks of all types of the tenant. Then Filter.Type is the one that the
	// operation is at: it takes them by their names.
	AllTypes bool

	Reason    string             // of a cancel; kept with each task
	By        string             // of an erasure: who asks; kept with each task
	FromStage string             // of a redrive: where tasks start again; "": where they ended
	Priority  asyncflow.Priority // of PrioritizeTasks: the new one
	RunAt     time.Time          // of DelayTasks: when they may run; one in the past: at once
	Pace      float64            // the most tasks a second; 0: as fast as possible
	// StartBy and EndBy are the lifetime of the tasks of a rerun or a redrive; zero: that which
	// they get without.
	StartBy, EndBy asyncflow.Deadline
	// ContextPatch changes the context of each task of a rerun: see asyncflow.PatchContext. A task
	// with a context that is no object is skipped. nil: the contexts stay.
	ContextPatch json.RawMessage
}

// Operation cancels, redrives, reruns, changes, erases or counts the tasks that a filter selects,
// step by step. It concerns tasks that were submitted, and for a redrive, a rerun or an erasure
// ended, before it began. It visits each once, in the order of their numbers.
type Operation struct {
	ID string
	NewOperation
	State OperationState
	// Total is how many tasks it concerned when it began. For a count it is about how many it looks
	// at, and at the end how many it looked at.
	Total int64
	// Done is how many tasks it changed, or counted. Skipped is how many no longer met the filter;
	// for a count, how many it looked at that don't.
	Done, Skipped int64
	Error         string // why it can't go on or, while it is running, why it waits
	CreatedAt     time.Time
	FinishedAt    time.Time // zero while it is running

	position int64     // number of the last task that it looked at
	nextAt   time.Time // when the next step is due
}

// criteria returns the criteria that choose the tasks of an operation.
func (o Operation) criteria() criteria {
	c := criteriaOf(o.Filter)
	c.key = o.Filter.Key
	c.parent = o.Filter.Parent
	c.ids = o.Filter.IDs
	if c.until.IsZero() || c.until.After(o.CreatedAt) {
		c.until = o.CreatedAt
	}
	switch {
	case o.Kind == RerunTasks:
		c.endedBefore = o.CreatedAt
		c.unerased = true
		if c.statuses == nil {
			c.statuses = []string{string(asyncflow.StatusSucceeded),
				string(asyncflow.StatusFailed), string(asyncflow.StatusCancelled)}
		}
	case o.Kind == RedriveTasks:
		c.endedBefore = o.CreatedAt
		if c.statuses == nil {
			c.statuses = []string{string(asyncflow.StatusFailed)}
		}
	case (o.Kind == PrioritizeTasks || o.Kind == DelayTasks) && c.statuses == nil:
		c.statuses = []string{string(asyncflow.StatusWaiting), string(asyncflow.StatusPending)}
	case o.Kind == EraseTasks:
		c.endedBefore = o.CreatedAt
		c.unerased = true
		if c.statuses == nil {
			c.statuses = []string{string(asyncflow.StatusSucceeded), string(asyncflow.StatusFailed),
				string(asyncflow.StatusCancelled)}
		}
	case c.statuses == nil && o.Kind != CountAll:
		for _, status := range asyncflow.Statuses {
			if !status.Final() {
				c.statuses = append(c.statuses, string(status))
			}
		}
	}
	return c
}

// check returns what is wrong with an operation on a type, or nil.
func (n NewOperation) check(t *config.Type) error {
	if n.FromStage != "" && t.StageIndex(n.FromStage) < 0 {
		return asyncflow.InvalidField("from_stage", "is %q, which is not a stage of %s",
			n.FromStage, t.Name)
	}
	if err := t.CheckPriority(n.Priority); err != nil {
		return err
	}
	return n.Filter.check()
}

// narrowed is the end of the kinds, in the table, of operations with a filter that nodes of the
// version before don't know. They would visit more tasks than are asked for, and leave operations
// of an unknown kind alone.
const narrowed = "_where"

// chosen is the same for tasks that are named by their ids or by the kind of their error, and for
// contexts that are patched, which no node of the version before knows.
const chosen = "_chosen"

// storedKind returns the kind in the table.
func (n NewOperation) storedKind() string {
	f := n.Filter
	if len(f.IDs) > 0 || f.Fingerprint != "" || n.ContextPatch != nil {
		return string(n.Kind) + chosen
	}
	if n.Kind == DelayTasks || n.Kind == RerunTasks { // nodes that know the kind know all filters
		return string(n.Kind)
	}
	if n.AllTypes || !f.EndedSince.IsZero() || !f.EndedUntil.IsZero() || f.Attempts > 0 ||
		f.Code != "" || f.FlowKey != "" || f.Worker != "" || f.Key != "" || f.Parent.Type != "" ||
		!f.Labels.IsZero() {
		return string(n.Kind) + narrowed
	}
	return string(n.Kind)
}
