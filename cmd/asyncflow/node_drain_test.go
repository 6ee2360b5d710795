package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// balancer is a load balancer over nodes. It sends calls to nodes that answer 200 at /readyz.
type balancer struct {
	*httptest.Server
	calls atomic.Int64

	mu    sync.Mutex
	ready map[string]http.Handler // by the node's URL; nil: it is not ready
}

func startBalancer(t *testing.T, nodes ...*process) *balancer {
	t.Helper()
	b := &balancer{ready: map[string]http.Handler{}}
	for _, p := range nodes {
		b.ready[p.url] = nil
	}
	b.Server = httptest.NewServer(b)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go b.watch(stop, stopped)
	t.Cleanup(func() {
		close(stop)
		<-stopped
		b.Close()
	})
	return b
}

// watch asks all nodes again and again.
func (b *balancer) watch(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		for _, node := range b.nodes() {
			b.check(node)
		}
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
	}
}

func (b *balancer) nodes() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for node := range b.ready {
		all = append(all, node)
	}
	return all
}

func (b *balancer) check(node string) {
	resp, err := http.Get(node + "/readyz")
	ready := err == nil && resp.StatusCode == 200
	if err == nil {
		resp.Body.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if target, err := url.Parse(node); err == nil && ready && b.ready[node] == nil {
		b.ready[node] = httputil.NewSingleHostReverseProxy(target)
	}
	if !ready {
		b.ready[node] = nil
	}
}

// add adds a node.
func (b *balancer) add(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[p.url] = nil
}

// has reports whether calls go to a node.
func (b *balancer) has(p *process) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready[p.url] != nil
}

// ServeHTTP passes a call to one of the nodes that are ready.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.calls.Add(1)
	b.mu.Lock()
	var node http.Handler = http.NotFoundHandler()
	for _, one := range b.ready { // in random order
		if one != nil {
			node = one
		}
	}
	b.mu.Unlock()
	node.ServeHTTP(w, r)
}

// While nodes are replaced one by one, behind a load balancer that watches /readyz, no call fails,
// and long polls, streams and claims are answered before their node ends.
func TestRollingRestart(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	replaceNodes(t, os.Args[0])
}

// The same, with nodes of an earlier commit, which are replaced by nodes of this one.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	longform.Only(t)
	replaceNodes(t, formerProgram(t))
}

// formerProgram builds the program of the commit before the last one that this branch shares with
// main, or of the one that ASYNCFLOW_TEST_FORMER names.
func formerProgram(t *testing.T) string {
	t.Helper()
	rev := os.Getenv("ASYNCFLOW_TEST_FORMER")
	if rev == "" {
		base, err := exec.Command("git", "merge-base", "HEAD", "main").Output()
		if err != nil {
			t.Skipf("NOT TESTED: nodes of an earlier version. git merge-base HEAD main: %v", err)
		}
		rev = strings.TrimSpace(string(base)) + "~1"
	}
	dir := t.TempDir()
	for _, command := range []string{
		`git -C "$(git rev-parse --show-toplevel)" archive "$1" | tar -x -C "$2"`,
		`cd "$2" && go build -o former ./cmd/asyncflow`,
	} {
		out, err := exec.Command("sh", "-ec", command, "sh", rev, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir + "/former"
}

// replaceNodes replaces two nodes of a program, one by one, by nodes of this one.
func replaceNodes(t *testing.T, former string) {
	t.Helper()
	database := database(t)
	serve := func(program string) *process {
		env := append(nodeEnv(database), "ASYNCFLOW_DRAIN_DELAY=")
		p := startBy(t, env, program, "serve")
		require.NotEmpty(t, p.url, p.said())
		return p
	}
	a, b := serve(former), serve(former)
	_, err := a.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	proxy := startBalancer(t, a, b)
	require.Eventually(t, func() bool { return proxy.has(a) && proxy.has(b) }, patience,
		10*time.Millisecond)
	polled := preparePolls(t, a)

	stop := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() { callSteadily(t, proxy.URL, &calling, stop) })
	for _, old := range []*process{a, b} {
		ended := polled.begin(old)
		old.signal(syscall.SIGTERM)
		assert.Equal(t, 0, old.wait(), old.said())
		ended()
		next := serve(os.Args[0])
		proxy.add(next)
		require.Eventually(t, func() bool { return proxy.has(next) }, patience, 10*time.Millisecond)
	}
	close(stop)
	calling.Wait()
	assert.Greater(t, proxy.calls.Load(), int64(100))
}

// polls are calls that wait for a task that doesn't end, for a minute and more.
type polls struct {
	*testing.T
	task string
}

func preparePolls(t *testing.T, p *process) polls {
	t.Helper()
	stage := client.Stage{Name: "only", Mode: asyncflow.ModeClaim}
	_, err := p.client().PutTaskType(t.Context(), "claimed",
		client.TaskTypeSpec{Stages: []client.Stage{stage}})
	require.NoError(t, err)
	task, err := p.client().Submit(t.Context(), client.NewTask{Type: "pipe",
		Context: []byte("1")}) // it is without an endpoint
	require.NoError(t, err)
	return polls{t, task.ID}
}

// begin makes a long poll, a stream and a claim at a node. ended waits for their ends, which are
// answers, not cut connections.
func (p polls) begin(at *process) (ended func()) {
	p.Helper()
	all := sync.WaitGroup{}
	claimer := tokenOf(p.T, testTenant, auth.ScopeWork)
	asked := make(chan struct{}, 3)
	call := func(name, method, path, token, body string) {
		all.Go(func() {
			req, err := http.NewRequest(method, at.url+path, strings.NewReader(body))
			if !assert.NoError(p, err) {
				return
			}
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", "application/json")
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				WroteRequest: func(httptrace.WroteRequestInfo) { asked <- struct{}{} }}))
			resp, err := (&http.Transport{}).RoundTrip(req)
			if !assert.NoError(p, err, name) {
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			assert.NoError(p, err, "%s ends whole", name)
			assert.Less(p, resp.StatusCode, 300, "%s: %s", name, text)
		})
	}
	call("poll", "GET", "/v1/tasks/"+p.task+"?wait=60s", testToken(p.T), "")
	call("stream", "GET", "/v1/tasks/"+p.task+"/events", testToken(p.T), "")
	call("claim", "POST", "/v1/claims", claimer,
		`{"type":"claimed","stage":"only","claimer":"ann","wait":"30s"}`)
	for range 3 {
		<-asked
	}
	return all.Wait
}

// callSteadily submits 50 tasks a second, in the long form 200. A submit without a key is not tried
// again by anyone.
func callSteadily(t *testing.T, at string, calling *sync.WaitGroup, stop <-chan struct{}) {
	token := testToken(t)
	ticker := time.NewTicker(time.Second / time.Duration(longform.Size(50, 200)))
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		calling.Go(func() {
			req, err := http.NewRequest("POST", at+"/v1/tasks",
				strings.NewReader(`{"type":"pipe","context":1}`))
			if !assert.NoError(t, err) {
				return
			}
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if !assert.NoError(t, err) {
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			assert.Less(t, resp.StatusCode, 300, "%s", body)
		})
	}
}

// After SIGTERM a node still takes connections and calls, but says that it is not ready.
func TestDrainingNodeAnswers(t *testing.T) {
	t.Parallel()
	p := startNode(t, database(t), "--drain-delay=1h")
	p.signal(syscall.SIGTERM)
	require.Eventually(t, func() bool { return p.status("", "/readyz") == 503 }, patience,
		20*time.Millisecond)
	assert.Equal(t, 200, p.status("", "/healthz"))
	_, err := p.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	submitMany(t, p.client(), 10)
}

// A node that stops shows its metrics until the end of its last attempt.
func TestDrainingNodeShowsItsMetrics(t *testing.T) {
	t.Parallel()
	p := startNode(t, database(t), "--metrics=127.0.0.1:0")
	begun, end := make(chan struct{}), make(chan struct{})
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {
		close(begun)
		<-end
	})
	finish := sync.OnceFunc(func() { close(end) })
	t.Cleanup(finish)
	w.pipe(t, p.client(), oneStage())
	submitMany(t, p.client(), 1)
	<-begun
	m := regexp.MustCompile(`metrics are served" listen=(\S+)`).FindStringSubmatch(p.said())
	require.NotNil(t, m, p.said())
	p.signal(syscall.SIGTERM)
	require.Eventually(t, func() bool {
		resp, err := http.Get(p.url + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	}, patience, 20*time.Millisecond, "the API has stopped")
	status, text := get(t, "http://"+m[1]+"/metrics")
	assert.Equal(t, 200, status)
	assert.Contains(t, text, "asyncflow_in_flight_tasks 1\n")
	finish()
	assert.Equal(t, 0, p.wait(), p.said())
}
