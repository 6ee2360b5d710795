package callbacks

import (
	"context"
	"errors"
	"net"
	"time"
)

// limit is how long a request may take, including the login before it and the reading of its
// answer.
type limit struct {
	timeout  time.Duration
	deadline time.Time
}

// newLimit returns the limit of a request that begins now.
func newLimit(timeout time.Duration) limit {
	return limit{timeout, time.Now().Add(timeout)}
}

// hasEnded reports whether the time of a request with this limit and context is over.
func (l limit) hasEnded(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(l.deadline)
}

// reason says in plain words why a request got no answer.
func (l limit) reason(ctx context.Context, err error) error {
	stopped := ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case errors.Is(err, errPrivate):
		return errPrivate
	case errors.Is(err, errRule):
		return errRule
	case stopped:
		return errors.New("the node stopped before the answer came")
	case l.hasEnded(ctx):
		return timeoutError{l.timeout, err}
	}
	return err
}

// timeoutError says that there was no answer within a time.
type timeoutError struct {
	limit time.Duration
	cause error // what the time ended
}

func (e timeoutError) Error() string { return "no answer within " + e.limit.String() }

// dialing reports whether there was no connection to the worker within the time.
func (e timeoutError) dialing() bool {
	var login loginError
	var network *net.OpError
	return !errors.As(e.cause, &login) && errors.As(e.cause, &network) && network.Op == "dial"
}
