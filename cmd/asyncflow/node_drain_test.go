package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
)

// balancer is a load balancer over nodes that sends calls to those whose /readyz answers 200.
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

// While nodes are replaced one by one, behind a load balancer that watches /readyz, no call fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	database := database(t)
	serve := func() *process {
		p := start(t, append(nodeEnv(database), "ASYNCFLOW_DRAIN_DELAY="), "serve")
		require.NotEmpty(t, p.url, p.said())
		return p
	}
	a, b := serve(), serve()
	_, err := a.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	proxy := startBalancer(t, a, b)
	require.Eventually(t, func() bool { return proxy.has(a) && proxy.has(b) }, patience,
		10*time.Millisecond)

	stop := make(chan struct{})
	var calling sync.WaitGroup
	calling.Go(func() { callSteadily(t, proxy.URL, &calling, stop) })
	for _, old := range []*process{a, b} {
		old.signal(syscall.SIGTERM)
		assert.Equal(t, 0, old.wait(), old.said())
		next := serve()
		proxy.add(next)
		require.Eventually(t, func() bool { return proxy.has(next) }, patience, 10*time.Millisecond)
	}
	close(stop)
	calling.Wait()
	assert.Greater(t, proxy.calls.Load(), int64(100))
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

// A node that stops shows its metrics until its last attempt has ended.
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
