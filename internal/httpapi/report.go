package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// completeTask takes a worker's report that the stage is done.
func (s *Server) completeTask(c *fiber.Ctx) error {
	o, err := s.readCompletion(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

// failTask takes a worker's report that the attempt failed.
func (s *Server) failTask(c *fiber.Ctx) error {
	o, err := s.readFailure(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

func (s *Server) readCompletion(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body Completion
	err := decodeBody(c, &body)
	switch {
	case err != nil:
	case string(body.Output) == "null": // which the contract is against
		err = s.checkBody(c)
	case len(body.Output) > 0:
		err = asyncflow.CheckDocument("output", body.Output, s.cfg.MaxContext)
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: body.Output}, err
}

func (s *Server) readFailure(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body Failure
	if err := decodeBody(c, &body); err != nil {
		return asyncflow.Outcome{}, err
	}
	if body.Error == "" || len(body.Error) > callbacks.MaxErrorBytes || mayHave(c.Request().Body(), "retry_after") { // the type takes more of these than the contract
		if err := s.checkBody(c); err != nil {
			return asyncflow.Outcome{}, err
		}
	}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: callbacks.Clean(body.Error, callbacks.MaxErrorBytes), RetryAfter: body.RetryAfter.Std()}
	if body.Retryable != nil && !*body.Retryable {
		o.Kind = asyncflow.OutcomeRejected
	}
	return o, nil
}

// mayHave tells whether a JSON document may have a field of a name, spelled as it is or
// with escapes.
func mayHave(doc []byte, name string) bool {
	return bytes.Contains(doc, []byte(name)) || bytes.Contains(doc, []byte(`\u`))
}

func (s *Server) answerReport(c *fiber.Ctx, o asyncflow.Outcome) error {
	status, err := s.report(c.UserContext(), o)
	if err != nil {
		return err
	}
	doc, err := encode(CallbackResult{Status: status})
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}

// report settles the attempt that the completion token vouches for and returns
// where the task stands then. The same report again, with the same output byte for byte,
// changes nothing and is no error; any other report for an attempt that is over is CodeConflict.
func (s *Server) report(ctx context.Context, o asyncflow.Outcome) (asyncflow.Status, error) {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return "", err
	}
	o.Endpoint = a.taskType.EndpointURL(a.Endpoint) // empty if it is gone
	l, stands := s.cfg.Store.Accepted(a.Tenant, a.Task, a.Seq)
	if !stands {
		if l, stands, err = s.cfg.Store.LeaseOf(ctx, a.taskType, a.Task, a.Seq); err != nil {
			return "", err
		}
	}
	if !stands {
		return s.reportEnded(ctx, a, o)
	}
	now := s.cfg.Store.Clock.Now()
	o.Duration = now.Sub(l.LeasedAt)
	return s.settle(ctx, a, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(a.taskType.TaskType, l, o, now)})
}

// attempt is the attempt that a completion token vouches for.
type attempt struct {
	callbacks.Completion
	taskType *store.Type
}

// attemptOf returns the attempt that the call's token vouches for; CodeNotFound, when the
// task is gone, as its type or tenant may be another one of that name by now.
func (s *Server) attemptOf(ctx context.Context) (attempt, error) {
	c := completionOf(ctx)
	t, err := s.cfg.Store.TypeOf(ctx, c.Tenant, c.Task)
	return attempt{c, t}, err
}

// errReportUnknown answers a report that the database has not taken in time.
var errReportUnknown = asyncflow.Errorf(asyncflow.CodeUnavailable,
	"the database doesn't answer; report again")

// settle waits until the settlement is durable, or until ctx ends: the worker may report
// again then.
func (s *Server) settle(ctx context.Context, a attempt, settlement asyncflow.Settlement) (asyncflow.Status, error) {
	done := make(chan store.Settled, 1)
	s.cfg.Store.Settle(a.Tenant, settlement, func(r store.Settled) { done <- r })
	var r store.Settled
	select {
	case r = <-done:
	case <-ctx.Done():
		return "", errReportUnknown
	}
	switch {
	case r.Err != nil:
		return "", r.Err
	case r.Stale || r.Written != "": // the latter: as it was reported before
		return s.reportEnded(ctx, a, settlement.Outcome)
	}
	asyncflow.LogAttempt(s.log, a.Tenant, settlement)
	return settlement.Verdict.Status(s.cfg.Store.Clock.Now()), nil
}

// reportEnded answers a report for an attempt whose lease is gone.
func (s *Server) reportEnded(ctx context.Context, a attempt, o asyncflow.Outcome) (asyncflow.Status, error) {
	if err := a.Expired(s.cfg.Store.Clock.Now()); err != nil {
		return "", err
	}
	written, same, err := s.cfg.Store.WrittenAs(ctx, a.taskType, a.Task, a.Seq, o)
	if err != nil {
		return "", err
	}
	if written == asyncflow.OutcomeLost && o.Kind != asyncflow.OutcomeFailed { // it is tried again anyway
		taken, err := s.reportLate(ctx, a, o)
		if err != nil {
			return "", err
		}
		if taken {
			return s.statusOf(ctx, a)
		}
	}
	switch {
	case same:
		return s.statusOf(ctx, a)
	case written == o.Kind:
		return "", store.OtherOutcome(written, o)
	}
	return "", s.over(ctx, a, written)
}

// reportLate lets a late outcome count if nobody has started the task again.
func (s *Server) reportLate(ctx context.Context, a attempt, o asyncflow.Outcome) (bool, error) {
	var l asyncflow.Lease
	v, taken, err := s.cfg.Store.SettleLate(ctx, a.taskType, a.Task, a.Seq, o, func(lost asyncflow.Lease, now time.Time) asyncflow.Verdict {
		l = lost
		return asyncflow.Decide(a.taskType.TaskType, lost, o, now)
	})
	if v.Kind != "" {
		asyncflow.LogAttempt(s.log, a.Tenant, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: v})
	}
	return taken, err
}

func (s *Server) statusOf(ctx context.Context, a attempt) (asyncflow.Status, error) {
	task, err := s.cfg.Store.Task(ctx, a.Tenant, a.Task)
	return task.Status, err
}

// errCancelled tells a worker that its task was cancelled.
var errCancelled = asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: the task was cancelled")

// over says that an attempt is over, how it ended, and where the task stands.
func (s *Server) over(ctx context.Context, a attempt, written asyncflow.OutcomeKind) error {
	status, err := s.statusOf(ctx, a)
	switch {
	case err != nil:
		return err
	case written == asyncflow.OutcomeLost:
		return asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: its lease ran out; the task is %s", status)
	case written == asyncflow.OutcomeCancelled:
		return errCancelled
	case written == "":
		return asyncflow.Errorf(asyncflow.CodeConflict, "this attempt does not hold the task's lease; the task is %s", status)
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: it ended as %q; the task is %s", written, status)
}
