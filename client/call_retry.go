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
	// longestRetryAfter is the longest Retry-After that a call waits for. A longer one is returned as
	// the 503 that it is: the caller knows better how to use that time.
	longestRetryAfter = 5 * time.Second
)

// doer retries requests that only read, or can be repeated without harm. It sends all others once.
type doer struct {
	once    *http.Client
	retried *retryablehttp.Client
}

func newDoer(s settings) *doer {
	h := *s.http // a copy: the caller's client stays unchanged
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &doer{once: &h, retried: &retryablehttp.Client{
		HTTPClient:   &h,
		RetryWaitMin: retryWaitMin,
		RetryWaitMax: retryWaitMax,
		RetryMax:     s.retries,
		CheckRetry:   worthRetrying,
		Backoff:      retryablehttp.DefaultBackoff, // respects Retry-After
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}}
}

// Do sends a request. The generated client calls it.
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

// worthRetrying reports whether to try such a request again: when there was no answer, or a 503
// that asks for a short pause at most.
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
