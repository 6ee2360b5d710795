package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/internal/sleep"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// lastDelivery is the delivery that r repeats.
type lastDelivery struct {
	client.SignedDelivery
	stage listenStage
}

// forward forwards a delivery and reports the answer. It returns true if the worker will report by
// itself. A heartbeat comes first: the claim may have ended while this machine slept, and stands
// for as long as the worker may take after it.
func (s *stageListener) forward(ctx context.Context, d client.SignedDelivery) (later bool) {
	cb := s.callback(d.TaskID, d.Callback.Token)
	if !s.callWithRetries(ctx, func() error {
		_, err := s.reporter.Heartbeat(ctx, cb)
		return err
	}) {
		return false
	}
	s.mu.Lock()
	s.last = &lastDelivery{d, s.stage}
	s.mu.Unlock()
	beating, stop := context.WithCancel(ctx)
	go s.sendHeartbeats(beating, cb, stop)
	a, err := s.send(beating, d, s.stage, false)
	lost := beating.Err() != nil && ctx.Err() == nil
	stop()
	switch {
	case lost: // the task was cancelled, or the claim is over
		return false
	case err != nil, ctx.Err() != nil:
		s.release(cb)
		return false
	}
	return s.answer(ctx, d, cb, a) && a.Status == http.StatusAccepted
}

// sendHeartbeats sends heartbeats while a delivery is with a worker, if its claim would end before
// that may be over. It calls lost once the claim is over.
func (s *stageListener) sendHeartbeats(ctx context.Context, cb sdk.Callback, lost func()) {
	if s.stage.processing > s.stage.timeout {
		return
	}
	for sleep.For(ctx, s.stage.processing/3) {
		_, err := s.reporter.Heartbeat(ctx, cb)
		if errors.Is(err, sdk.ErrLost) || errors.Is(err, sdk.ErrCancelled) {
			lost()
		}
	}
}

// answer reports the answer of the worker. An answer that asyncflow refuses counts as none.
func (s *stageListener) answer(
	ctx context.Context, d client.SignedDelivery, cb sdk.Callback, a callbacks.Answer,
) bool {
	report := client.ClaimAnswer{Status: a.Status, ContentType: cutText(a.ContentType, 1000),
		RetryAfter: cutText(a.RetryAfter, 100), Body: a.Body,
		Error: callbacks.Clean(a.Error, callbacks.MaxErrorBytes/2)}
	if a.Status/100 != 2 {
		report.Body = a.Body[:min(len(a.Body), listenExcerpt)]
	}
	return s.callWithRetries(ctx, func() error {
		err := s.reporter.Answer(ctx, cb, report)
		if err == nil || isOutage(err) || errors.Is(err, sdk.ErrLost) || report.Status == 0 {
			return err
		}
		s.out.problem("asyncflow refused the answer to %s: %v", d.TaskID, err)
		report = client.ClaimAnswer{Error: "the answer was refused: " +
			callbacks.Clean(err.Error(), callbacks.MaxErrorBytes/2)}
		return s.reporter.Answer(ctx, cb, report)
	})
}

// send sends a delivery to the worker and shows what came of it. The error says that nothing
// listens there; it is shown once.
func (l *listener) send(
	ctx context.Context, d client.SignedDelivery, s listenStage, repeated bool,
) (callbacks.Answer, error) {
	start := now()
	a, err := l.sender.Forward(ctx, l.to, d.Headers, d.Body, s.timeout)
	if err != nil {
		if l.down.begin() {
			l.out.problem("nothing listens at %s: start your worker there; tasks wait until then",
				l.to)
		}
		return a, err
	}
	l.out.show(forwarded{At: start, Type: s.taskType, Stage: s.name, TaskID: d.TaskID,
		Attempt: d.Attempt, Status: a.Status,
		DurationMs: float32(now().Sub(start)) / float32(time.Millisecond), Size: len(d.Body),
		Error: a.Error, Repeated: repeated})
	return a, nil
}

// release gives a claim back: no attempt is counted. If that fails, the claim runs out.
func (l *listener) release(cb sdk.Callback) {
	ctx, cancel := context.WithTimeout(context.Background(), listenTimeout)
	defer cancel()
	if err := l.reporter.Release(ctx, cb); err != nil {
		l.out.problem("a task was not given back, and comes again later: %v", err)
	}
}

// repeatLast repeats the last delivery to the worker. It is signed anew, under another id: a worker
// answers the same id from memory, and refuses old signatures.
func (l *listener) repeatLast(ctx context.Context) {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last == nil {
		l.out.note("there is no delivery to repeat yet")
		return
	}
	if l.repeats.Swap(true) {
		l.out.note("the last repetition is still under way")
		return
	}
	d := last.SignedDelivery
	if last.stage.secret != "" {
		id := fmt.Sprintf("%s.repeat.%d", d.Headers["Webhook-Id"], l.repeat.Add(1))
		headers, err := signAgain(d, id, last.stage.secret)
		if err != nil {
			l.out.problem("the delivery can't be signed again: %v", err)
			l.repeats.Store(false)
			return
		}
		d.Headers = headers
	}
	go func() {
		defer l.repeats.Store(false)
		_, _ = l.send(ctx, d, last.stage, true) // it shows the error
	}()
}

// signAgain returns the headers of a delivery with a new id, time and signature.
func signAgain(d client.SignedDelivery, id, secret string) (map[string]string, error) {
	signer, err := signing.NewSigner(secret)
	if err != nil {
		return nil, err
	}
	signed, err := signing.Headers(id, now(), d.Body, []signing.Signer{signer})
	headers := map[string]string{}
	for name, value := range d.Headers {
		headers[http.CanonicalHeaderKey(name)] = value
	}
	for _, h := range signed {
		headers[http.CanonicalHeaderKey(h.Name)] = h.Value
	}
	return headers, err
}

func cutText(text string, most int) string { return text[:min(len(text), most)] }
