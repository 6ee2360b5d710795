package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An http.Request is sent like a Request.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var got string
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("X-A")
		io.WriteString(rw, "{}")
	})
	r := setup(t, nil)
	for range 3 {
		req, err := http.NewRequest(http.MethodPost, w.URL, strings.NewReader("x"))
		require.NoError(t, err)
		req.Header.Set("X-A", "1")
		a, err := r.Do(req, 10)
		require.NoError(t, err)
		require.Equal(t, "{}", string(a.Body))
		require.Equal(t, "1", got)
	}
	require.EqualValues(t, 1, r.dialled.Load())
}

// A request that can't be written whole fails, and doesn't wait for its answer until the deadline.
func TestBodyOfAnotherLength(t *testing.T) {
	t.Parallel()
	at := listen(t, "http", tls.Certificate{}, waitForClose)
	r := setup(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for _, length := range []int64{10, 2 * inOneGo} {
		t.Run(fmt.Sprintf("%d bytes", length), func(t *testing.T) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader("x"))
			require.NoError(t, err)
			req.ContentLength = length
			_, err = r.RoundTrip(req)
			require.ErrorContains(t, err, "with Body length 1")
			require.Zero(t, r.idle.Len())
		})
	}
}

// Requests that this transport isn't made for are refused.
func TestRoundTripRefuses(t *testing.T) {
	t.Parallel()
	r := setup(t, nil)
	req, err := http.NewRequest(http.MethodGet, "http://worker.test", nil)
	require.NoError(t, err)
	_, err = r.RoundTrip(req)
	require.ErrorContains(t, err, "sends POST only")
	req, err = http.NewRequest(http.MethodPost, "http://worker.test", strings.NewReader("x"))
	require.NoError(t, err)
	req.ContentLength = -1
	_, err = r.RoundTrip(req)
	require.ErrorContains(t, err, "isn't known")
	require.Zero(t, r.dialled.Load())
}
