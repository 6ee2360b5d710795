package workercheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// work are the checks of deliveries that are valid, but rare.
var work = []check{
	{"rotated secret",
		"take Webhook-Signature apart at the spaces, and accept a delivery if any entry is good",
		func(ctx context.Context, r *rehearsal) finding {
			other, err := r.endpointWithOtherSecret()
			if err != nil {
				return failed("%s", err)
			}
			d := r.delivery()
			other.Secrets = append(other.Secrets, d.Endpoint.Secrets...)
			d.Endpoint = other
			return allDone(r.send(ctx, d)...)
		}},
	{"unknown fields", "pass over fields of a delivery that you don't know: more may come",
		func(ctx context.Context, r *rehearsal) finding {
			return allDone(r.sendAltered(ctx, r.delivery(),
				func(req *http.Request, body []byte) error {
					body = withUnknown(body)
					setBody(req, body)
					return r.resign(req, body)
				}))
		}},
	{"fields of stages",
		"pass over input, outputs and checkpoint if you don't need them; if you do, try the worker " +
			"with --input, --outputs and --checkpoint", fieldsOfStages},
	{"name", "send as Asyncflow-Worker 1 to 64 printable ASCII characters without spaces: any " +
		"other name is dropped", namesItself},
	{"large context",
		fmt.Sprintf("take requests of %d KiB and more: a context may have %d KiB",
			asyncflow.DefaultMaxContext>>10+16, asyncflow.DefaultMaxContext>>10),
		func(ctx context.Context, r *rehearsal) finding {
			d := r.delivery()
			d.Lease.Context = r.padded(asyncflow.DefaultMaxContext)
			return allDone(r.send(ctx, d)...)
		}},
	{"slow connection", "read the whole body, as long as Content-Length says, before you verify it",
		func(ctx context.Context, r *rehearsal) finding {
			d := r.delivery()
			d.Lease.Context = r.padded(slowBytes)
			return allDone(r.sendAltered(ctx, d, func(req *http.Request, body []byte) error {
				req.Body = io.NopCloser(&slowBody{
					ctx:   req.Context(),
					rest:  body,
					piece: len(body)/slowPieces + 1,
				})
				return nil
			}))
		}},
	{"broken connection",
		"bear it when a request breaks off: answer nothing, and go on with the next one",
		brokenOff},
	{"duplicate delivery",
		"remember the Webhook-Id of what you have done, and answer the same again; or let the " +
			"output follow from the task alone", duplicate},
	{"duplicate at once",
		"wait for the end of the delivery that is in flight when the same Webhook-Id comes " +
			"again, and answer the same", duplicateAtOnce},
	{"stale attempt",
		"make the work idempotent by task_id and stage, or refuse a seq below one that you have " +
			"acted on",
		stale},
	{"batch", `answer 200 with {"results": [{"task_id": …}, …]}, one for each of the deliveries`,
		func(ctx context.Context, r *rehearsal) finding {
			if r.cfg.Batch == 0 {
				return notApplicable("not asked for by --batch")
			}
			all := make([]asyncflow.Delivery, r.cfg.Batch)
			for i := range all {
				all[i] = r.delivery()
			}
			f := allDone(r.send(ctx, all...)...)
			f.detail = fmt.Sprintf("%d tasks: %s", len(all), f.detail)
			return f
		}},
}

// withUnknown returns the body of a request with an unknown field in its first delivery.
func withUnknown(body []byte) []byte {
	first := []byte(`{"task_id":`)
	with := append([]byte(`{"rehearsal":{"unknown":[1,{}]},`), first[1:]...)
	return bytes.Replace(body, first, with, 1)
}

func setBody(req *http.Request, body []byte) {
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// The pieces of a body that comes over a slow connection.
const (
	slowBytes  = 64 << 10
	slowPieces = 6
	slowPause  = 100 * time.Millisecond
)

// slowBody is a body that comes in pieces, with pauses.
type slowBody struct {
	ctx   context.Context
	rest  []byte
	piece int
	begun bool
}

// Read returns the next piece after a pause.
func (t *slowBody) Read(p []byte) (int, error) {
	if len(t.rest) == 0 {
		return 0, io.EOF
	}
	if t.begun && !sleep.For(t.ctx, slowPause) {
		return 0, t.ctx.Err()
	}
	t.begun = true
	n := copy(p, t.rest[:min(t.piece, len(t.rest))])
	t.rest = t.rest[n:]
	return n, nil
}

// brokenReader is the end of a body that breaks off.
type brokenReader struct{}

// Read fails.
func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken off") }

// brokenOff breaks off in the middle of a request; the next request is whole.
func brokenOff(ctx context.Context, r *rehearsal) finding {
	d := r.delivery()
	d.Lease.Context = r.padded(slowBytes)
	o := r.sendAltered(ctx, d, func(req *http.Request, body []byte) error {
		half := bytes.NewReader(body[:len(body)/2])
		req.Body = io.NopCloser(io.MultiReader(half, brokenReader{}))
		return nil
	}).outcome
	if o.Kind == asyncflow.OutcomeDone || o.Kind == asyncflow.OutcomeAccepted {
		return failed("half a delivery was answered with %d", o.Status)
	}
	sleep.For(ctx, r.cfg.Quiet) // until the worker notices
	f := allDone(r.send(ctx, r.delivery())...)
	if f.result == Failed {
		f.detail = "after a request that broke off: " + f.detail
	}
	return f
}

func duplicate(ctx context.Context, r *rehearsal) finding {
	d := r.delivery()
	first := r.send(ctx, d)[0]
	second := r.send(ctx, d)[0]
	return r.treatedAsOne(ctx, first, second)
}

func duplicateAtOnce(ctx context.Context, r *rehearsal) finding {
	d := r.delivery()
	var endings [2]ending
	var both sync.WaitGroup
	for i := range endings {
		both.Go(func() { endings[i] = r.send(ctx, d)[0] })
	}
	both.Wait()
	if endings[0].problem() != "" { // either of two concurrent deliveries may win
		endings[0], endings[1] = endings[1], endings[0]
	}
	return r.treatedAsOne(ctx, endings[0], endings[1])
}

// treatedAsOne is the finding that the worker treated two deliveries as one.
func (r *rehearsal) treatedAsOne(ctx context.Context, first, second ending) finding {
	if why := first.problem(); why != "" {
		return failed("%s", why)
	}
	if second.outcome.Status == http.StatusConflict {
		return passed("the second was refused with 409")
	}
	if first.outcome.Kind != second.outcome.Kind {
		return failed("the first was answered with %d, the second with %d: %s",
			first.outcome.Status, second.outcome.Status, second.outcome.Error)
	}
	one, other := first.done(), second.done()
	if !same(one.Output, other.Output) {
		return failed("the two answers have different outputs")
	}
	if a, b := choiceOf(one), choiceOf(other); a != b {
		return failed("the two answers choose differently: %q and %q", a, b)
	}
	if !startSame(one, other) {
		return failed("the two answers start different tasks, or wait differently for them")
	}
	if a := first.attempt; a != nil && a.await(ctx, time.Now().Add(r.cfg.Quiet), contradicts) {
		return failed("it was accepted twice, and reported with different outcomes")
	}
	return passed("the same answer")
}

// contradicts reports whether a report was refused because another one had been accepted.
func contradicts(seen []report) bool {
	for _, one := range seen {
		if one.isLast() && one.status == http.StatusConflict {
			return true
		}
	}
	return false
}

// stale sends an attempt after its successor, as when a node was delayed: its result no longer
// counts.
func stale(ctx context.Context, r *rehearsal) finding {
	old := r.delivery()
	next := old
	next.Lease.Seq, next.Lease.Attempt = 2, 2
	newer := r.send(ctx, next)[0]
	if why := newer.problem(); why != "" {
		return failed("the second attempt: %s", why)
	}
	conflict := func([]report, report) (int, asyncflow.Status) { return http.StatusConflict, "" }
	r.callbacks.expect(old.Lease.ID, old.Lease.Seq).answerWith(conflict)
	older := r.send(ctx, old)[0]
	was, is := older.done(), newer.done()
	switch {
	case older.outcome.Status == 0:
		return failed("the first attempt, which came after the second: %s", older.outcome.Error)
	case older.problem() != "":
		return passed("refused: %s", older.problem())
	case !same(was.Output, is.Output):
		return failed("the first attempt, which came after the second, has another output")
	case choiceOf(was) != choiceOf(is):
		return failed("the first attempt, which came after the second, chooses %q, not %q",
			choiceOf(was), choiceOf(is))
	case !startSame(was, is):
		return failed("the first attempt, which came after the second, starts other tasks, or " +
			"waits differently for them")
	}
	return passed("the same output")
}
