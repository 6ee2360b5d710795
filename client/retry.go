package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	retryWaitMin = 100 * time.Millisecond
	retryWaitMax = 2 * time.Second
	// longestRetryAfter is the longest Retry-After that a call waits for. One that
	// asks for more is answered with the 503 at once: the caller knows better what
	// to do with that time.
	longestRetryAfter = 5 * time.Second
)

// doer sends what only reads, or can be repeated without harm, with retries, and
// everything else once.
type doer struct {
	once    *http.Client
	retried *retryablehttp.Client
}

func newDoer(s settings) *doer {
	h := *s.http // the caller's stays as it is
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &doer{once: &h, retried: &retryablehttp.Client{
		HTTPClient:   &h,
		RetryWaitMin: retryWaitMin,
		RetryWaitMax: retryWaitMax,
		RetryMax:     s.retries,
		CheckRetry:   worthRetrying,
		Backoff:      retryablehttp.DefaultBackoff, // heeds Retry-After
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}}
}

// Do sends a request; it is what the generated client calls.
func (d *doer) Do(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Context().Value(keyedSubmit{}) == nil {
		return d.once.Do(r)
	}
	again, err := retryablehttp.FromRequest(r)
	if err != nil {
		return nil, err
	}
	return d.retried.Do(again)
}

// worthRetrying tells whether such a call is tried again: when nothing came back, or a
// 503 that asks for a short pause at most.
func worthRetrying(ctx context.Context, r *http.Response, err error) (bool, error) {
	if k, ok := ctx.Value(keyedSubmit{}).(*keyedSubmit); ok {
		k.note(r, err)
	}
	if err != nil {
		return retryablehttp.DefaultRetryPolicy(ctx, r, err)
	}
	if r.StatusCode != http.StatusServiceUnavailable {
		return false, nil
	}
	return retryAfter(r) <= longestRetryAfter, nil
}

// retryAfter returns the pause that an answer asks for, 0 if none.
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
