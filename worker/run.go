package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// run is one delivery while it is worked on. Its handler ends it by finish; heartbeats runs beside
// it.
type run struct {
	worker   *Worker
	exchange *exchange
	delivery delivery
	log      *slog.Logger
	start    time.Time
	until    time.Time // the delivered deadline, by this machine's clock

	ctx     context.Context // of the handler
	cancel  context.CancelCauseFunc
	calls   context.Context // for calls to asyncflow: ends some time after the deadline
	endCall context.CancelFunc

	result   outcome       // set before finished is closed
	finished chan struct{} // the handler returned
	accepted bool          // the result isn't in the answer; set before exchange.answered is closed
	over     chan struct{} // closed when the result is in the answer or reported
	doubted  chan struct{} // asyncflow refused a report: a heartbeat tells whether it is over
}

// newRun returns a run, and starts its heartbeats. ctx is the context of the request; only its
// values are used.
func newRun(
	ctx context.Context, w *Worker, h *handler, x *exchange, d delivery, until time.Time,
) *run {
	r := &run{
		worker:   w,
		exchange: x,
		delivery: d,
		start:    time.Now(),
		until:    until,
		finished: make(chan struct{}),
		over:     make(chan struct{}),
		doubted:  make(chan struct{}, 1),
		log:      w.cfg.Log.With("task", d.TaskID, "stage", d.Stage, "attempt", d.Attempt),
	}
	r.calls, r.endCall = context.WithCancel(w.reports)
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(w.work, func() { r.cancel(context.Cause(w.work)) })
	if h.timeLimit > 0 {
		limited, done := context.WithTimeoutCause(r.ctx, h.timeLimit, errTimeLimit)
		r.ctx = limited
		context.AfterFunc(limited, done)
	}
	context.AfterFunc(r.ctx, func() { unhook() })
	go r.heartbeats()
	return r
}

var errTimeLimit = errors.New("the handler's time limit is over")

// finish takes the result of the handler. It returns when the result is in the answer, or reported:
// then the run is over.
func (r *run) finish(o outcome) {
	r.result = o
	close(r.finished)
	<-r.exchange.answered
	var how string
	var err error
	if !r.accepted {
		how = "answer"
		<-r.exchange.sent
	}
	if r.accepted || r.exchange.broken { // reporting a recorded result again changes nothing
		how, err = "report", r.report()
	}
	close(r.over)
	r.cancel(nil)
	r.endCall()
	r.logEnd(how, err)
	r.worker.release()
}

// answer returns the run's part of the answer. If nobody can be answered any more, even a finished
// run is accepted, and then reported.
func (r *run) answer(nobody bool) answer {
	select {
	case <-r.finished:
		r.accepted = nobody || r.result.kind == kindAccepted
	default:
		r.accepted = true
	}
	a := answer{TaskID: r.delivery.TaskID, Outcome: kindAccepted}
	if !r.accepted {
		a.Outcome, a.Output = r.result.kind, r.result.output
		a.Error, a.RetryAfter = r.result.error, asyncflow.NewDuration(r.result.retryAfter)
		a.NextStage, a.Finish = r.result.step.next, r.result.step.finish
		a.Spawn = r.result.step.spawned()
		a.Join.Join = r.result.step.join
	}
	if a.Outcome == kindDone {
		a.Outcome = ""
	}
	return a
}

// report reports the result to asyncflow. An output that is refused fails the task for good: it
// would be refused again. A next stage or tasks to start that are refused fail the attempt, as in
// an answer.
func (r *run) report() error {
	cause := context.Cause(r.ctx)
	switch {
	case r.result.kind == kindAccepted:
		return nil
	case errors.Is(cause, ErrCancelled):
		return ErrCancelled
	case errors.Is(cause, ErrLost) && r.result.kind == kindRetry: // the task is retried anyway
		return ErrLost
	}
	err := r.worker.reporter.report(r.calls, r.delivery.Callback, r.result)
	var answer *client.Error
	if r.result.kind != kindDone || errors.Is(err, ErrLost) || !errors.As(err, &answer) ||
		answer.Status < 400 || answer.Status >= 500 {
		return err
	}
	refusal := outcome{
		kind:  kindFail,
		error: shorten("asyncflow refused the output: " + answer.Error()),
	}
	switch asyncflow.Code(answer.Problem.Code) {
	case asyncflow.CodeNextStage, asyncflow.CodeSpawn, asyncflow.CodeQuota:
		refusal.kind = kindRetry
	}
	return errors.Join(err, r.worker.reporter.report(r.calls, r.delivery.Callback, refusal))
}

func (r *run) logEnd(how string, err error) {
	log := r.log.With("outcome", r.result.kind, "by", how,
		"duration", time.Since(r.start).Round(time.Microsecond))
	if r.result.error != "" {
		log = log.With("failure", r.result.error)
	}
	switch {
	case err == nil:
		log.Info("delivery")
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrLost):
		log.Warn("delivery: the result counts no more", "error", err)
	default:
		log.Error("delivery: not reported", "error", err)
	}
}

// ListenAndServe is Serve at a TCP address, such as "127.0.0.1:9000".
func (w *Worker) ListenAndServe(ctx context.Context, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return w.Serve(ctx, l)
}

// Serve serves deliveries from a listener, under any path, and registers the handlers if
// Config.Registration is set. When ctx ends, it refuses new deliveries and waits up to Config.Grace
// for deliveries in flight; it returns nil if all of them are reported. A Worker serves once.
//
// It speaks plain HTTP/1.1: put TLS in front of it, or serve the Worker, which is an http.Handler,
// by a server of your own.
func (w *Worker) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l) }()
	registering, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.cfg.Registration != nil {
		go func() {
			if err := w.Register(registering, *w.cfg.Registration); err != nil && ctx.Err() == nil {
				ended <- err
			}
		}()
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, w.stop(server))
}

// stop stops in two steps: no more requests, then no more work.
func (w *Worker) stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Grace)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), w.Close(ctx))
}
