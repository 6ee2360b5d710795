package catalog

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Submitted is the result of one submitted task: Err, or what it became.
type Submitted struct {
	ID        asyncflow.TaskID
	Stage     string
	Status    asyncflow.Status
	OrderTime time.Time
	CreatedAt time.Time
	// WaitsUntil is when it stops waiting for the first of its dependencies; zero: never.
	WaitsUntil time.Time
	Existing   bool // the key stood for this task already
	Reused     bool // it was submitted with another context, byte by byte
	Replaced   bool // it has the context of this submit, or of a later one
	Err        error
}

// Submit submits tasks of a tenant, and returns a result for each in the same order.
type Submit func(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []Submitted
