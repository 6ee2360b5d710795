package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// sdkWorker is a worker with the SDK, on its own server.
type sdkWorker struct {
	*sdk.Worker
	url string
}

// requestKey is the key for the context of its request in the context of a handler. That one ends
// when the request was answered, or its sender is gone.
type requestKey struct{}

func startSDKWorker(t *testing.T, cfg sdk.Config) *sdkWorker {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Keys == nil && cfg.Registration == nil {
		cfg.Keys = []string{testWebhook}
	}
	w, err := sdk.New(cfg)
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Context())))
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, w.Close(ctx))
		server.CloseClientConnections()
		server.Close()
	})
	return &sdkWorker{w, server.URL}
}

// pipe creates the task type of the tests with stages, and registers the worker for those that
// it handles.
func (w *sdkWorker) pipe(t *testing.T, c *client.Client, stages ...client.Stage) {
	t.Helper()
	_, err := c.PutTaskType(t.Context(), "pipe", client.TaskTypeSpec{Stages: stages})
	require.NoError(t, err)
	require.NoError(t, w.Register(t.Context(), sdk.Registration{Client: c, URL: w.url}))
}

func stage(name string, change ...func(*client.Stage)) client.Stage {
	s := client.Stage{Name: name, Retry: asyncflow.RetryPolicy{MaxAttempts: 3,
		Interval: asyncflow.Seconds(-0.1)}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// submit submits a task of the pipe.
func submit(t *testing.T, c *client.Client, doc string) string {
	t.Helper()
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON(doc),
		Key: "one of " + t.Name() + doc})
	require.NoError(t, err)
	return task.ID
}

// ended waits for the end of a task, and returns it with the outcomes of its attempts.
func ended(t *testing.T, c *client.Client, id string) (client.Task, string) {
	t.Helper()
	task, err := c.Wait(t.Context(), id, patience)
	require.NoError(t, err)
	require.True(t, task.Status.Final(), "%+v", task)
	attempts, err := c.Attempts(t.Context(), id)
	require.NoError(t, err)
	var outcomes []string
	for _, a := range attempts {
		outcomes = append(outcomes, a.Stage+" "+string(a.Outcome))
	}
	return task, strings.Join(outcomes, ", ")
}

type counted struct {
	N int `json:"n"`
}

// A worker that registers itself needs no key: asyncflow creates one for each endpoint, and
// challenges the endpoints. Registering again, even by another process, gives the same
// endpoints.
func TestSDKRegister(t *testing.T) {
	t.Parallel()
	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_VERIFY_ENDPOINTS=true"), "serve")
	c := p.client()
	registration := sdk.Registration{Client: c}
	w := startSDKWorker(t, sdk.Config{Registration: &registration})
	double := func(_ context.Context, task sdk.Task[counted]) (counted, error) {
		return counted{2 * task.Context.N}, nil
	}
	sdk.Handle(w.Worker, "pipe", "first", double)
	sdk.Handle(w.Worker, "pipe", "second", double, sdk.AnswerWithin(-1))
	registration.URL = w.url
	require.ErrorContains(t, w.Register(t.Context(), registration),
		"worker.Register pipe/first: 404 not_found")
	w.pipe(t, c, stage("first"), stage("second"))
	task, outcomes := ended(t, c, submit(t, c, `{"n": 3}`))
	require.JSONEq(t, `{"n": 12}`, string(task.Result))
	require.Equal(t, "first done, second done", outcomes)

	before, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, before, 2)
	require.NoError(t, w.Register(t.Context(), registration))
	fresh := startSDKWorker(t, sdk.Config{Registration: &registration}) // knows no key yet
	sdk.Handle(fresh.Worker, "pipe", "first", double)
	require.NoError(t, fresh.Register(t.Context(), registration))
	after, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, after, 2)
	for i := range before {
		require.Equal(t, before[i].ID, after[i].ID)
		require.Equal(t, []any{"verified", ""}, []any{string(after[i].Verification),
			after[i].VerificationError})
	}

	stranger := startSDKWorker(t, sdk.Config{Keys: []string{testWebhook}})
	sdk.Handle(stranger.Worker, "pipe", "first", double)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe", Stage: "first",
		URL: stranger.url, Secret: "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="})
	require.NoError(t, err)
	err = stranger.Register(t.Context(), sdk.Registration{Client: c, URL: stranger.url})
	require.ErrorContains(t, err, "didn't echo its challenge")
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
}

// Serve registers once asyncflow is up, and ends with its context.
func TestSDKServe(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	env := append(nodeEnv(database(t)), "ASYNCFLOW_LISTEN="+freeAddress(t))
	p := start(t, env, "serve")
	c := p.client()
	_, err = c.PutTaskType(t.Context(), "pipe",
		client.TaskTypeSpec{Stages: []client.Stage{stage("first")}})
	require.NoError(t, err)
	p.halt(syscall.SIGKILL)
	w, err := sdk.New(sdk.Config{Keys: []string{testWebhook}, Log: slog.New(slog.DiscardHandler),
		Registration: &sdk.Registration{Client: c, URL: "http://" + l.Addr().String(),
			Prepare: func(e *client.NewEndpoint) { e.MaxInFlight = 7 }}})
	require.NoError(t, err)
	sdk.Handle(w, "pipe", "first", func(_ context.Context, task sdk.Task[sdk.None]) (string,
		error) {
		return task.ID, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.Serve(ctx, l) }()

	start(t, env, "serve")
	id := submit(t, c, `1`)
	task, _ := ended(t, c, id)
	require.Equal(t, `"`+id+`"`, string(task.Result))
	endpoints, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, endpoints, 1)
	require.Equal(t, 7, int(endpoints[0].MaxInFlight))
	cancel()
	require.NoError(t, <-served)
}

// freePort counts up from a random one, so that no two tests of this machine get the same.
var freePort atomic.Int32

func init() { freePort.Store(10_000 + rand.Int32N(20_000)) }

// freeAddress returns an address on this machine on which nothing listens. Its port is below
// those that the system assigns, so it stays free.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", freePort.Add(1)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// asyncflow is killed while a handler runs, before or after its delivery was accepted, and is
// restarted: the work isn't done twice.
func TestSDKSurvivesARestart(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, within := range map[string]time.Duration{"before the answer": 20 * time.Second,
		"after 202": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, address := database(t), freeAddress(t)
			env := append(nodeEnv(url), "ASYNCFLOW_LISTEN="+address)
			p := start(t, env, "serve")
			w := startSDKWorker(t, sdk.Config{AnswerWithin: within})
			var calls atomic.Int32
			started, release := make(chan context.Context, 10), make(chan struct{})
			sdk.Handle(w.Worker, "pipe", "first",
				func(ctx context.Context, task sdk.Task[counted]) (counted,
					error) {
					calls.Add(1)
					started <- ctx.Value(requestKey{}).(context.Context)
					<-release
					return counted{task.Context.N + 1}, ctx.Err()
				})
			// The lease must outlast the restart, however long it takes.
			long := func(s *client.Stage) { s.Timeout = asyncflow.NewDuration(10 * time.Minute) }
			w.pipe(t, p.client(), stage("first", long))
			id := submit(t, p.client(), `{"n": 1}`)
			request := <-started
			p.halt(syscall.SIGKILL)
			<-request.Done() // an answer to a dead sender that isn't known as such would be lost
			close(release)   // the first reports find no server
			again := start(t, env, "serve")
			task, outcomes := ended(t, again.client(), id)
			require.JSONEq(t, `{"n": 2}`, string(task.Result))
			require.Equal(t, "first done", outcomes)
			require.EqualValues(t, 1, calls.Load())
			closing, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, w.Close(closing),
				"the answer to its report comes while the node is there")
		})
	}
}

// The results of handlers decide the outcomes of their tasks.
func TestSDKOutcomes(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	callbacks := make(chan sdk.Callback, 2)
	work := func(ctx context.Context, task sdk.Task[string]) (string, error) {
		switch {
		case task.Context == "fail":
			return "", sdk.Fail(errors.New("no such image"))
		case task.Context == "retry" && task.Attempt < 3:
			return "", sdk.Retry(errors.New("busy"), time.Millisecond)
		case task.Context == "snooze" && task.Seq < 3:
			return "", sdk.Snooze(time.Second)
		case task.Context == "panic" && task.Attempt == 1:
			panic("no")
		case task.Context == "later":
			callbacks <- task.Callback
			return "", sdk.Later
		case task.Context == "large":
			return strings.Repeat("x", 300<<10), nil
		}
		return task.Context, task.Progress(ctx, 40, "page 12")
	}
	sdk.Handle(w.Worker, "pipe", "answered", work)
	sdk.Handle(w.Worker, "pipe", "reported", work, sdk.AnswerWithin(-1))
	w.pipe(t, c, stage("answered"), stage("reported"))
	for doc, want := range map[string][2]string{
		`"<ü>"`:  {"succeeded", "answered done, reported done"},
		`"fail"`: {"failed", "answered rejected"},
		`1`:      {"failed", "answered rejected"},
		`"retry"`: {"succeeded",
			"answered failed, answered failed, answered done, reported failed, reported failed, " +
				"reported done"},
		`"snooze"`: {"succeeded", "answered snoozed, answered snoozed, answered done, reported done"},
		`"panic"`:  {"succeeded", "answered failed, answered done, reported failed, reported done"},
		`"large"`:  {"failed", "answered failed, answered failed, answered failed"},
	} {
		t.Run(doc, func(t *testing.T) {
			task, outcomes := ended(t, c, submit(t, c, doc))
			assert.Equal(t, want, [2]string{string(task.Status), outcomes})
			if want[0] == "succeeded" {
				assert.Equal(t, doc, string(task.Result))
			}
		})
	}
	id := submit(t, c, `"later"`)
	reporter := sdk.NewReporter(nil)
	for _, output := range []string{"later", "done by another"} {
		require.NoError(t, reporter.Complete(t.Context(), <-callbacks, output))
	}
	task, outcomes := ended(t, c, id)
	require.Equal(t, []string{`"done by another"`, "answered done, reported done"},
		[]string{string(task.Result), outcomes})
}

// A worker goes back, skips a stage and finishes, by answers and by reports. A choice that isn't
// allowed fails an attempt, and changes nothing else.
func TestSDKSteps(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	fetch := func(_ context.Context, task sdk.Task[counted]) (counted, error) {
		if task.Context.N == 2 && task.Attempt == 1 {
			return counted{9}, sdk.Next("stroe")
		}
		return counted{task.Context.N + 1}, sdk.Next("store")
	}
	store := func(_ context.Context, task sdk.Task[counted]) (counted, error) {
		if task.Context.N < 3 {
			return task.Context, fmt.Errorf("not the last page: %w", sdk.Next("fetch"))
		}
		return task.Context, sdk.Finish
	}
	late := sdk.AnswerWithin(-1)
	sdk.Handle(w.Worker, "pipe", "fetch", fetch)
	sdk.Handle(w.Worker, "pipe", "store", store, late)
	never := func(context.Context, sdk.Task[counted]) (counted, error) {
		return counted{}, errors.New("it was skipped")
	}
	sdk.Handle(w.Worker, "pipe", "skipped", never)
	first, skipped, last := stage("fetch"), stage("skipped"), stage("store")
	first.Next = []string{"store"}
	last.Next = []string{"fetch", asyncflow.NextFinish}
	w.pipe(t, c, first, skipped, last)
	task, outcomes := ended(t, c, submit(t, c, `{"n": 0}`))
	require.JSONEq(t, `{"n": 3}`, string(task.Result))
	require.Equal(t, "fetch done, store done, fetch done, store done, fetch failed, fetch done, "+
		"store done", outcomes)
	require.Equal(t, []client.Visit{{Stage: "fetch", Visit: 1, Attempts: 1},
		{Stage: "store", Visit: 1, Attempts: 1}, {Stage: "fetch", Visit: 2, Attempts: 1},
		{Stage: "store", Visit: 2, Attempts: 1}, {Stage: "fetch", Visit: 3, Attempts: 2},
		{Stage: "store", Visit: 3, Attempts: 1}}, task.Path)
	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Contains(t, attempts[4].Error, `invalid_next_stage: next_stage "stroe" is not allowed `+
		`after stage "fetch": it must be next_stage: "store"`)
}

// What an order did is undone if its shipment fails for good, by a stage that sees what earlier
// stages put out. The second attempt at the shipment goes on where the first one was.
func TestSDKUndo(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	w := startSDKWorker(t, sdk.Config{})
	sdk.Handle(w.Worker, "pipe", "charge", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		return counted{task.Context.N * 10}, nil
	})
	sdk.Handle(w.Worker, "pipe", "ship", func(
		ctx context.Context, task sdk.Task[counted],
	) (counted, error) {
		if task.Checkpoint == nil {
			return counted{}, errors.Join(task.SaveCheckpoint(ctx, "packed"), errors.New("no van"))
		}
		return counted{}, sdk.Fail(fmt.Errorf("out of stock, but %s", task.Checkpoint))
	})
	sdk.Handle(w.Worker, "pipe", "undo", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		charged, err := sdk.Output[counted](task, "charge")
		order, err2 := sdk.Input[counted](task)
		return counted{}, sdk.Fail(errors.Join(err, err2,
			fmt.Errorf("order of %d: %d given back", order.N, charged.N)))
	})
	ship, undo := stage("ship"), stage("undo")
	ship.Next = []string{asyncflow.NextFinish}
	ship.OnFailure = &asyncflow.StageFailure{Next: "undo"}
	undo.Deliver = &asyncflow.Deliver{Input: true, Outputs: []string{"charge"}}
	w.pipe(t, c, stage("charge"), ship, undo)
	task, outcomes := ended(t, c, submit(t, c, `{"n": 7}`))
	require.Equal(t, "charge done, ship failed, ship rejected, undo rejected", outcomes)
	require.Equal(t, []any{asyncflow.StatusFailed, "order of 7: 70 given back"},
		[]any{task.Status, task.Error})
	attempts, err := c.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Equal(t, []any{`out of stock, but "packed"`, "undo"},
		[]any{attempts[2].Error, attempts[2].NextStage})
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": p.token()}
	shown := runCLI(t, env, "types", "get", "pipe").stdout
	require.Regexp(t, `(?m)^STAGE .* DELIVER +NEXT +ON_FAILURE$`, shown)
	require.Regexp(t, `(?m)^ship .* - +finish +undo$`, shown)
	shown = runCLI(t, env, "tasks", "checkpoint", task.ID).stdout
	require.Regexp(t, `^in stage ship, .*:\n"packed"\n$`, shown)
	require.Equal(t, exitNotFound,
		runCLI(t, env, "tasks", "checkpoint", "pipe.1.999999").code)
}

// An output that is too large for a report fails the task for good: a retry would be useless.
func TestSDKReportRefused(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	w := startSDKWorker(t, sdk.Config{AnswerWithin: -1})
	sdk.Handle(w.Worker, "pipe", "first",
		func(context.Context, sdk.Task[sdk.None]) (string, error) {
			return strings.Repeat("x", 300<<10), nil
		})
	w.pipe(t, p.client(), stage("first"))
	task, outcomes := ended(t, p.client(), submit(t, p.client(), `1`))
	require.Equal(t, "first rejected", outcomes)
	require.Contains(t, task.Error, "asyncflow refused the output: 413")
}

// A handler learns by its context that its task was cancelled.
func TestSDKCancelled(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	w := startSDKWorker(t, sdk.Config{AnswerWithin: -1, Heartbeat: 20 * time.Millisecond})
	started, causes := make(chan struct{}), make(chan error, 1)
	sdk.Handle(w.Worker, "pipe", "first", func(ctx context.Context, _ sdk.Task[counted]) (counted,
		error) {
		close(started)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return counted{}, ctx.Err()
	})
	w.pipe(t, p.client(), stage("first"))
	id := submit(t, p.client(), `{}`)
	<-started
	_, err := p.client().Cancel(t.Context(), id, "not wanted")
	require.NoError(t, err)
	require.ErrorIs(t, <-causes, sdk.ErrCancelled)
	_, outcomes := ended(t, p.client(), id)
	require.Equal(t, "first cancelled", outcomes)
}

// Heartbeats keep a long attempt alive. Without them it is lost, its handler is cancelled, and
// the task starts again.
func TestSDKHeartbeats(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	const brief = 6 * time.Second
	hasBrief := func(s *client.Stage) { s.MaxProcessingTime = asyncflow.NewDuration(brief) }
	w := startSDKWorker(t, sdk.Config{AnswerWithin: -1})
	sdk.Handle(w.Worker, "pipe", "kept", func(ctx context.Context, task sdk.Task[counted]) (counted,
		error) {
		select {
		case <-ctx.Done():
			return counted{}, context.Cause(ctx)
		case <-time.After(2 * brief):
			return counted{1}, nil
		}
	})
	silent := startSDKWorker(t, sdk.Config{AnswerWithin: -1, Heartbeat: time.Hour})
	causes := make(chan error, 1)
	sdk.Handle(silent.Worker, "pipe", "silent",
		func(ctx context.Context, task sdk.Task[counted]) (counted, error) {
			if task.Attempt == 1 {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
			return counted{task.Attempt}, ctx.Err()
		})
	w.pipe(t, c, stage("kept", hasBrief), stage("silent", hasBrief))
	require.NoError(t, silent.Register(t.Context(), sdk.Registration{Client: c, URL: silent.url}))
	task, outcomes := ended(t, c, submit(t, c, `{}`))
	require.ErrorIs(t, <-causes, sdk.ErrLost)
	require.Equal(t, "kept done, silent lost, silent done", outcomes)
	require.JSONEq(t, `{"n": 2}`, string(task.Result))
}
