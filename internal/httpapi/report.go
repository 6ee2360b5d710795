package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// completeTask accepts a worker's report that the stage is done.
func (s *Server) completeTask(c *fiber.Ctx) error {
	o, err := s.readCompletion(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

// maxNextStage is how many bytes of next_stage need no further check.
const maxNextStage = 100

// failTask accepts a worker's report that the attempt failed.
func (s *Server) failTask(c *fiber.Ctx) error {
	o, err := s.readFailure(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

func (s *Server) readCompletion(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body api.Completion
	err := decodeBody(c, &body)
	switch {
	case err != nil:
	case string(body.Output) == "null": // as in answers: many libraries write an absent output so
		body.Output = nil
	case len(body.Output) > 0:
		err = asyncflow.CheckDocument("output", body.Output, s.cfg.MaxContext)
	}
	switch {
	case err != nil:
	case body.NextStage != "" && body.Finish:
		err = asyncflow.InvalidField("finish", "and next_stage exclude each other")
	case len(body.NextStage) > maxNextStage: // the type allows more than the contract
		err = s.checkBody(c)
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: body.Output,
		Next: body.NextStage, Finish: body.Finish}, err
}

func (s *Server) readFailure(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body api.Failure
	if err := decodeBody(c, &body); err != nil {
		return asyncflow.Outcome{}, err
	}
	if body.Error == "" || len(body.Error) > callbacks.MaxErrorBytes ||
		mayHave(c.Request().Body(), "retry_after") {
		// For these the type allows more than the contract.
		if err := s.checkBody(c); err != nil {
			return asyncflow.Outcome{}, err
		}
	}
	o := asyncflow.Outcome{
		Kind:       asyncflow.OutcomeFailed,
		Error:      callbacks.Clean(body.Error, callbacks.MaxErrorBytes),
		RetryAfter: body.RetryAfter.Std(),
	}
	if body.Retryable != nil && !*body.Retryable {
		o.Kind = asyncflow.OutcomeRejected
	}
	return o, nil
}

// SnoozeTask accepts a worker's report that it wants to be asked again later.
func (s *Server) SnoozeTask(
	ctx context.Context, r SnoozeTaskRequestObject,
) (SnoozeTaskResponseObject, error) {
	if err := asyncflow.CheckSnooze(r.Body.RetryAfter); err != nil {
		return nil, err
	}
	status, err := s.report(ctx, asyncflow.Outcome{
		Kind:       asyncflow.OutcomeSnoozed,
		Error:      callbacks.Clean(r.Body.Error, callbacks.MaxErrorBytes),
		RetryAfter: r.Body.RetryAfter.Std(),
	})
	return SnoozeTask200JSONResponse{Status: status}, err
}

// mayHave reports whether a JSON document may have a field of a name, written plainly or with
// escapes.
func mayHave(doc []byte, name string) bool {
	return bytes.Contains(doc, []byte(name)) || bytes.Contains(doc, []byte(`\u`))
}

func (s *Server) answerReport(c *fiber.Ctx, o asyncflow.Outcome) error {
	status, err := s.report(c.UserContext(), o)
	if err != nil {
		return err
	}
	doc, err := encode(api.CallbackResult{Status: status})
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}

// Heartbeat moves the end of an attempt's lease to max_processing_time from now. If the attempt is
// over, the error is CodeConflict: the worker should stop.
func (s *Server) Heartbeat(
	ctx context.Context, _ HeartbeatRequestObject,
) (HeartbeatResponseObject, error) {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return nil, err
	}
	l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err == nil && stands {
		deadline := s.deadlineOf(a, l)
		stands, err = s.extend(ctx, a, l, deadline)
		if err == nil && stands {
			return Heartbeat200JSONResponse{Status: asyncflow.StatusRunning,
				Deadline: deadline}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err = s.ended(ctx, a); errors.Is(err, errCancelled) {
		return Heartbeat200JSONResponse{Status: asyncflow.StatusCancelled}, nil
	}
	return nil, err
}

// deadlineOf returns the deadline of an attempt after a heartbeat: max_processing_time from now,
// but not before the end of a delivery that is not answered yet. It is a microsecond after that
// end, so that the deadline that a 202 sets doesn't replace the one that the worker gets now.
func (s *Server) deadlineOf(a attempt, l asyncflow.Lease) time.Time {
	deadline := s.cfg.Store.Clock.Now().Add(a.taskType.ProcessingTime(l.Stage))
	_, accepted := s.cfg.Committer.Accepted(a.Tenant, a.Task, a.Seq)
	if !accepted && deadline.Before(l.Until) {
		deadline = l.Until.Add(time.Microsecond)
	}
	return deadline
}

// extend extends a lease, waits until that is durable, and reports whether the lease still stood.
func (s *Server) extend(
	ctx context.Context, a attempt, l asyncflow.Lease, deadline time.Time,
) (bool, error) {
	type result struct {
		stands bool
		err    error
	}
	done := make(chan result, 1)
	s.cfg.Committer.Extend(a.Tenant, l, deadline, func(stands bool, err error) {
		done <- result{stands, err}
	})
	select {
	case r := <-done:
		return r.stands, r.err
	case <-ctx.Done():
		return false, errReportUnknown
	}
}

// ReportProgress stores the progress that a worker reports.
func (s *Server) ReportProgress(
	ctx context.Context, r ReportProgressRequestObject,
) (ReportProgressResponseObject, error) {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return nil, err
	}
	if a.Claimer != "" {
		if stands, err := s.extendClaim(ctx, a); err != nil {
			return nil, err
		} else if !stands {
			return nil, s.ended(ctx, a)
		}
	}
	note := callbacks.Clean(r.Body.Note, callbacks.MaxErrorBytes)
	stands, err := s.cfg.Store.SetProgress(ctx, a.taskType, a.Task, a.Seq,
		store.Progress{Percent: r.Body.Percent, Note: note})
	if err != nil {
		return nil, err
	}
	if !stands {
		return nil, s.ended(ctx, a)
	}
	return ReportProgress200JSONResponse{Status: asyncflow.StatusRunning}, nil
}

// ended returns the error of a call that needs a lease when the attempt is over.
func (s *Server) ended(ctx context.Context, a attempt) error {
	if err := a.Expired(s.cfg.Store.Clock.Now()); err != nil {
		return err
	}
	written, err := s.cfg.Store.Written(ctx, a.taskType, a.Task, a.Seq)
	if err != nil {
		return err
	}
	return s.endedError(ctx, a, written)
}
