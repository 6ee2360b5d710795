package worker

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A handler that takes longer than the answer waits is accepted, and reported when it is done.
func TestSlowHandler(t *testing.T) {
	b := setup(t, func(c *Config) { c.AnswerWithin = time.Millisecond })
	release := make(chan struct{})
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		<-release
		return picture{5}, nil
	})
	m := signed(t, b.envelope(`{}`))
	require.Equal(t, 202, b.post(m).status)
	require.Equal(t, 202, b.post(m).status, "the same request again")
	require.Empty(t, b.asyncflow.reports)
	close(release)
	require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
	b.close()
	require.Empty(t, b.asyncflow.reports)
}

// When the connection breaks, the handler goes on: asyncflow may have been restarted. Its result is
// reported, and a heartbeat asks whether it still counts.
func TestBrokenConnection(t *testing.T) {
	b := setup(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		close(started)
		<-release
		return picture{5}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	m := signed(t, b.envelope(`{}`))
	go func() { _, err := b.try(ctx, m); gone <- err }()
	<-started
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	b.asyncflow.next(t, "heartbeat")
	close(release)
	require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
	require.Equal(t, 202, b.post(m).status, "the same request again")
}

// A report is sent unchanged until asyncflow accepts it.
func TestReportsAreRetried(t *testing.T) {
	b := setup(t)
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		return picture{5}, nil
	}, AnswerWithin(-1))
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
	require.Equal(t, 202, b.deliver(`{}`).status)
	for range 4 {
		require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
	}
	b.close()
	require.Empty(t, b.asyncflow.reports, "a report that was taken isn't sent again")
}

// An answer that no other try can change ends a report. An output that is refused fails the task
// for good, so that it doesn't wait for its deadline.
func TestReportsGivenUp(t *testing.T) {
	for status, want := range map[int][]string{
		http.StatusConflict:              {"complete"},
		http.StatusGone:                  {"complete"},
		http.StatusUnauthorized:          {"complete"},
		http.StatusNotFound:              {"complete"},
		http.StatusTemporaryRedirect:     {"complete"},
		http.StatusRequestEntityTooLarge: {"complete", "fail"},
		http.StatusBadRequest:            {"complete", "fail"},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			b := setup(t)
			b.inspects(func(context.Context, Task[photo]) (picture, error) {
				return picture{5}, nil
			}, AnswerWithin(-1))
			b.asyncflow.answers(func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Location", "/v1/callbacks/images.1.42/elsewhere")
				rw.WriteHeader(status)
			})
			require.Equal(t, 202, b.deliver(`{}`).status)
			b.close()
			require.Len(t, b.asyncflow.reports, len(want))
			for _, verb := range want {
				require.Equal(t, verb, (<-b.asyncflow.reports).verb)
			}
		})
	}
}

// Heartbeats are sent while the handler runs. Their answers may end its context.
func TestHeartbeats(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"cancelled": {func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(`{"status":"cancelled"}`))
		}, ErrCancelled},
		"over":    {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(409) }, ErrLost},
		"expired": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(401) }, ErrLost},
		"gone":    {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(404) }, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, func(c *Config) { c.Heartbeat = 5 * time.Millisecond })
			causes := make(chan error, 1)
			b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
				for range 3 { // while asyncflow says nothing else it goes on
					b.asyncflow.next(t, "heartbeat")
				}
				b.asyncflow.answers(c.answer)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return picture{}, ctx.Err()
			}, AnswerWithin(-1))
			b.asyncflow.beats("running", time.Minute, 200)
			require.Equal(t, 202, b.deliver(`{}`).status)
			require.ErrorIs(t, <-causes, c.want)
			b.close()
			for len(b.asyncflow.reports) > 0 {
				require.Equal(t, "heartbeat", (<-b.asyncflow.reports).verb,
					"the failure of an attempt that is over is no news")
			}
		})
	}
}

// The context ends, too, when progress is refused because the attempt is over, long before the next
// heartbeat is due.
func TestProgressOfWhatIsOver(t *testing.T) {
	b := setup(t)
	causes := make(chan error, 1)
	b.inspects(func(ctx context.Context, task Task[photo]) (picture, error) {
		b.asyncflow.answers(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/heartbeat") {
				_, _ = rw.Write([]byte(`{"status":"cancelled"}`))
				return
			}
			rw.WriteHeader(409)
		})
		if err := task.Progress(ctx, 10, ""); !errors.Is(err, ErrLost) {
			causes <- err
			return picture{}, nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return picture{}, ctx.Err()
	}, AnswerWithin(-1))
	require.Equal(t, 202, b.deliver(`{}`).status)
	require.ErrorIs(t, <-causes, ErrCancelled)
}

// Finished work is reported even if its attempt is over: it counts until another attempt starts.
func TestDoneThoughLost(t *testing.T) {
	b := setup(t, func(c *Config) { c.Heartbeat = time.Millisecond })
	b.asyncflow.beats("running", time.Minute, 200)
	b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
		b.asyncflow.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(409) })
		<-ctx.Done()
		b.asyncflow.beats("running", time.Minute, 200)
		return picture{5}, nil
	}, AnswerWithin(-1))
	require.Equal(t, 202, b.deliver(`{}`).status)
	require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
}

// While asyncflow is away, the deadline counts: after it, another attempt may be in flight.
// Heartbeats postpone it.
func TestDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		beyond bool
	}{
		"away": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) },
			false},
		"can be read": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, func(c *Config) { c.Heartbeat = 10 * time.Millisecond })
			b.asyncflow.beats("running", time.Minute, 200)
			if c.answer != nil {
				b.asyncflow.answers(c.answer)
			}
			e := b.envelope(`{}`)
			deadline := time.Now().Add(2 * time.Second)
			e["deadline"] = deadline.Format(time.RFC3339Nano)
			b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
				select {
				case <-ctx.Done():
					return picture{}, Fail(context.Cause(ctx))
				case <-time.After(time.Until(deadline) + 200*time.Millisecond):
					return picture{5}, nil
				}
			}, AnswerWithin(-1))
			require.Equal(t, 202, b.post(signed(t, e)).status)
			if c.beyond {
				require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
				return
			}
			require.Contains(t, b.asyncflow.next(t, "fail"), ErrLost.Error())
			require.False(t, time.Now().Before(deadline))
			b.asyncflow.beats("running", time.Minute, 200) // it comes back: late reports count
		})
	}
}

// A delivery that arrives after its deadline isn't worked on.
func TestDeliveredTooLate(t *testing.T) {
	b := setup(t)
	b.inspects(func(context.Context, Task[photo]) (picture, error) { panic("not called") })
	e := b.envelope(`{}`)
	e["deadline"] = time.Now().Add(-3 * time.Second).Format(time.RFC3339Nano)
	require.JSONEq(t, `{"outcome":"retry","error":"its deadline had passed when it came"}`,
		b.post(signed(t, e)).body)
}

// Deadlines use the clock of asyncflow's database. The worker's clock may be wrong by minutes.
func TestOtherClock(t *testing.T) {
	b := setup(t)
	b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
		return picture{1}, ctx.Err()
	})
	for _, wrong := range []time.Duration{-4 * time.Minute, 4 * time.Minute} {
		e := b.envelope(`{}`)
		e["deadline"] = time.Now().Add(wrong + time.Minute).Format(time.RFC3339Nano)
		require.JSONEq(t, `{"output":{"width":1}}`,
			b.post(signedAt(t, time.Now().Add(wrong), e, secret)).body)
	}
}

// A handler that hangs is ended by its time limit, and the attempt fails.
func TestTimeLimit(t *testing.T) {
	b := setup(t)
	b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
		<-ctx.Done()
		return picture{}, ctx.Err()
	}, TimeLimit(time.Millisecond))
	require.JSONEq(t,
		`{"outcome":"retry","error":"context deadline exceeded (the handler's time limit is over)"}`,
		b.deliver(`{}`).body)
}

// Close waits for deliveries in flight, and refuses later ones.
func TestClose(t *testing.T) {
	b := setup(t)
	release := make(chan struct{})
	b.inspects(func(context.Context, Task[photo]) (picture, error) {
		<-release
		return picture{5}, nil
	}, AnswerWithin(-1))
	require.Equal(t, 202, b.deliver(`{}`).status)
	closed := make(chan error, 1)
	go func() { closed <- b.worker.Close(context.Background()) }()
	require.Eventually(t, func() bool { return b.deliver(`{}`).status == 503 }, soon,
		20*time.Millisecond)
	require.Empty(t, closed)
	close(release)
	require.NoError(t, <-closed)
	require.JSONEq(t, `{"output":{"width":5}}`, b.asyncflow.next(t, "complete"))
	b.close() // again does nothing
}

// A Close interrupts the work at the end of its context: the task is retried at once, and not only
// after its deadline.
func TestCloseCutShort(t *testing.T) {
	b := setup(t)
	b.inspects(func(ctx context.Context, _ Task[photo]) (picture, error) {
		<-ctx.Done()
		return picture{}, ctx.Err()
	}, AnswerWithin(-1))
	require.Equal(t, 202, b.deliver(`{}`).status)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.worker.Close(ctx)
	require.ErrorContains(t, err, "1 deliveries were cut short")
	require.True(t, errors.Is(err, context.Canceled))
	require.JSONEq(t, `{"error":"context canceled (the worker is stopping)","retryable":true}`,
		b.asyncflow.next(t, "fail"))
}

// A handler leaves a checkpoint with a heartbeat, and gets what an earlier attempt left.
func TestCheckpoint(t *testing.T) {
	b := setup(t)
	b.asyncflow.beats("running", time.Minute, 200)
	b.inspects(func(ctx context.Context, task Task[photo]) (picture, error) {
		require.JSONEq(t, `{"page":11}`, string(task.Checkpoint))
		require.ErrorContains(t, task.SaveCheckpoint(ctx, math.NaN()), "checkpoint: ")
		require.NoError(t, task.SaveCheckpoint(ctx, map[string]int{"page": 12}))
		b.asyncflow.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(409) })
		require.ErrorIs(t, task.SaveCheckpoint(ctx, 13), ErrLost)
		<-ctx.Done()
		return picture{}, ctx.Err()
	}, AnswerWithin(-1))
	e := b.envelope(`{}`)
	e["checkpoint"] = map[string]int{"page": 11}
	require.Equal(t, 202, b.post(signed(t, e)).status)
	require.JSONEq(t, `{"checkpoint":{"page":12}}`, b.asyncflow.next(t, "heartbeat"))
}
