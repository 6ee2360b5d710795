package thumbnails

import (
	"context"
	"image"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for size, want := range map[image.Point]image.Point{
		{X: 1600, Y: 1000}: {X: 256, Y: 160},
		{X: 1000, Y: 1600}: {X: 160, Y: 256},
		{X: 256, Y: 256}:   {X: 256, Y: 256},
		{X: 257, Y: 257}:   {X: 256, Y: 256},
		{X: 30, Y: 20}:     {X: 30, Y: 20},
		{X: 50_000, Y: 1}:  {X: 256, Y: 1},
		{X: 1, Y: 50_000}:  {X: 1, Y: 256},
	} {
		require.Equal(t, want, fit(size, 256), size)
	}
}

// Whatever the server asks for, the wait stays between half of the least and
// the most.
func TestBackoff(t *testing.T) {
	t.Parallel()
	const least, most = 500 * time.Millisecond, 30 * time.Second
	after := func(s string) *http.Response {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {s}}}
	}
	for name, c := range map[string]struct {
		tries int
		res   *http.Response
		want  time.Duration
	}{
		"first":            {0, nil, least},
		"third":            {2, nil, 4 * least},
		"far":              {5000, nil, most},
		"asked":            {0, after("10"), 10 * time.Second},
		"asked for none":   {0, after("0"), least},
		"asked for a year": {0, after("31536000"), most},
	} {
		for range 100 {
			got := backoff(least, most, c.tries, c.res)
			require.LessOrEqual(t, got, c.want, name)
			require.GreaterOrEqual(t, got, c.want/2, name)
		}
	}
	for _, huge := range []string{"9223372036", "9223372037", "18446744073", "9223372036854775807", "99999999999999999999"} {
		got := backoff(least, most, 0, after(huge))
		require.GreaterOrEqual(t, got, least/2, huge)
		require.LessOrEqual(t, got, most, huge)
	}
}

// A report is sent again and again, until its context ends.
func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var tries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 10 {
			cancel()
		}
		rw.WriteHeader(http.StatusBadGateway)
	}))
	err := newReporter(time.Microsecond).send(ctx, callback{URL: server.URL}, "complete", nil)
	server.Close()
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 10, tries.Load())
}
