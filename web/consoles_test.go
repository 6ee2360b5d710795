package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// postgresCPU returns the CPU time that the test's Postgres took: the server, its processes, and
// the ended ones.
func (p *page) postgresCPU() time.Duration {
	p.t.Helper()
	var pid int
	require.NoError(p.t, p.database().QueryRow(p.t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	server := statOf(pid)[1]
	var ticks int64
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(p.t, err)
	for _, file := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(p.t, err)
		s := statOf(pid)
		if s == nil {
			continue // it is over
		}
		if s[1] == server {
			ticks += number(s[11]) + number(s[12])
		}
		if strconv.Itoa(pid) == server {
			ticks += number(s[11]) + number(s[12]) + number(s[13]) + number(s[14])
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// statOf returns the fields of a process from its state on; nil: it is over.
func statOf(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
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
	node, database := cpu(t), p.postgresCPU()
	requests, sent := c.requests.Load(), c.bytes.Load()
	began := time.Now()
	<-time.After(d)
	took := time.Since(began)
	share := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / took.Seconds() }
	perMinute := func(n int64) float64 { return float64(n) / took.Minutes() }
	t.Logf("this process %.1f %%, Postgres %.1f %% of a core, %.0f requests and %.0f kB a minute",
		share(cpu(t)-node), share(p.postgresCPU()-database),
		perMinute(c.requests.Load()-requests), perMinute(c.bytes.Load()-sent)/1e3)
}
