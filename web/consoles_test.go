package web_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// polled are the calls that an open overview makes, and how often. The stream of events is beside
// them, and what is only read where deliveries stand still isn't among them.
var polled = map[string]time.Duration{
	"/v1/stats/history":                      20 * time.Second,
	"/v1/stats/history?by_type=true&step=5m": time.Minute,
	"/v1/stats/history?from=":                time.Minute,
	"/v1/nodes":                              20 * time.Second,
	"/v1/alerts/firing":                      20 * time.Second,
	"/v1/quota":                              20 * time.Second,
}

// consoles does what open overviews do, without a browser.
type consoles struct {
	p               *page
	client          *http.Client
	requests, bytes atomic.Int64
	done            sync.WaitGroup
}

// openConsoles opens n overviews until the test ends.
func (p *page) openConsoles(n int) *consoles {
	p.t.Helper()
	c := &consoles{p: p, client: &http.Client{Transport: &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: n}}}
	ctx, cancel := context.WithCancel(context.Background())
	for range n {
		c.done.Go(func() { c.call(ctx, "/v1/stats/events") })
		for path, pause := range polled {
			c.done.Go(func() { c.poll(ctx, path, pause) })
		}
	}
	p.t.Cleanup(func() {
		cancel()
		c.done.Wait()
	})
	return c
}

// poll makes a call again and again. The first one comes at any time within the pause, as consoles
// are opened at any time.
func (c *consoles) poll(ctx context.Context, path string, pause time.Duration) {
	timer := time.NewTimer(rand.N(pause))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		from := time.Now().UTC().Add(-24 * time.Hour).Format(time.RFC3339)
		if strings.HasSuffix(path, "=") {
			c.call(ctx, path+from)
		} else {
			c.call(ctx, path)
		}
		timer.Reset(pause)
	}
}

// call makes a call as a browser does, and counts the bytes of its answer as they are sent.
func (c *consoles) call(ctx context.Context, path string) {
	req, err := http.NewRequestWithContext(ctx, "GET", c.p.node.URL+path, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.p.token)
	req.Header.Set("Accept-Encoding", "gzip")
	c.requests.Add(1)
	resp, err := c.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			c.p.t.Errorf("%s: %v", path, err)
		}
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		c.p.t.Errorf("%s: %s", path, resp.Status)
	}
	_, _ = io.Copy((*counter)(&c.bytes), resp.Body)
}

// counter counts what is written to it.
type counter atomic.Int64

func (c *counter) Write(b []byte) (int, error) {
	(*atomic.Int64)(c).Add(int64(len(b)))
	return len(b), nil
}

// watchMany says what open overviews take: CPU of the node and of Postgres, requests and bytes.
func (p *page) watchMany(t *testing.T, n int, d time.Duration) {
	t.Helper()
	t.Logf("a minute without consoles, and then %v with %d:", d, n)
	p.measure(t, time.Minute, &consoles{})
	c := p.openConsoles(n)
	p.measure(t, d, c)
}

func (p *page) measure(t *testing.T, d time.Duration, c *consoles) {
	t.Helper()
	node, database := pgtest.OwnCPU(t), pgtest.CPU(t, p.node.Database)
	requests, sent := c.requests.Load(), c.bytes.Load()
	began := time.Now()
	<-time.After(d)
	took := time.Since(began)
	share := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / took.Seconds() }
	perMinute := func(n int64) float64 { return float64(n) / took.Minutes() }
	t.Logf("this process %.1f %%, Postgres %.1f %% of a core, %.0f requests and %.0f kB a minute",
		share(pgtest.OwnCPU(t)-node), share(pgtest.CPU(t, p.node.Database)-database),
		perMinute(c.requests.Load()-requests), perMinute(c.bytes.Load()-sent)/1e3)
}
