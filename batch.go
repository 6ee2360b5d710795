package asyncflow

import "time"

// Bounds of a Batch.
const (
	MaxBatchTasks = 1000
	MaxBatchWait  = 5 * time.Second
	// MaxBatchBytes bounds the contexts of one request; a task with a larger one goes alone.
	MaxBatchBytes = 1 << 20
)

// Batch has an endpoint get several tasks of its stage in one request, and answer for
// each. The zero value is none: each task has a request of its own.
type Batch struct {
	// MaxTasks is the most tasks of one request.
	MaxTasks int `json:"max_tasks,omitzero"`
	// MaxWait is how long a task may wait for others to go with it; zero: those go
	// together that were leased together.
	MaxWait Duration `json:"max_wait,omitzero"`
}

// IsZero tells whether there is none.
func (b Batch) IsZero() bool { return b == Batch{} }

func (b Batch) check(out *problems) {
	if b.IsZero() {
		return
	}
	if b.MaxTasks < 1 || b.MaxTasks > MaxBatchTasks {
		out.add("batch.max_tasks", "is %d; it must be 1 to %d", b.MaxTasks, MaxBatchTasks)
	}
	checkDuration(out, "batch.max_wait", b.MaxWait, 0, MaxBatchWait)
}
