package workercheck

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// namesItself is the check of the name that a worker gives in its answers.
func namesItself(ctx context.Context, r *rehearsal) finding {
	answer := r.sender.Test(ctx, r.delivery()).Answer
	name, given := answer.Headers[asyncflow.WorkerHeader]
	switch {
	case !given:
		return notApplicable("it doesn't name itself: tasks won't show which machine they run on")
	case asyncflow.WorkerName(name) == "":
		return failed("its name %.100q has %d bytes", name, len(name))
	}
	return passed("it is %s", name)
}
