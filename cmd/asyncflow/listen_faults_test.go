package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// A listener that is killed loses nothing: its deliveries come again to the next one.
func TestListenIsKilled(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	c := node.client()
	_, err := c.PutTaskType(t.Context(), "pipe", client.TaskTypeSpec{Stages: []client.Stage{
		stage("first", func(s *client.Stage) {
			s.Timeout = client.NewDuration(2 * time.Second)
			s.MaxProcessingTime = client.NewDuration(4 * time.Second)
		})}})
	require.NoError(t, err)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	came := make(chan struct{}, 10)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		came <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	p := startTerminal(t, env, "--forward", silent.URL)
	id := submit(t, c, `{"n": 7}`)
	<-came
	require.NoError(t, p.cmd.Process.Kill())
	<-p.exited
	w := startLocalWorker(t, testWebhook)
	startTerminal(t, env, "--forward", w.server.URL)
	task, _ := ended(t, c, id)
	require.JSONEq(t, `{"n": 14}`, string(task.Result))
	require.Equal(t, []int{7}, w.did())
}

// A connection that passes nothing on any more, but isn't closed, is noticed and made anew.
func TestListenNoticesADeadConnection(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	noticesADeadConnection(t, false, "nothing came in time")
}

// The same holds for HTTP/2, with pings of its own.
func TestListenNoticesADeadHTTP2Connection(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	noticesADeadConnection(t, true, "client connection lost")
}

func noticesADeadConnection(t *testing.T, secure bool, why string) {
	node, wire, env := listened(t)
	if secure {
		env["ASYNCFLOW_URL"] = secureProxy(t, node, wire, env)
	}
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	w := startLocalWorker(t, testWebhook)
	p := startTerminal(t, env, "--forward", w.server.URL)
	p.await("listening to pipe.first")
	ended(t, node.client(), submit(t, node.client(), `{"n": 1}`))
	wire.deaden()
	begin := time.Now()
	p.await("the connection to asyncflow is lost, trying again: .*" + why)
	p.await(`connected to asyncflow again after [\d.]+m?s`)
	assert.Less(t, time.Since(begin), time.Minute)
	id := submit(t, node.client(), `{"n": 2}`)
	_, outcomes := ended(t, node.client(), id)
	require.Equal(t, "first done", outcomes)
}

// secureProxy leads a cable to a proxy that speaks HTTP/2, and returns its URL.
func secureProxy(t *testing.T, node *process, wire *cable, env map[string]string) string {
	t.Helper()
	to, err := url.Parse(node.url)
	require.NoError(t, err)
	proxy := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(to))
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	t.Cleanup(proxy.CloseClientConnections)
	wire.lead(strings.TrimPrefix(proxy.URL, "https://"))
	env["SSL_CERT_FILE"] = filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	require.NoError(t, os.WriteFile(env["SSL_CERT_FILE"], cert, 0o600))
	return "https://" + wire.Addr().String()
}

// With --output quiet only failures are shown.
func TestListenQuietly(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`500}`)) {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(w.Close)
	p := startTerminal(t, env, "--forward", w.URL, "--output", "quiet")
	c := node.client()
	ended(t, c, submit(t, c, `{"n": 1}`))
	require.Empty(t, p.shows())
	id := submit(t, c, `{"n": 500}`)
	p.await(`^\S+  pipe\.first  ` + id + `  500  \S+s  \d+ B\r\n`)
}

// With --stage only that stage gets an endpoint.
func TestListenToAStage(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	c := node.client()
	_, err := c.PutTaskType(t.Context(), "pipe",
		client.TaskTypeSpec{Stages: []client.Stage{stage("first"), stage("second")}})
	require.NoError(t, err)
	r := runCLI(t, env, "listen", "--print-secret", "--stage", "third")
	require.Equal(t, exitNotFound, r.code)
	w := startLocalWorker(t, testWebhook)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	p := startTerminal(t, env, "--forward", w.server.URL, "--stage", "first")
	p.await("listening to pipe.first")
	id := submit(t, c, `{"n": 1}`)
	require.Eventually(t, func() bool {
		task, err := c.Get(t.Context(), id)
		return err == nil && task.Stage == "second" && task.WaitsFor == "endpoint"
	}, patience, 10*time.Millisecond)
	all, err := c.Endpoints(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "first", string(all[0].Stage))
	require.NotContains(t, p.shows(), "second")
}

// However many tasks a worker accepted with a 202, none of them comes twice. When all that there
// may be are open, no more are claimed.
func TestListenForgetsNoOpenTask(t *testing.T) {
	t.Parallel()
	const most = 3
	node, _, env := listened(t)
	came := make(chan delivery, 20)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		rw.WriteHeader(http.StatusAccepted)
		came <- d
	})
	to, err := url.Parse(w.URL)
	require.NoError(t, err)
	var said syncBuffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	g, err := newGlobals(&globalFlags{URL: env["ASYNCFLOW_URL"], Token: env["ASYNCFLOW_TOKEN"],
		Output: "table"}, &said, &said, lookup)
	require.NoError(t, err)
	out := newListenOutput(g)
	secrets, err := openListenSecrets(g)
	require.NoError(t, err)
	cmd := &listenCmd{Secret: testWebhook}
	stages, err := cmd.prepare(t.Context(), g.client(), secrets, out)
	secrets.close()
	require.NoError(t, err)
	l, err := newListener(g, out, to)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l.renew(ctx)
	over := make(chan error, 1)
	go func() { over <- newStageListener(l, stages[0], most).run(ctx, ctx, stop) }()
	c := node.client()
	for n := range most + 3 {
		submit(t, c, fmt.Sprintf(`{"n": %d}`, n))
	}
	open := map[string]sdk.Callback{}
	next := func() string {
		t.Helper()
		select {
		case d := <-came:
			require.NotContains(t, open, d.ID, "it came twice")
			open[d.ID] = sdk.Callback{URL: d.Callback.URL, Token: d.Callback.Token}
			return d.ID
		case <-time.After(patience):
			require.Fail(t, "no task came", said.String())
			return ""
		}
	}
	end := func(id string) {
		t.Helper()
		require.NoError(t, sdk.NewReporter(nil).Complete(t.Context(), open[id], counted{1}))
	}
	first, second := next(), next()
	next()
	require.Eventually(t, func() bool {
		return strings.Contains(said.String(), "no more are claimed until one of them ends")
	}, patience, 10*time.Millisecond)
	require.Empty(t, came)
	end(second) // the oldest one stays open
	for range 3 {
		end(next())
	}
	require.Empty(t, came)
	end(first)
	stop()
	require.NoError(t, <-over)
}

// syncBuffer is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
