package thumbnails_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/examples/thumbnails"
)

// A report that meets a passing failure is sent again, unchanged.
func TestReportRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.asyncflow.answers(func(rw http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			rw.WriteHeader(http.StatusInternalServerError)
		case 2:
			rw.WriteHeader(http.StatusTooManyRequests)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		}
	})
	require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
	first := b.asyncflow.next(t, "complete")
	for range 3 {
		require.Equal(t, first, b.asyncflow.next(t, "complete"))
	}
	b.close(t)
	require.Empty(t, b.asyncflow.reports, "an accepted report isn't sent again")
}

// An answer that no retry can change ends the report.
func TestReportGivenUp(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusConflict:          "resized too late; result dropped",
		http.StatusUnauthorized:      "refused with 401",
		http.StatusNotFound:          "refused with 404",
		http.StatusTemporaryRedirect: "refused with 307",
		http.StatusOK:                "msg=resized ",
	} {
		var log bytes.Buffer
		b := setup(t, func(c *thumbnails.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		b.asyncflow.answers(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "/elsewhere")
			rw.WriteHeader(status)
		})
		require.Equal(t, http.StatusAccepted, b.deliver(t, "resize", "small.png").status)
		b.close(t)
		require.Len(t, b.asyncflow.reports, 1, status)
		require.Contains(t, log.String(), want)
		require.NotContains(t, log.String(), token)
	}
}

// Nothing is done or reported after the deadline: by then the task is delivered
// again.
func TestDeadlinePassed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	envelope := b.envelope("resize", map[string]any{"image": "small.png"})
	envelope["deadline"] = now().Add(-time.Second).Format(time.RFC3339)
	require.Equal(t, http.StatusAccepted, b.post(t, "resize", signed(t, now(), envelope)).status)
	b.close(t)
	require.Empty(t, b.asyncflow.reports)
	require.Empty(t, files(t, b.out))
}
