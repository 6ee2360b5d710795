package worker

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// accept answers a delivery with 202 and queues its completion.
func (w *worker) accept(rw http.ResponseWriter, r *http.Request, c *completer) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	n, ok := payload.Number(body)
	url, rest := payload.Between(body, `"callback":{"url":"`, `"`)
	token, _ := payload.Between(rest, `"token":"`, `"`)
	if err != nil || !ok || token == nil {
		http.Error(rw, "a body with context.n and callback is expected", http.StatusBadRequest)
		return
	}
	next := completion{string(url), string(token)}
	rw.WriteHeader(http.StatusAccepted)
	w.mu.Lock()
	w.arrived(n, now)
	w.mu.Unlock()
	c.queue <- next
}

// completions is how many completion calls are sent at once.
const completions = 64

// completer completes tasks that were answered with 202, one call each. It uses the lightest
// client that there is: the client is not what is measured.
type completer struct {
	queue  chan completion
	client fasthttp.Client
	failed sync.Once
}

// completion is the callback of a task that is to be completed.
type completion struct{ url, token string }

func newCompleter(ctx context.Context) *completer {
	c := &completer{
		queue:  make(chan completion, 1<<16),
		client: fasthttp.Client{MaxConnsPerHost: completions},
	}
	for range completions {
		go c.run(ctx)
	}
	return c
}

func (c *completer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-c.queue:
			if err := c.complete(next); err != nil { // the task will be missing at the end
				c.failed.Do(func() { fmt.Fprintln(os.Stderr, "bench: the worker:", err) })
			}
		}
	}
}

func (c *completer) complete(next completion) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(next.url + "/complete")
	req.Header.SetMethod(http.MethodPost)
	req.Header.Set("Authorization", "Bearer "+next.token)
	if err := c.client.DoTimeout(req, resp, 30*time.Second); err != nil {
		return err
	}
	if resp.StatusCode() != http.StatusOK {
		return fmt.Errorf("complete %s: HTTP %d: %s", next.url, resp.StatusCode(), resp.Body())
	}
	return nil
}
