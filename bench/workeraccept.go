package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// completers is how many goroutines send completions.
const completers = 64

// acceptor completes tasks that were answered with 202, one call each. Its client is the
// lightest that there is: it is not what is measured.
type acceptor struct {
	queue  chan completion
	client fasthttp.Client
	failed sync.Once
}

// completion is how a task is to be completed.
type completion struct{ url, token string }

func newAcceptor(ctx context.Context) *acceptor {
	a := &acceptor{queue: make(chan completion, 1<<16), client: fasthttp.Client{MaxConnsPerHost: completers}}
	for range completers {
		go a.run(ctx)
	}
	return a
}

func (a *acceptor) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-a.queue:
			if err := a.complete(c); err != nil { // the task is missed at the end
				a.failed.Do(func() { fmt.Fprintln(os.Stderr, "bench: the worker:", err) })
			}
		}
	}
}

func (a *acceptor) complete(c completion) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(c.url + "/complete")
	req.Header.SetMethod(http.MethodPost)
	req.Header.Set("Authorization", "Bearer "+c.token)
	if err := a.client.DoTimeout(req, resp, 30*time.Second); err != nil {
		return err
	}
	if resp.StatusCode() != http.StatusOK {
		return fmt.Errorf("complete %s: HTTP %d: %s", c.url, resp.StatusCode(), resp.Body())
	}
	return nil
}

// deliverLater answers a delivery with 202 and has it completed.
func (w *worker) deliverLater(rw http.ResponseWriter, r *http.Request, a *acceptor) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	n, ok := numberIn(body)
	url, rest := between(body, `"callback":{"url":"`, `"`)
	token, _ := between(rest, `"token":"`, `"`)
	if err != nil || !ok || token == nil {
		http.Error(rw, "a body with context.n and callback is expected", http.StatusBadRequest)
		return
	}
	c := completion{string(url), string(token)}
	rw.WriteHeader(http.StatusAccepted)
	w.mu.Lock()
	w.arrived(n, now)
	w.mu.Unlock()
	a.queue <- c
}
