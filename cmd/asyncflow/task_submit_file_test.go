package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// sink is a server that takes batches, and records their contexts.
type sink struct {
	mu       sync.Mutex
	contexts map[string]int // number of times that each was taken
	inFlight int
	most     int
	calls    int
	before   func(w http.ResponseWriter, call int) bool // true: it answered
}

func newSink(
	t *testing.T, before func(w http.ResponseWriter, call int) bool,
) (*sink, map[string]string) {
	s := &sink{contexts: map[string]int{}, before: before}
	return s, serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls++
		call := s.calls
		s.inFlight++
		s.most = max(s.most, s.inFlight)
		s.mu.Unlock()
		s.take(w, r, call)
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	})
}

func (s *sink) take(w http.ResponseWriter, r *http.Request, call int) {
	var in api.NewTaskBatch
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Tasks) > 1000 {
		answerProblem(w, 400, "invalid_argument")
		return
	}
	if s.before != nil && s.before(w, call) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out api.SubmittedBatch
	for i, task := range in.Tasks {
		if strings.Contains(string(task.Context), "refuse") {
			out.Tasks = append(out.Tasks, api.BatchResult{Error: client.Problem{Status: 400,
				Code: "invalid_argument", Detail: "context is odd",
				Errors: []client.FieldError{{Field: fmt.Sprintf("tasks[%d].context", i),
					Message: "is odd"}}}})
			continue
		}
		s.contexts[string(task.Context)]++
		out.Tasks = append(out.Tasks, api.BatchResult{Task: client.SubmittedTask{ID: "t.1.1",
			Existing: task.Key == "used"}})
	}
	answer(w, 201, out)
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d}\n", i+1)
	}
	return b.String()
}

func TestBulk(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	s, env := newSink(t, func(_ http.ResponseWriter, call int) bool {
		if call == 4 {
			close(full)
		}
		<-full // so that the first four are there at once
		return false
	})
	lines := strings.Split(numbers(25_000), "\n")
	lines[4], lines[7], lines[12_000], lines[24_999] = "{bad", "  ", `"refuse"`, "5 5"
	file := writeFile(t, strings.Join(lines, "\r\n"))
	r := runCLI(t, env, "tasks", "submit", "t", "-f", file)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "submitted 24996, refused 3\n", r.stdout)
	require.ElementsMatch(t, []string{
		"asyncflow: line 5: is not valid JSON",
		"asyncflow: line 12001: context is odd",
		"asyncflow: line 25000: is not valid JSON",
	}, strings.Split(strings.TrimSpace(r.stderr), "\n"))
	require.Len(t, s.contexts, 24_996)
	require.Equal(t, 4, s.most)
	for context, times := range s.contexts {
		require.Equal(t, 1, times, context)
	}
}

func TestBulkOfWholeTasks(t *testing.T) {
	t.Parallel()
	s, env := newSink(t, nil)
	file := writeFile(t, "\ufeff"+`{"type": "t", "context": 1, "delay": "5m"}
{"type": "t", "context": 2, "dealy": "5m"}
{"type": "t", "context": 3, "delay": 5}
[4]
{"type": "t"}
{"type": "t", "context": 6, "key": "used"}
{"type": "t", "context": 7, "key": ""}`)
	r := runCLI(t, env, "tasks", "submit", "-f", file, "-o", "json")
	require.Equal(t, exitFailed, r.code)
	require.JSONEq(t, `{"submitted": 2, "existing": 1, "refused": 5, "unknown": 0}`, r.stdout)
	require.ElementsMatch(t, []string{
		`asyncflow: line 2: unknown field "dealy"`,
		"asyncflow: line 3: delay must not be a number",
		"asyncflow: line 4: is a array; without a task type each line must be a whole task",
		"asyncflow: line 5: context is required",
		"asyncflow: line 7: key must not be empty",
	}, strings.Split(strings.TrimSpace(r.stderr), "\n"))
	require.Equal(t, map[string]int{"1": 1, "6": 1}, s.contexts)

	r = runCLI(t, env, "tasks", "submit", "-f",
		writeFile(t, `{"type": "t", "context": 1, "key": "used"}`))
	require.Equal(t, ran{0, "submitted 1 (existing 1), refused 0\n", ""}, r)
}

// A chunk that the server surely didn't take is submitted again.
func TestBulkOutlastsAShortOutage(t *testing.T) {
	t.Parallel()
	s, env := newSink(t, func(w http.ResponseWriter, call int) bool {
		if call != 6 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		answer(w, 503, client.Problem{Status: 503, Code: "unavailable", Detail: "restarting"})
		return true
	})
	r := runCLI(t, env, "tasks", "submit", "t", "-f", writeFile(t, numbers(8000)))
	require.Equal(t, ran{0, "submitted 8000, refused 0\n", ""}, r)
	require.Len(t, s.contexts, 8000)
	require.Equal(t, 9, s.calls)
}

// A chunk is not submitted again if it isn't known what became of it: its tasks might run twice.
func TestBulkStopsWhenItCannotKnow(t *testing.T) {
	t.Parallel()
	s, env := newSink(t, func(w http.ResponseWriter, call int) bool {
		if call == 6 { // when some are submitted already
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
		return call == 6
	})
	r := runCLI(t, env, "tasks", "submit", "t", "-f", writeFile(t, numbers(100_000)))
	require.Equal(t, exitUnavailable, r.code)
	require.Regexp(t,
		`asyncflow: lines \d+ to \d+: it is unknown whether they were submitted: no answer from`,
		r.stderr)
	require.Regexp(t, `asyncflow: stopped: nothing after line \d+ was submitted\n$`, r.stderr)
	require.Equal(t, fmt.Sprintf("submitted %d, refused 0, unknown 1000\n", len(s.contexts)),
		r.stdout)
	require.Less(t, len(s.contexts), 99_000)
	for _, times := range s.contexts {
		require.Equal(t, 1, times)
	}
}

func TestBulkStopsAtOnceWithoutAServer(t *testing.T) {
	t.Parallel()
	r := runCLI(t, map[string]string{"ASYNCFLOW_URL": closedURL(t)}, "tasks", "submit", "t", "-f",
		writeFile(t, numbers(10)))
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, "asyncflow: lines 1 to 10: not submitted: no answer from")
	require.Equal(t, "submitted 0, refused 0\n", r.stdout)
}

// A tenant that is over its rate waits as the server asks, even before the first task is taken.
func TestBulkWaitsForTheRate(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s, env := newSink(t, func(w http.ResponseWriter, call int) bool {
		if call > 2 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		answer(w, 429, client.Problem{Status: 429, Code: "rate_limited",
			Detail: "the tenant's quota submits_per_second is 1"})
		return true
	})
	r := runCLI(t, env, "tasks", "submit", "t", "-f", writeFile(t, numbers(10)))
	require.Zero(t, r.code, r.stderr)
	require.Len(t, s.contexts, 10)
	require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
}

func TestBulkStopsWhenForbidden(t *testing.T) {
	t.Parallel()
	_, env := newSink(t,
		func(w http.ResponseWriter,
			_ int) bool {
			answerProblem(w, 403, "permission_denied")
			return true
		})
	r := runCLI(t, env, "tasks", "submit", "t", "-f", writeFile(t, numbers(10)))
	require.Equal(t, exitForbidden, r.code)
	require.Contains(t, r.stderr, "lines 1 to 10: not submitted: 403 permission_denied")
}

func TestLongLineIsRefused(t *testing.T) {
	t.Parallel()
	in := io.MultiReader(strings.NewReader("1\n\""),
		strings.NewReader(strings.Repeat("x", maxLine)), strings.NewReader("\"\n3\n"))
	l := newLineReader(in, client.NewTask{Type: "t"})
	var lines []int
	var refused []badLine
	for {
		c, err := l.next()
		lines, refused = append(lines, c.lines...), append(refused, c.refused...)
		if err != nil {
			require.Equal(t, io.EOF, err)
			break
		}
	}
	require.Equal(t, []int{1, 3}, lines)
	require.Equal(t, []badLine{{2, "is longer than 16777216 bytes"}}, refused)
}

func TestReadErrorIsTold(t *testing.T) {
	t.Parallel()
	l := newLineReader(io.MultiReader(strings.NewReader("1\n2"),
		iotest.ErrReader(errors.New("broken pipe"))), client.NewTask{Type: "t"})
	c, err := l.next()
	require.EqualError(t, err, "broken pipe")
	require.Equal(t, []int{1}, c.lines, "half a line is no task")
}
