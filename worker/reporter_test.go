package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// Whatever asyncflow asks for, the pause between two reports stays between half of the least and
// the most.
func TestBackoff(t *testing.T) {
	t.Parallel()
	const least, most = 500 * time.Millisecond, 30 * time.Second
	after := func(s string) *http.Response {
		return &http.Response{StatusCode: http.StatusServiceUnavailable,
			Header: http.Header{"Retry-After": {s}}}
	}
	for name, c := range map[string]struct {
		tries int
		resp  *http.Response
		want  time.Duration
	}{
		"first":            {0, nil, least},
		"third":            {2, nil, 4 * least},
		"far":              {5000, nil, most},
		"asked":            {0, after("10"), 10 * time.Second},
		"asked for none":   {0, after("0"), least},
		"asked for a year": {0, after("31536000"), most},
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				got := backoff(least, most, c.tries, c.resp)
				require.LessOrEqual(t, got, c.want, name)
				require.GreaterOrEqual(t, got, c.want/2, name)
			}
		})
	}
	for _, huge := range []string{"9223372036", "9223372037", "18446744073", "9223372036854775807",
		"99999999999999999999"} {
		t.Run(huge, func(t *testing.T) {
			got := backoff(least, most, 0, after(huge))
			require.GreaterOrEqual(t, got, least/2)
			require.LessOrEqual(t, got, most)
		})
	}
}

// A report is sent again until its context ends.
func TestReportEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 10 {
			cancel()
		}
		rw.WriteHeader(http.StatusBadGateway)
	}))
	err := newReporter(nil, time.Microsecond).Complete(ctx, Callback{URL: server.URL}, nil)
	server.Close()
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 10, tries.Load())
}

// The answer of asyncflow to a report decides its error.
func TestReporterErrors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/problem+json")
		if r.URL.Path == "/over/complete" {
			rw.WriteHeader(http.StatusConflict)
			_, _ = rw.Write(
				[]byte(`{"code":"conflict","detail":"this attempt is over: the task was cancelled"}`))
			return
		}
		rw.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	reporter := NewReporter(nil)
	err := reporter.Complete(t.Context(), Callback{URL: server.URL + "/over/"}, 1)
	require.ErrorIs(t, err, ErrLost)
	require.ErrorContains(t, err,
		"complete: the attempt is over: 409 conflict: this attempt is over: the task was cancelled")
	var answer *client.Error
	require.ErrorAs(t, err, &answer)
	require.ErrorContains(t, reporter.Progress(t.Context(), Callback{URL: server.URL}, 1, ""),
		"progress: 400 invalid_argument: Bad Request")
	require.Error(t, reporter.Complete(t.Context(), Callback{URL: "://"}, 1))
}
