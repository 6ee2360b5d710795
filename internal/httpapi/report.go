package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
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
	if err := countSpawn(c.Request().Body()); err != nil {
		return asyncflow.Outcome{}, err
	}
	if err := decodeBody(c, &body); err != nil {
		return asyncflow.Outcome{}, err
	}
	if err := s.checkCompletion(c, &body); err != nil {
		return asyncflow.Outcome{}, err
	}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: body.Output,
		Next: body.NextStage, Finish: body.Finish}
	if len(body.Spawn) > 0 {
		o.Spawn = body.Spawn
		if err := asyncflow.CheckSpawned(o.Spawn, time.Now(), s.cfg.MaxContext); err != nil {
			return o, err
		}
	}
	err := o.Joins(body.Join.Join)
	return o, err
}

// checkCompletion checks what is not part of decoding, and makes an output of null an absent one,
// as in answers: many libraries write an absent output so.
func (s *Server) checkCompletion(c *fiber.Ctx, body *api.Completion) error {
	if string(body.Output) == "null" {
		body.Output = nil
	}
	if len(body.Output) > 0 {
		if err := asyncflow.CheckDocument("output", body.Output, s.cfg.MaxContext); err != nil {
			return err
		}
	}
	if err := body.Join.Check(); err != nil {
		return err
	}
	if body.NextStage != "" && body.Finish {
		return asyncflow.InvalidField("finish", "and next_stage exclude each other")
	}
	if len(body.NextStage) > maxNextStage || len(body.Spawn) > 0 || !body.Join.IsZero() {
		return s.checkBody(c) // the type allows more than the contract
	}
	return nil
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

// mayHave reports whether a field of a name may be in a JSON document, written plainly or with
// escapes.
func mayHave(doc []byte, name string) bool {
	return bytes.Contains(doc, []byte(name)) || bytes.Contains(doc, []byte(`\u`))
}

func (s *Server) answerReport(c *fiber.Ctx, o asyncflow.Outcome) error {
	status, err := s.report(c.UserContext(), o)
	if err != nil {
		return err
	}
	return writeStatus(c, status)
}

// writeStatus answers a report with the status of its task.
func writeStatus(c *fiber.Ctx, status asyncflow.Status) error {
	doc, err := encode(api.CallbackResult{Status: status})
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}

// heartbeat moves the end of an attempt's lease to max_processing_time from now, and keeps its
// checkpoint. If the attempt is over, the error is CodeConflict: the worker should stop.
func (s *Server) heartbeat(c *fiber.Ctx) error {
	var body api.Heartbeat
	if len(bodyOf(c)) > 0 {
		if err := decodeBody(c, &body); err != nil {
			return err
		}
	}
	checkpoint, err := s.checkpointOf(body.Checkpoint)
	if err != nil {
		return err
	}
	beat, err := s.beat(c.UserContext(), checkpoint)
	if err != nil {
		return err
	}
	doc, err := encode(beat)
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}

func (s *Server) beat(
	ctx context.Context, checkpoint json.RawMessage,
) (beat api.HeartbeatResult, err error) {
	arrived := s.cfg.Store.Clock.Now()
	a, err := s.attemptOf(ctx)
	if err != nil {
		return beat, err
	}
	l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err == nil && stands && l.Options.Lifetime.Ended(s.cfg.Store.Clock.Now()) {
		return beat, errExpired
	}
	if err == nil && stands && checkpoint != nil {
		err = s.mayKeep(a, l, checkpoint)
	}
	if err == nil && stands {
		deadline := s.deadlineOf(a, l)
		stands, err = s.extend(ctx, a, l, deadline,
			store.Checkpoint{Document: checkpoint, Arrived: arrived}, arrived)
		if err == nil && stands {
			return api.HeartbeatResult{Status: asyncflow.StatusRunning, Deadline: deadline}, nil
		}
	}
	if err != nil {
		return beat, err
	}
	if err = s.ended(ctx, a); errors.Is(err, errCancelled) {
		return api.HeartbeatResult{Status: asyncflow.StatusCancelled}, nil
	}
	return beat, err
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
	return l.Options.Lifetime.EndsBefore(deadline)
}

// extend extends a lease, waits until that is durable, and reports whether the lease still stood.
// beat is when a heartbeat came; zero: none did.
func (s *Server) extend(
	ctx context.Context, a attempt, l asyncflow.Lease, deadline time.Time,
	checkpoint store.Checkpoint, beat time.Time,
) (bool, error) {
	type result struct {
		stands bool
		err    error
	}
	done := make(chan result, 1)
	seen := store.Seen{Beat: beat, Worker: a.worker, Endpoint: a.Endpoint}
	s.cfg.Committer.Extend(a.Tenant, l, deadline, checkpoint, seen,
		func(stands bool, err error) { done <- result{stands, err} })
	select {
	case r := <-done:
		return r.stands, unknownReport(r.err)
	case <-ctx.Done():
		return false, unknownReport(errReportLate)
	}
}

// maxNote is how many bytes of a note need no further check.
const maxNote = 500

// reportProgress stores the progress that a worker reports, and its checkpoint.
func (s *Server) reportProgress(c *fiber.Ctx) error {
	var body api.ProgressReport
	if err := decodeBody(c, &body); err != nil {
		return err
	}
	if body.Percent < 1 || body.Percent > 100 || len(body.Note) > maxNote {
		// For these the type allows more than the contract: it doesn't know whether percent is
		// given.
		if err := s.checkBody(c); err != nil {
			return err
		}
	}
	checkpoint, err := s.checkpointOf(body.Checkpoint)
	if err != nil {
		return err
	}
	err = s.setProgress(c.UserContext(), store.Progress{
		Percent:    body.Percent,
		Worker:     workerOf(c.UserContext()),
		Note:       callbacks.Clean(body.Note, callbacks.MaxErrorBytes),
		Checkpoint: store.Checkpoint{Document: checkpoint, Arrived: s.cfg.Store.Clock.Now()},
	})
	if err != nil {
		return err
	}
	return writeStatus(c, asyncflow.StatusRunning)
}

func (s *Server) setProgress(ctx context.Context, p store.Progress) error {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return err
	}
	if a.Claimer != "" {
		if stands, err := s.extendClaim(ctx, a); err != nil {
			return err
		} else if !stands {
			return s.ended(ctx, a)
		}
	}
	if p.Checkpoint.Document != nil {
		l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
		switch {
		case err != nil:
			return err
		case !stands:
			return s.ended(ctx, a)
		}
		if err := s.mayKeep(a, l, p.Checkpoint.Document); err != nil {
			return err
		}
	}
	stands, err := s.cfg.Store.SetProgress(ctx, a.taskType, a.Task, a.Seq, p)
	if err == nil && !stands {
		err = s.ended(ctx, a)
	}
	return err
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
