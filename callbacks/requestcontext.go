package callbacks

import (
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/internal/signing"
)

// requestContext is the context of a request of a Sender: its caller's with a time limit, and
// with the headers of the request, which has none itself then. There http.Client doesn't copy
// them for redirects, which no request follows.
//
// The transport gives the limit to the connection. A context that ends by itself then, with a
// timer, a channel, and an entry with its caller's, which all others share, is only made when
// somebody waits for it, such as who dials.
type requestContext struct {
	context.Context // the caller's
	deadline        time.Time
	headers         headers
	room            [8]signing.Header // mostly enough for headers

	mu     sync.Mutex
	timed  context.Context // with the deadline; nil: nobody has asked
	cancel context.CancelFunc
}

func newRequestContext(ctx context.Context, timeout time.Duration) *requestContext {
	r := &requestContext{Context: ctx, deadline: time.Now().Add(timeout)}
	r.headers = r.room[:0]
	return r
}

// end gives back what the context holds. The request must be over, and nobody ask for Done.
func (r *requestContext) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed != nil {
		r.cancel()
	}
}

// Deadline returns when time is up, if not the caller's is earlier.
func (r *requestContext) Deadline() (time.Time, bool) {
	if earlier, ok := r.Context.Deadline(); ok && earlier.Before(r.deadline) {
		return earlier, true
	}
	return r.deadline, true
}

// Done is closed when time is up, or the caller's context ends.
func (r *requestContext) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed == nil {
		r.timed, r.cancel = context.WithDeadline(r.Context, r.deadline)
	}
	return r.timed.Done()
}

// Err tells whether the caller's context has ended, or time is up.
func (r *requestContext) Err() error {
	r.mu.Lock()
	timed := r.timed
	r.mu.Unlock()
	switch {
	case timed != nil && timed.Err() != nil:
		return timed.Err()
	case r.Context.Err() != nil:
		return r.Context.Err()
	case time.Now().Before(r.deadline):
		return nil
	}
	return context.DeadlineExceeded
}

// Value returns what is in the caller's context, and this one for requestContextOf.
func (r *requestContext) Value(key any) any {
	if _, ok := key.(requestContextKey); ok {
		return r
	}
	return r.Context.Value(key)
}

type requestContextKey struct{}

// requestContextOf returns the one that a context is made from, or nil.
func requestContextOf(ctx context.Context) *requestContext {
	r, _ := ctx.Value(requestContextKey{}).(*requestContext)
	return r
}

// limitsOf returns what ends a request with a context: another context, and, unless it is zero,
// a point in time.
func limitsOf(ctx context.Context) (context.Context, time.Time) {
	if r, ok := ctx.(*requestContext); ok {
		return r.Context, r.deadline
	}
	return ctx, time.Time{}
}
