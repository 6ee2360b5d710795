package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// events is an open stream, read without a library.
type events struct {
	t     testing.TB
	body  io.ReadCloser
	lines *bufio.Reader
}

// event is one event of a stream; a comment is without a kind.
type event struct{ kind, id, data string }

// follow opens the stream of a task. It ends with the test unless ctx does before.
func (b *bundle) follow(ctx context.Context, token, id, last string) (*events, answer) {
	b.t.Helper()
	return b.followQuery(ctx, token, id, last, "")
}

func (b *bundle) followQuery(ctx context.Context, token, id, last, query string) (*events, answer) {
	b.t.Helper()
	return b.stream(ctx, token, "/v1/tasks/"+id+"/events"+query, last)
}

// stream opens the stream at a path. It ends with the test unless ctx does before.
func (b *bundle) stream(ctx context.Context, token, path, last string) (*events, answer) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", b.url+path, nil)
	require.NoError(b.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	if resp.StatusCode != 200 {
		defer resp.Body.Close()
		a := answer{status: resp.StatusCode, header: resp.Header}
		a.body, err = io.ReadAll(resp.Body)
		require.NoError(b.t, err)
		require.Equal(b.t, "application/problem+json", resp.Header.Get("Content-Type"))
		require.NoError(b.t, json.Unmarshal(a.body, &a.problem))
		return nil, a
	}
	return &events{b.t, resp.Body, bufio.NewReader(resp.Body)},
		answer{status: 200, header: resp.Header}
}

// next returns the next event or comment; io.EOF at the end of the stream.
func (e *events) next() (event, error) {
	var v event
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return v, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return v, nil
		}
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); name {
		case "event":
			v.kind = value
		case "id":
			v.id = value
		case "data":
			v.data += value
		}
	}
}

// attempt expects an attempt as the next event, and skips comments.
func (e *events) attempt() (a api.Attempt, id string) {
	e.t.Helper()
	v := e.expect("attempt")
	require.NoError(e.t, json.Unmarshal([]byte(v.data), &a), v.data)
	return a, v.id
}

func (e *events) task() (task api.Task) {
	e.t.Helper()
	v := e.expect("task")
	require.Empty(e.t, v.id, "it is no place to go on from")
	require.NoError(e.t, json.Unmarshal([]byte(v.data), &task), v.data)
	require.Nil(e.t, task.Context)
	return task
}

func (e *events) expect(kind string) event {
	e.t.Helper()
	for {
		v, err := e.next()
		require.NoError(e.t, err)
		if v.kind != "" {
			require.Equal(e.t, kind, v.kind, v.data)
			return v
		}
	}
}

// end expects the end of the stream, and skips comments.
func (e *events) end() {
	e.t.Helper()
	v, err := e.next()
	for err == nil && v == (event{}) {
		v, err = e.next()
	}
	require.ErrorIs(e.t, err, io.EOF, "%+v", v)
	require.Empty(e.t, v)
}

// The events of a task come as they happen, each before the next step is made.
func TestEvents(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, path := b.submitOne()
	e, a := b.follow(t.Context(), b.token, id, "")
	require.Equal(t, 200, a.status)
	assert.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
	task := e.task()
	assert.Equal(t, []any{id, asyncflow.StatusPending, "first", 1},
		[]any{task.ID, task.Status, task.Stage, task.Attempt})

	l, token := b.lease()
	task = e.task()
	assert.Equal(t, asyncflow.StatusRunning, task.Status)
	assert.WithinDuration(t, l.Until, task.Deadline, time.Millisecond)
	b.callAs(token, "POST", path+"/progress", `{"percent":40,"note":"page 12"}`)
	assert.Equal(t, api.Progress{Percent: 40, Note: "page 12"}, e.task().Progress)
	// no visible change
	b.callAs(token, "POST", path+"/progress", `{"percent":40,"note":"page 12"}`)
	b.callAs(token, "POST", path+"/heartbeat", "")
	assert.Greater(t, e.task().Deadline, task.Deadline)

	b.callAs(token, "POST", path+"/fail", `{"error":"not\nnow"}`)
	attempt, seq := e.attempt()
	assert.Equal(t, []any{"1", 1, "first", api.AttemptOutcome("failed"), "not\nnow"},
		[]any{seq, attempt.Seq, attempt.Stage, attempt.Outcome, attempt.Error})
	task = e.task()
	assert.Equal(t, []any{asyncflow.StatusPending, 2}, []any{task.Status, task.Attempt})

	_, token = b.lease()
	// waits_for changes
	for task = e.task(); task.Status == asyncflow.StatusPending; task = e.task() {
	}
	assert.Equal(t, asyncflow.StatusRunning, task.Status)
	b.callAs(token, "POST", path+"/complete", "{\"output\": {\"a\":\r\n\"<&>\\n\"}}")
	attempt, seq = e.attempt()
	assert.Equal(t, []any{"2", `{"a":"<&>\n"}`}, []any{seq, string(attempt.Output)})
	assert.Equal(t, "second", e.task().Stage)
	_, token = b.lease()
	assert.Equal(t, asyncflow.StatusRunning, e.task().Status)
	b.callAs(token, "POST", path+"/complete", `{"output":"end"}`)
	attempt, _ = e.attempt()
	assert.Equal(t, api.AttemptFinal("succeeded"), attempt.Final)
	task = e.task()
	assert.Equal(t, []any{asyncflow.StatusSucceeded, `"end"`},
		[]any{task.Status, string(task.Result)})
	e.end()

	// Afterwards the events can be read again, from the beginning or after an id.
	e, _ = b.follow(t.Context(), b.token, id, "")
	for want := range 3 {
		attempt, _ = e.attempt()
		assert.Equal(t, want+1, attempt.Seq)
	}
	assert.Equal(t, asyncflow.StatusSucceeded, e.task().Status)
	e.end()
	e, _ = b.follow(t.Context(), b.token, id, "2")
	attempt, _ = e.attempt()
	assert.Equal(t, 3, attempt.Seq)
	e.task()
	e.end()
	e, _ = b.follow(t.Context(), b.token, id, "3")
	e.task()
	e.end()
}

// Changes by another node are streamed too, after a while.
func TestEventsFromAnotherNode(t *testing.T) {
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	e, _ := b.follow(t.Context(), b.token, id, "")
	e.task()
	other, err := store.Open(t.Context(),
		store.Config{URL: b.dbURL, Node: "node-2", NoRoles: pgtest.NoRoles(),
			Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer other.Close()
	task, err := asyncflow.ParseTaskID(id)
	require.NoError(t, err)
	_, err = other.Cancel(t.Context(), "acme", task, "enough")
	require.NoError(t, err)
	attempt, _ := e.attempt()
	assert.Equal(t, "enough", attempt.Error)
	assert.Equal(t, asyncflow.StatusCancelled, e.task().Status)
	e.end()
}

// Errors are answered before a stream begins.
func TestEventsRefused(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	id, _ := b.submitOne()
	for name, c := range map[string]struct {
		token, id, last string
		status          int
		field           string
	}{
		"no such task":         {b.token, "pipe.1.999", "", 404, ""},
		"no task's id":         {b.token, "pipe", "", 400, "id"},
		"another tenant's":     {b.newToken("other", auth.ScopeRead), id, "", 404, ""},
		"no good token":        {"x", id, "", 401, ""},
		"without the scope":    {b.newToken("acme", auth.ScopeSubmit), id, "", 403, ""},
		"a word for the last":  {b.token, id, "last", 400, "Last-Event-ID"},
		"a negative last":      {b.token, id, "-1", 400, "Last-Event-ID"},
		"a last beyond all":    {b.token, id, "32768", 400, "Last-Event-ID"},
		"a far too large last": {b.token, id, strings.Repeat("9", 30), 400, "Last-Event-ID"},
	} {
		_, a := b.follow(t.Context(), c.token, c.id, c.last)
		assert.Equal(t, c.status, a.status, name)
		if c.field != "" && assert.NotEmpty(t, a.problem.Errors, name) {
			assert.Equal(t, c.field, a.problem.Errors[0].Field, name)
		}
	}
}

// A stream outlives the timeout of a write, and sends signs of life.
func TestEventsOutliveTheWriteTimeout(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.WriteTimeout, c.Streams.KeepAlive = 300*time.Millisecond, time.Millisecond
	})
	b.pipe()
	id, _ := b.submitOne()
	start := time.Now()
	e, _ := b.follow(t.Context(), b.token, id, "")
	e.task()
	for range 3 {
		v, err := e.next()
		require.NoError(t, err)
		require.Empty(t, v)
	}
	assert.Greater(t, time.Since(start), time.Second)
	b.call("POST", "/v1/tasks/"+id+"/cancel", "")
	e.attempt()
	e.task()
	e.end()
}

// A stream ends after the longest time, or when its token expires.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	short := func(b *bundle) string {
		token, err := b.issuer.Issue("acme", "test", []auth.Scope{auth.ScopeRead}, 3*time.Second,
			time.Now())
		require.NoError(t, err)
		return token
	}
	for name, c := range map[string]struct {
		longest time.Duration
		token   func(*bundle) string
	}{
		"the longest time": {time.Millisecond, func(b *bundle) string { return b.token }},
		"of the token":     {time.Hour, short},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupWith(t, func(cfg *httpapi.Config) { cfg.Streams.Longest = c.longest })
			b.pipe()
			id, _ := b.submitOne()
			e, _ := b.follow(t.Context(), c.token(b), id, "")
			assert.Equal(t, asyncflow.StatusPending, e.task().Status)
			e.end()
		})
	}
}

// A node follows a bounded number of tasks. Clients that went away, or only asked for the header,
// give their place back.
func TestEventsAreBounded(t *testing.T) {
	b := setupWith(t, func(c *httpapi.Config) {
		c.Streams.Max, c.Streams.MaxPerTenant, c.Streams.KeepAlive = 1, 2, time.Millisecond
	})
	b.pipe()
	id, _ := b.submitOne()
	assert.Equal(t, 404, b.call("GET", "/v1/tasks/pipe.1.999/events", "").status)
	assert.Equal(t, 200, b.call("HEAD", "/v1/tasks/"+id+"/events", "").status)
	var e *events
	opens := func() bool { // the place of one before is given back after its answer
		var a answer
		e, a = b.follow(t.Context(), b.token, id, "")
		return a.status == 200
	}
	require.Eventually(t, opens, patience, 20*time.Millisecond)
	e.task()
	_, a := b.follow(t.Context(), b.token, id, "")
	assert.Equal(t, []any{503, "unavailable", "5"},
		[]any{a.status, a.problem.Code, a.header.Get("Retry-After")})
	require.NoError(t, e.body.Close())
	require.Eventually(t, opens, patience, 10*time.Millisecond,
		"the keep-alive finds out that it is gone")
	e.task()
}

// Open streams don't keep a node from stopping, and end properly.
func TestEventsAtShutdown(t *testing.T) {
	ended := make(chan error, 1)
	t.Cleanup(func() { // after the bundle's, which stops the server
		require.ErrorIs(t, <-ended, io.EOF)
	})
	b := setup(t)
	b.pipe()
	id, _ := b.submitOne()
	e, _ := b.follow(context.Background(), b.token, id, "")
	e.task()
	go func() {
		_, err := e.next()
		ended <- err
	}()
}

// An attempt that ended by a report shows its endpoint, whether the report came before the answer
// or after it.
func TestReportsShowTheEndpoint(t *testing.T) {
	b := setup(t)
	b.pipe()
	made := read[api.Endpoint](b, 201,
		b.call("POST", "/v1/endpoints",
			`{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`))
	id, path := b.submitOne()
	report := func(call, body string) {
		l, _ := b.lease()
		token := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID, Seq: l.Seq,
			Expiry: time.Now().Add(time.Hour), Endpoint: made.ID})
		require.Equal(t, 200, b.callAs(token, "POST", path+call, body).status)
	}
	report("/fail", `{"error":"no"}`)
	report("/complete", "")
	require.Equal(t, 204, b.call("DELETE", "/v1/endpoints/"+made.ID, "").status)
	report("/complete", "")
	attempts := read[api.AttemptList](b, 200, b.call("GET", "/v1/tasks/"+id+"/attempts", "")).Data
	require.Len(t, attempts, 3)
	assert.Equal(t, []string{"https://w.example.com/x", "https://w.example.com/x", ""},
		[]string{attempts[0].Endpoint, attempts[1].Endpoint, attempts[2].Endpoint})
}

// A stream begins with the journal so far, one page at a time.
func TestEventsOfALongJournal(t *testing.T) {
	b := setup(t)
	const n, each = 250, 10 << 10
	id := b.journal(n, each)
	token := b.newToken("acme", auth.ScopeRead)
	for query, long := range map[string]bool{"": false, "?outputs=true": true} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		e, a := b.followQuery(ctx, token, id, "", query)
		require.Equal(t, 200, a.status)
		for seq := 1; seq <= n; seq++ {
			attempt, _ := e.attempt()
			require.Equal(t, seq, attempt.Seq)
			require.Equal(t, long, len(attempt.Output) == each+2)
			require.Equal(t, !long, attempt.OutputBytes == each+2)
		}
		require.Equal(t, id, e.task().ID, "after the journal")
		require.NoError(t, e.body.Close())
	}
}
