package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	retryWaitMin = 100 * time.Millisecond
	retryWaitMax = 2 * time.Second
	// longestRetryAfter is the longest Retry-After that a call waits for. A longer one is returned
	// as the error that it is: the caller knows better how to use that time.
	longestRetryAfter = 5 * time.Second
)

// doer retries requests that only read, or can be repeated without harm. It sends all others again
// only if there was no connection.
type doer struct {
	once, retried *retryablehttp.Client
}

func newDoer(s settings) *doer {
	h := *s.http // a copy: the caller's client stays unchanged
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &doer{
		once:    retrier(&h, s.retries, neverSent),
		retried: retrier(&h, s.retries, worthRetrying),
	}
}

func retrier(h *http.Client, most int, check retryablehttp.CheckRetry) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   h,
		RetryWaitMin: retryWaitMin,
		RetryWaitMax: retryWaitMax,
		RetryMax:     most,
		CheckRetry:   check,
		Backoff:      backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// backoff is the pause that an answer asks for, or one that doubles.
func backoff(least, most time.Duration, n int, r *http.Response) time.Duration {
	if r != nil {
		if asked := retryAfter(r); asked > 0 {
			return asked
		}
	}
	return retryablehttp.DefaultBackoff(least, most, n, nil)
}

// Do sends a request. The generated client calls it.
func (d *doer) Do(r *http.Request) (*http.Response, error) {
	again, err := retryablehttp.FromRequest(r)
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet && r.Context().Value(keyedSubmit{}) == nil {
		return d.once.Do(again)
	}
	return d.retried.Do(again)
}

// neverSent reports whether to try a request again that must not take effect twice: when there was
// no connection.
func neverSent(ctx context.Context, _ *http.Response, err error) (bool, error) {
	return err != nil && ctx.Err() == nil && (&ConnectionError{Err: err}).NotSent(), nil
}

// isPassingStatus reports whether an answer says that the same request may succeed in a moment: a
// node's or a proxy's.
func isPassingStatus(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// worthRetrying reports whether to try a request again that does no harm: when there was no answer,
// or one that passes and asks for a short pause at most.
func worthRetrying(ctx context.Context, r *http.Response, err error) (bool, error) {
	if k, ok := ctx.Value(keyedSubmit{}).(*keyedSubmit); ok {
		k.note(r, err)
	}
	if err != nil {
		return retryablehttp.DefaultRetryPolicy(ctx, r, err)
	}
	if !isPassingStatus(r.StatusCode) {
		return false, nil
	}
	return retryAfter(r) <= longestRetryAfter, nil
}

// retryAfter returns the pause that an answer asks for, or 0.
func retryAfter(r *http.Response) time.Duration {
	text := r.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return max(0, time.Duration(min(seconds, 366*24*3600))*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// keyedSubmit is a submit of tasks that all come with keys, so that a retry does no harm. It
// travels in the context to worthRetrying.
type keyedSubmit struct {
	uncertain bool // perhaps one of its tries took effect
}

// keyed returns a context for a submit that may be retried, if all tasks come with keys by which a
// try that was lost is found again; otherwise it returns ctx and nil.
func keyed(ctx context.Context, tasks ...NewTask) (context.Context, *keyedSubmit) {
	return repeatable(ctx, !slices.ContainsFunc(tasks, func(t NewTask) bool {
		return t.Key == "" || !t.OnConflict.Returns() || t.KeyWindow.UntilFinal()
	}))
}

// repeatable returns a context for a call that may be retried, if it comes with a key; otherwise it
// returns ctx and nil.
func repeatable(ctx context.Context, hasKey bool) (context.Context, *keyedSubmit) {
	if !hasKey {
		return ctx, nil
	}
	k := &keyedSubmit{}
	return context.WithValue(ctx, keyedSubmit{}, k), k
}

// note records whether a try may have taken effect. The answer can still be read afterwards.
func (k *keyedSubmit) note(r *http.Response, err error) {
	switch {
	case err != nil:
		k.uncertain = k.uncertain || Uncertain(&ConnectionError{Err: err})
	case isPassingStatus(r.StatusCode):
		// a body that breaks off doesn't count
		body, _ := io.ReadAll(io.LimitReader(r.Body, maxProblem))
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
		k.uncertain = k.uncertain || Uncertain(ErrorOf(r, body))
	}
}

// result returns the error of the last try. If an earlier try may have taken effect, Uncertain
// reports so for it.
func (k *keyedSubmit) result(err error) error {
	if k == nil || err == nil || !k.uncertain || Uncertain(err) {
		return err
	}
	return uncertainError{err}
}

// uncertainError is the error of the last try, after one that may have taken effect.
type uncertainError struct{ error }

func (e uncertainError) Unwrap() error { return e.error }
