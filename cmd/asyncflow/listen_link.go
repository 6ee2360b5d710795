package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// listenPauses are the pauses before asyncflow is tried again. The last one repeats.
var listenPauses = []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second,
	5 * time.Second}

// pause waits before a try; the first one after a failure is 0. It returns false when ctx ends.
func pause(ctx context.Context, try int) bool {
	return sleep.For(ctx, listenPauses[min(try, len(listenPauses)-1)])
}

const (
	// A connection by HTTP/2 that is silent for listenPing is closed, unless an answer to
	// a ping comes within listenPong. A call that isn't answered doesn't end such a connection.
	listenPing = 5 * time.Second
	listenPong = 5 * time.Second
)

// newListenTransport returns a transport that notices connections that are dead.
func newListenTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: listenPing, PingTimeout: listenPong}
	return t
}

// isOutage reports whether an error may pass: asyncflow can't be reached, or is out of capacity.
func isOutage(err error) bool {
	var answer *client.Error
	return !errors.As(err, &answer) || answer.Status >= 500 ||
		answer.Status == http.StatusTooManyRequests
}

// outage is a time in which something couldn't be reached. It is reported once, and its end with
// its length.
type outage struct {
	mu    sync.Mutex
	since time.Time // zero: there is none
}

// begin reports whether the gap begins now. Times are by the wall clock: other clocks stand still
// while a machine sleeps.
func (g *outage) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.since.IsZero() {
		return false
	}
	g.since = now().Round(0)
	return true
}

// end ends the gap, if there is one, and returns its length.
func (g *outage) end() (length time.Duration, was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since.IsZero() {
		return 0, false
	}
	length = now().Round(0).Sub(g.since).Round(100 * time.Millisecond)
	g.since = time.Time{}
	return length, true
}

func (g *outage) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.since.IsZero()
}

// answers reports whether something listens at the host of a URL.
func answers(ctx context.Context, to *url.URL) bool {
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

const (
	// asleepTick is how often the clock is looked at, and asleepFor for how long it must stand
	// still for that to count as sleep.
	asleepTick = 500 * time.Millisecond
	asleepFor  = 3 * time.Second
)

// watchSleep calls woke after the machine, or this process, slept.
func watchSleep(ctx context.Context, woke func(slept time.Duration)) {
	last := now().Round(0)
	for sleep.For(ctx, asleepTick) {
		at := now().Round(0)
		if slept := at.Sub(last); slept > asleepFor {
			woke(slept)
		}
		last = at
	}
}
