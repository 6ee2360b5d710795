package workercheck

import (
	"context"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
)

// reporting are the checks of how a worker reports on deliveries that it accepted with 202.
var reporting = []check{
	{"report again", "report until the answer is 2xx, or 4xx but 429, with growing pauses",
		reportAgain},
	{"attempt over",
		"stop the work, and report no more, when a report or a heartbeat is answered with 409",
		attemptOver},
	{"heartbeats",
		"POST callback.url/heartbeat before the deadline, again and again, while the work goes on",
		heartbeats},
	{"cancel", "stop the work when the answer to a heartbeat has the status cancelled", cancelled},
}

// accepted sends a delivery, and play answers its reports. ok is false if the worker didn't
// accept it: then the finding says why the check ends here.
func (r *rehearsal) accepted(
	ctx context.Context, d asyncflow.Delivery, play func([]report, report) (int, asyncflow.Status),
) (*attempt, finding, bool) {
	a := r.callbacks.expect(d.Lease.ID, d.Lease.Seq)
	a.answerWith(play)
	switch o := r.sender.Send(ctx, []asyncflow.Delivery{d})[0]; o.Kind {
	case asyncflow.OutcomeAccepted:
		return a, finding{}, true
	case asyncflow.OutcomeDone:
		return nil, notApplicable("answered at once"), false
	default:
		return nil, failed("%s", o.Error), false
	}
}

func countFinal(seen []report) (n int) {
	for _, one := range seen {
		if one.isLast() {
			n++
		}
	}
	return n
}

func countHeartbeats(seen []report) (n int) {
	for _, one := range seen {
		if one.verb == verbHeartbeat {
			n++
		}
	}
	return n
}

func reportAgain(ctx context.Context, r *rehearsal) finding {
	a, f, ok := r.accepted(ctx, r.delivery(),
		func(before []report, one report) (int, asyncflow.Status) {
			if one.isLast() && countFinal(before) == 0 {
				return http.StatusServiceUnavailable, ""
			}
			return answerAsNode(before, one)
		})
	if !ok {
		return f
	}
	a.await(ctx, time.Now().Add(r.cfg.ReportTime), func(seen []report) bool {
		_, ok := lastWord(seen)
		return ok
	})
	if _, ok := lastWord(a.seen()); !ok && countFinal(a.seen()) > 0 {
		return failed("its report was answered with 503, and it didn't report again within %s",
			r.cfg.ReportTime)
	}
	return allDone(ending{
		outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted},
		attempt: a,
		limit:   r.cfg.ReportTime,
	})
}

func attemptOver(ctx context.Context, r *rehearsal) finding {
	a, f, ok := r.accepted(ctx, r.delivery(), func([]report, report) (int, asyncflow.Status) {
		return http.StatusConflict, ""
	})
	if !ok {
		return f
	}
	someCall := func(seen []report) bool { return len(seen) > 0 }
	if !a.await(ctx, time.Now().Add(r.cfg.ReportTime), someCall) {
		return failed("%s", a.problem(r.cfg.ReportTime))
	}
	calls := func(seen []report) int { return len(seen) }
	if r.goesOn(ctx, a, calls, func(seen []report) bool { return countFinal(seen) > 1 }) {
		return failed("it went on to report after 409: %d calls", len(a.seen()))
	}
	return passed("no calls after 409")
}

// goesOn reports whether a worker that was told to stop makes more calls while it is watched. One
// call may be in flight when it is told, but not if tooMuch is true for it.
func (r *rehearsal) goesOn(
	ctx context.Context, a *attempt, calls func([]report) int, tooMuch func([]report) bool,
) bool {
	until := time.Now().Add(r.cfg.Watch)
	most := calls(a.seen()) + 1
	more := func(seen []report) bool { return calls(seen) > most || tooMuch(seen) }
	if a.await(ctx, time.Now().Add(r.cfg.Quiet), more) {
		return true
	}
	most = calls(a.seen())
	return a.await(ctx, until, more)
}

// brief returns a delivery with a short deadline.
func (r *rehearsal) brief() asyncflow.Delivery {
	d := r.delivery()
	d.Deadline = d.At.Add(r.cfg.Deadline)
	return d
}

func heartbeats(ctx context.Context, r *rehearsal) finding {
	d := r.brief()
	a, f, ok := r.accepted(ctx, d, answerAsNode)
	if !ok {
		return f
	}
	if !a.await(ctx, d.Deadline, func(seen []report) bool { return len(seen) > 0 }) {
		return failed("neither a heartbeat nor a report came by the deadline, %s after the "+
			"delivery",
			r.cfg.Deadline)
	}
	if countHeartbeats(a.seen()) == 0 {
		return notApplicable("done within %s, before a heartbeat was due",
			time.Since(d.At).Round(time.Millisecond))
	}
	return passed("a heartbeat came before the deadline")
}

func cancelled(ctx context.Context, r *rehearsal) finding {
	d := r.brief()
	a, f, ok := r.accepted(ctx, d, func(before []report, one report) (int, asyncflow.Status) {
		if one.verb == verbHeartbeat && countFinal(before) == 0 {
			return http.StatusOK, asyncflow.StatusCancelled
		}
		if countHeartbeats(before) > 0 {
			return http.StatusConflict, ""
		}
		return answerAsNode(before, one)
	})
	if !ok {
		return f
	}
	a.await(ctx, d.Deadline, func(seen []report) bool {
		return countHeartbeats(seen)+countFinal(seen) > 0
	})
	if countHeartbeats(a.seen()) == 0 {
		return notApplicable("no heartbeat came whose answer could say so")
	}
	if r.goesOn(ctx, a, countHeartbeats, completed) {
		return failed("it went on after a heartbeat was answered with the status cancelled")
	}
	return passed("it stopped")
}

func completed(seen []report) bool {
	for _, one := range seen {
		if one.verb == verbComplete {
			return true
		}
	}
	return false
}
