package asyncflow

import "time"

// Bounds of a Batch.
const (
	MaxBatchTasks = 1000
	MaxBatchWait  = 5 * time.Second
	// MaxBatchBytes bounds the contexts of one request; a task with a larger one goes alone.
	MaxBatchBytes = 1 << 20
)

// Batch lets an endpoint get several tasks of its stage in one request, and answer for each.
// The zero value stands for no batches: one request per task.
type Batch struct {
	// MaxTasks is the limit of tasks in one request.
	MaxTasks int `json:"max_tasks,omitzero"`
	// MaxWait is how long a task may wait for others to fill the request; zero: only tasks that
	// were leased together share a request.
	MaxWait Duration `json:"max_wait,omitzero"`
}

// IsZero reports whether there are no batches.
func (b Batch) IsZero() bool { return b.MaxTasks == 0 && b.MaxWait.IsZero() }

func (b Batch) check(out *problems) {
	if b.IsZero() {
		return
	}
	if b.MaxTasks < 1 || b.MaxTasks > MaxBatchTasks {
		out.add("batch.max_tasks", "is %d; it must be 1 to %d", b.MaxTasks, MaxBatchTasks)
	}
	checkDuration(out, "batch.max_wait", b.MaxWait, 0, MaxBatchWait)
}
