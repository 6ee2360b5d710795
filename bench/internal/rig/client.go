package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// BatchSize is the number of tasks of a batch call, unless a scenario asks for another.
const BatchSize = 100

// Client speaks to a node's API or to the worker.
type Client struct {
	Base  string // http://host:port
	Token string // empty for the worker
	HTTP  *http.Client
}

// mostConnections bounds the connections to a node or the worker. Calls that find them all in use
// wait, as they would in any client.
const mostConnections = 256

// newHTTPClient returns a client that keeps its connections, as a node's sender does.
func newHTTPClient() *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DisableCompression:  true,
			MaxIdleConns:        1024,
			MaxIdleConnsPerHost: mostConnections,
			MaxConnsPerHost:     mostConnections,
			IdleConnTimeout:     90 * time.Second,
		},
	}
}

// Call sends a request and returns the body of the answer. A status other than 2xx is a *Refusal.
func (c *Client) Call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = &Refusal{resp.StatusCode, method + " " + path, answer}
	}
	return answer, err
}

// Refusal is an answer that isn't 2xx.
type Refusal struct {
	Status int
	call   string
	answer []byte
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: HTTP %d: %.500s", r.call, r.Status, r.answer)
}

// get reads a JSON document.
func (c *Client) get(ctx context.Context, path string, into any) error {
	answer, err := c.Call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// Submit submits task n of a type.
func (c *Client) Submit(ctx context.Context, taskType string, n int) error {
	body := AppendTask(nil, taskType, n, payload.Usual, "")
	_, err := c.Call(ctx, http.MethodPost, "/v1/tasks", body)
	return err
}

// SubmitBatch submits BatchSize tasks of a type, from number first on. more are further members of
// each task, each with a comma behind it, such as `"delay":"1h",`.
func (c *Client) SubmitBatch(ctx context.Context, taskType string, first int, more string) error {
	return c.submitMany(ctx, taskType, first, BatchSize, payload.Usual,
		func(int) string { return more })
}

// submitMany submits tasks with contexts of size bytes in one call. more returns further members of
// a task, each with a comma behind it.
func (c *Client) submitMany(
	ctx context.Context, taskType string, first, tasks, size int, more func(n int) string,
) error {
	body := make([]byte, 0, tasks*(size+len(more(first))+40))
	body = append(body, `{"tasks":[`...)
	for n := first; n < first+tasks; n++ {
		if n > first {
			body = append(body, ',')
		}
		body = AppendTask(body, taskType, n, size, more(n))
	}
	answer, err := c.Call(ctx, http.MethodPost, "/v1/tasks/batch", append(body, "]}"...))
	if err != nil {
		return err
	}
	// Counting is enough, and takes no time from what is measured.
	if accepted := bytes.Count(answer, []byte(`"order_time"`)); accepted != tasks {
		return fmt.Errorf("%d of a batch of %d were accepted: %.500s", accepted, tasks, answer)
	}
	return nil
}

// AppendTask appends the document of task n with a context of size bytes.
func AppendTask(b []byte, taskType string, n, size int, more string) []byte {
	b = append(b, `{"type":"`+taskType+`",`+more+`"context":`...)
	return append(payload.Append(b, n, size), '}')
}
