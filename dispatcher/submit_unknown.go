package dispatcher

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// submitUntil returns when tasks that came at a time are no longer tried.
func submitUntil(ctx context.Context, came time.Time) time.Time {
	until := came.Add(SubmitPatience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return deadline
	}
	return until
}

// unknown returns the results of n tasks that may be written or not.
func unknown(ctx context.Context, n int) []store.Submitted {
	results := make([]store.Submitted, n)
	for i := range results {
		results[i].Err = notKnown(ctx.Err())
	}
	return results
}

// uncertain returns CodeUncertain if err leaves open whether a task was accepted; otherwise err.
func uncertain(err error) error {
	if asyncflow.CodeOf(err) == asyncflow.CodeUnavailable {
		return notKnown(err)
	}
	return err
}

func notKnown(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
		Message: "the database went away: it is not known whether the task was accepted"}
}
