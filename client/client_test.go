package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for url, token := range map[string]string{
		"":                       "",
		"localhost:8080":         "",
		"ftp://x":                "",
		"http://":                "",
		"http://u:p@x":           "",
		"http://x?a=b":           "",
		"http://x":               "a b",
		"http://127.0.0.1:8080/": "a\nb",
	} {
		t.Run(url, func(t *testing.T) {
			_, err := New(url, token)
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), url)
			if strings.Contains(token, "b") {
				require.NotContains(t, err.Error(), token)
			}
		})
	}
	c, err := New(" http://x/base/ ", " token\n")
	require.NoError(t, err)
	require.Equal(t, "http://x/base", c.URL())
}

func TestRequestsCarryTheToken(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer a-token", r.Header.Get("Authorization"))
		require.Equal(t, "me/1", r.Header.Get("User-Agent"))
		writeJSON(w, 200, Task{ID: "t.1.1"})
	})
	task, err := f.client(t, WithUserAgent("me/1")).Get(t.Context(), "t.1.1")
	require.NoError(t, err)
	require.Equal(t, "t.1.1", task.ID)
}

func TestProblem(t *testing.T) {
	t.Parallel()
	fields := []FieldError{{Field: "priority",
		Message: "is -1; it must be 0 to 31536000 seconds (a year)"}}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w,
			Problem{Title: "Bad Request", Status: 400, Code: "invalid_argument",
				Detail: "priority is -1; it must be 0 to 31536000 seconds (a year)",
				Errors: fields})
	})
	_, err := f.client(t).Submit(t.Context(),
		NewTask{Type: "t", Context: JSON("{}"), Priority: Priority{-1}})
	require.EqualError(t, err,
		"400 invalid_argument: priority is -1; it must be 0 to 31536000 seconds (a year)")
	var answer *Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, 400, answer.Status)
	require.Equal(t, fields, answer.Problem.Errors)
	var known *asyncflow.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, asyncflow.CodeInvalid, known.Code)
	require.Equal(t, fields, known.Fields)
	require.False(t, Uncertain(err))
}

// An answer that isn't a problem document still gives a status and a code.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status      int
		contentType string
		body        string
		want        string
	}{
		"page":        {502, "text/html", "<html>", "502 unavailable: Bad Gateway"},
		"text":        {403, "text/plain", "go\n away", "403 permission_denied: go away"},
		"broken JSON": {404, "application/json", "{", "404 not_found: Not Found"},
		"other JSON": {500, "application/json", `{"message": "x"}`,
			"500 internal: Internal Server Error"},
		"not ours": {200, "text/html", "<html>", "is it an asyncflow server?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			_, err := f.client(t, WithRetries(0)).Get(t.Context(), "t.1.1")
			require.ErrorContains(t, err, tc.want)
			require.Len(t, f.requests(), 1)
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere/", http.StatusFound)
	})
	_, err := f.client(t).TaskTypes(t.Context())
	require.ErrorContains(t, err,
		"302 invalid_argument: redirects to http://elsewhere/, which is not followed")
}

func TestReadsAreRetried(t *testing.T) {
	t.Parallel()
	tries := 0
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries <= 2 {
			unavailable(w, "0")
			return
		}
		writeJSON(w, 200, ServerHealth{Status: "ok"})
	})
	health, err := f.client(t).Ready(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ok", health.Status)
	require.Len(t, f.requests(), 3)
}

// What a proxy answers while a node is away, and a rate that is used up, pass too.
func TestAnswersThatPassAreRetried(t *testing.T) {
	t.Parallel()
	for status, tries := range map[int]int{429: 2, 502: 2, 503: 2, 504: 2, 500: 1, 409: 1} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			_, err := f.client(t, WithRetries(1)).Ready(t.Context())
			require.Error(t, err)
			require.Len(t, f.requests(), tries)

			f = newFake(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			_, err = f.client(t, WithRetries(1)).Submit(t.Context(), NewTask{Type: "t", Key: "k",
				Context: JSON("1")})
			require.Equal(t, status >= 500 && status != 503, Uncertain(err))
			require.Len(t, f.requests(), tries)
		})
	}
}

// A request that was never sent does no harm when it is sent again, whatever it is.
func TestRefusedConnectionsAreRetried(t *testing.T) {
	t.Parallel()
	dials := 0
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 201, taskN(1)) })
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (
		net.Conn, error) {
		if dials++; dials == 1 {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	c := f.client(t, WithHTTPClient(&http.Client{Transport: transport}))
	_, err := c.Submit(t.Context(), NewTask{Type: "t", Context: JSON("1")})
	require.NoError(t, err)
	require.Equal(t, 2, dials)
	require.Len(t, f.requests(), 1)
}

func TestRetryAfterIsHeeded(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "1") })
	start := time.Now()
	_, err := f.client(t, WithRetries(1)).Ready(t.Context())
	require.ErrorContains(t, err, "503 unavailable: not now")
	require.Len(t, f.requests(), 2)
	require.GreaterOrEqual(t, time.Since(start), time.Second)
}

func TestLongRetryAfterIsTheCallersAffair(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "60") })
	_, err := f.client(t).Ready(t.Context())
	var answer *Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, time.Minute, answer.RetryAfter)
	require.Len(t, f.requests(), 1)
}

// Writes without keys aren't retried: a task submitted twice runs twice.
func TestWritesAreNeverRetried(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "0") })
	c, ctx := f.client(t), t.Context()
	_, submit := c.Submit(ctx, NewTask{Type: "t", Context: JSON("1")})
	_, many := c.SubmitMany(ctx, []NewTask{{Type: "t", Context: JSON("1")}})
	_, put := c.PutTaskType(ctx, "t", TaskTypeSpec{})
	_, create := c.CreateEndpoint(ctx, NewEndpoint{})
	for _, err := range []error{submit, many, put, create, c.DeleteTaskType(ctx, "t", false),
		c.DeleteEndpoint(ctx, "e")} {
		require.ErrorContains(t, err, "503")
		require.False(t, Uncertain(err))
	}
	require.Equal(t,
		[]string{"POST /v1/tasks", "POST /v1/tasks/batch", "PUT /v1/task-types/t",
			"POST /v1/endpoints", "DELETE /v1/task-types/t", "DELETE /v1/endpoints/e"},
		f.requests())
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	c, err := New(url, "", WithRetries(0))
	require.NoError(t, err)
	_, err = c.Submit(t.Context(), NewTask{Type: "t", Context: JSON("1")})
	require.EqualError(t, err, "no answer from "+url+": connect: connection refused")
	var connection *ConnectionError
	require.ErrorAs(t, err, &connection)
	require.True(t, connection.NotSent())
	require.False(t, Uncertain(err))
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
}

// If no answer comes in time, the result of a submit is uncertain.
func TestTimeout(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	f := newFake(t, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) })
	_, err := f.client(t, WithTimeout(50*time.Millisecond)).Submit(t.Context(),
		NewTask{Type: "t", Context: JSON("1")})
	require.ErrorContains(t, err, "nothing came in time")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, Uncertain(err))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = f.client(t).Get(ctx, "t.1.1")
	require.Equal(t, context.DeadlineExceeded, err)
}

func TestConnectionLostMidway(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		_ = conn.Close()
	})
	_, err := f.client(t).Submit(t.Context(), NewTask{Type: "t", Context: JSON("1")})
	require.True(t, Uncertain(err))
	require.Len(t, f.requests(), 1)
}

func TestPartsOfPathsAreChecked(t *testing.T) {
	t.Parallel()
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, Problem{Status: 404, Code: "not_found"})
	})
	c, ctx := f.client(t), t.Context()
	for _, id := range []string{"", ".", ".."} {
		t.Run(fmt.Sprintf("%q", id), func(t *testing.T) {
			_, err := c.Get(ctx, id)
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(c.DeleteEndpoint(ctx, id)))
			_, err = c.TaskTypeRolls(ctx, id)
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			_, err = c.EndpointHistory(ctx, id)
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		})
	}
	require.Empty(t, f.requests())
	_, err := c.Get(ctx, "a/../b?c")
	require.Error(t, err)
	require.Equal(t, []string{"GET /v1/tasks/a%2F..%2Fb%3Fc"}, f.requests())
	require.False(t, Uncertain(nil))
	require.True(t, Uncertain(errors.New("anything else")))
}
