package httpapi

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

// report settles the attempt that the completion token vouches for, and returns the task's status
// after that. Repeating a report, with the same output byte for byte, changes nothing and is no
// error. The error of any other report for an attempt that is over is CodeConflict.
func (s *Server) report(ctx context.Context, o asyncflow.Outcome) (asyncflow.Status, error) {
	a, err := s.attemptOf(ctx)
	if err != nil {
		return "", err
	}
	o.Endpoint = a.taskType.EndpointURL(a.Endpoint) // empty if it is gone
	o.Worker = a.worker
	l, stands := s.cfg.Committer.Accepted(a.Tenant, a.Task, a.Seq)
	if !stands {
		if l, stands, err = s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq); err != nil {
			return "", err
		}
	}
	if stands {
		traceOf(ctx).Settles(&l, o.Kind)
	}
	if a.Claimer != "" {
		o.Endpoint = a.taskType.ReportedBy(l)
	}
	if !stands {
		return s.reportEnded(ctx, a, o)
	}
	if o.Kind == asyncflow.OutcomeSnoozed {
		if l.Claimer != "" && l.Options.Child != nil && l.Options.Child.Vote {
			return "", errSnoozedVote
		}
		if o.FirstSent, err = s.cfg.Store.FirstSent(ctx, a.taskType, l); err != nil {
			return "", err
		}
	}
	if o.Status != 0 { // an answer that was passed on: as after a push
		o = a.taskType.Judged(l, o)
	}
	if err := a.taskType.CheckStep(l, o); err != nil {
		return "", err
	}
	if o, err = s.checkSpawn(ctx, a, l, o); err != nil {
		return "", err
	}
	if a.taskType.NeedsPath(l, o) {
		if o.Path, err = s.cfg.Store.Passed(ctx, a.taskType, l); err != nil {
			return "", err
		}
	}
	now := s.cfg.Store.Clock.Now()
	if o.Kind == asyncflow.OutcomeReleased {
		l = a.taskType.Reordered(l)
	} else {
		o.Duration = now.Sub(l.LeasedAt)
	}
	return s.settle(ctx, a, asyncflow.Settlement{
		Lease:   l,
		Outcome: o,
		Verdict: asyncflow.Decide(a.taskType.TaskType, l, o, now),
	})
}

// errSnoozedVote refuses the snooze of a vote: its claimer would get the next vote of the task, and
// could keep all votes from other claimers.
var errSnoozedVote = asyncflow.Errorf(asyncflow.CodeInvalid,
	"a vote that was claimed can't be put off: give it back with release")

// attempt is the attempt that a completion token vouches for.
type attempt struct {
	callbacks.Completion
	taskType *store.Type
	worker   string // the name that the caller gave; see asyncflow.WorkerName
}

// attemptOf returns the attempt that the call's token vouches for. It is CodeNotFound if the task
// is gone: its type or tenant may since have been deleted and made again under the same name.
func (s *Server) attemptOf(ctx context.Context) (attempt, error) {
	c := completionOf(ctx)
	t, err := s.cfg.Store.TypeOf(ctx, c.Tenant, c.Task)
	return attempt{c, t, workerOf(ctx)}, err
}

// unknownReport returns the error of a report without an answer of the database in time, or without
// one to its commit: an earlier try may stand.
func unknownReport(err error) error {
	if asyncflow.CodeOf(err) != asyncflow.CodeUnavailable {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
		Message: "the database doesn't answer: it is not known whether the report counts; " +
			"report again"}
}

// errReportLate is why a call doesn't wait for its report any longer.
var errReportLate = asyncflow.Errorf(asyncflow.CodeUnavailable, "the time of the call is over")

// settle waits until the settlement is durable, or until ctx ends; the worker may then report
// again.
func (s *Server) settle(
	ctx context.Context, a attempt, settlement asyncflow.Settlement,
) (asyncflow.Status, error) {
	done := make(chan store.Settled, 1)
	s.cfg.Committer.Settle(a.Tenant, settlement, func(r store.Settled) { done <- r })
	var r store.Settled
	select {
	case r = <-done:
	case <-ctx.Done():
		r.Err = errReportLate
	}
	switch {
	case r.Err != nil:
		return "", unknownReport(r.Err)
	case r.Stale || r.Written != "": // Written: an earlier report settled it
		return s.reportEnded(ctx, a, settlement.Outcome)
	}
	asyncflow.LogAttempt(s.log, a.Tenant, settlement)
	if settlement.Verdict.Expired {
		return "", errExpired
	}
	return settlement.Verdict.Status(s.cfg.Store.Clock.Now()), nil
}

// reportEnded answers a report for an attempt without its lease.
func (s *Server) reportEnded(
	ctx context.Context, a attempt, o asyncflow.Outcome,
) (asyncflow.Status, error) {
	if err := a.Expired(s.cfg.Store.Clock.Now()); err != nil {
		return "", err
	}
	written, same, err := s.cfg.Store.WrittenAs(ctx, a.taskType, a.Task, a.Seq, o)
	if err != nil {
		return "", err
	}
	if mayCountLate(written, o.Kind) {
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
	if a.Claimer != "" && o.Kind == asyncflow.OutcomeDone && a.taskType.HasQuorum() {
		decided, err := s.cfg.Store.LateVote(ctx, a.taskType, a.Task, a.Seq, a.Claimer,
			o.Output)
		if err != nil {
			return "", err
		}
		if decided {
			return "", asyncflow.Errorf(asyncflow.CodeDecided,
				"the vote on this task is over: it was decided without this one")
		}
	}
	return "", s.endedError(ctx, a, written)
}

// mayCountLate reports whether a report may still count for an attempt that ended as written. A
// failure of a lost attempt needs no late report: that is retried anyway.
func mayCountLate(written, reported asyncflow.OutcomeKind) bool {
	switch written {
	case asyncflow.OutcomeLost:
		return reported != asyncflow.OutcomeFailed && reported != asyncflow.OutcomeReleased
	case asyncflow.OutcomeReleased: // of a claim without a sign of life
		return reported != asyncflow.OutcomeReleased
	}
	return false
}

// reportLate settles a lost attempt by its late outcome, unless the task was started again.
func (s *Server) reportLate(ctx context.Context, a attempt, o asyncflow.Outcome) (bool, error) {
	if err := s.cfg.Committer.AdmitSpawn(ctx, a.taskType, a.Task, a.Seq+1, o); err != nil {
		// The same report may have been accepted before, in the place after the lost attempt.
		_, same, unread := s.cfg.Store.WrittenAs(ctx, a.taskType, a.Task, a.Seq+1, o)
		if unread == nil && same {
			return true, nil
		}
		return false, err
	}
	written, taken, err := s.cfg.Store.SettleLate(ctx, a.taskType, a.Task, a.Seq, o)
	for _, settlement := range written {
		asyncflow.LogAttempt(s.log, a.Tenant, settlement)
	}
	return taken, err
}

func (s *Server) statusOf(ctx context.Context, a attempt) (asyncflow.Status, error) {
	return s.cfg.Store.TaskStatus(ctx, a.Tenant, a.Task)
}

// errCancelled answers the worker of a cancelled task.
var errCancelled = asyncflow.Errorf(asyncflow.CodeConflict,
	"this attempt is over: the task was cancelled")

// errExpired answers a report or a heartbeat after the end of its task's lifetime.
var errExpired = asyncflow.Errorf(asyncflow.CodeExpired,
	"this attempt is over: the lifetime of the task is over, and it has failed")

// endedError returns an error that says how an attempt ended, and the status of its task.
func (s *Server) endedError(ctx context.Context, a attempt, written asyncflow.OutcomeKind) error {
	status, err := s.statusOf(ctx, a)
	switch {
	case err != nil:
		return err
	case written == asyncflow.OutcomeLost:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"this attempt is over: its lease ran out; the task is %s", status)
	case written == asyncflow.OutcomeCancelled:
		return errCancelled
	case written == asyncflow.OutcomeExpired:
		return errExpired
	case written == "":
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"this attempt does not hold the task's lease; the task is %s", status)
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"this attempt is over: it ended as %q; the task is %s", written, status)
}
