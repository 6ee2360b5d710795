package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	contextBytes = 200 // of every task
	batchSize    = 100 // tasks of a batch call
)

// newHTTPClient returns a client that keeps its connections, as a node's sender
// does.
func newHTTPClient() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableCompression: true, MaxIdleConns: 1024, MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second}}
}

// client speaks to the node's API or to the worker.
type client struct {
	http  *http.Client
	base  string // http://host:port
	token string // empty for the worker
}

// call sends a request and returns the answer's body. A status other than 2xx is
// an error.
func (c *client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = &refusal{method + " " + path, resp.StatusCode, answer}
	}
	return answer, err
}

// refusal is an answer that isn't 2xx.
type refusal struct {
	call   string
	status int
	answer []byte
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s: HTTP %d: %.500s", r.call, r.status, r.answer)
}

// get reads a JSON document.
func (c *client) get(ctx context.Context, path string, into any) error {
	answer, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// submit submits the one task of a type that holds a number.
func (c *client) submit(ctx context.Context, taskType string, n int) error {
	_, err := c.call(ctx, http.MethodPost, "/v1/tasks", appendTask(nil, taskType, n, contextBytes, ""))
	return err
}

// submitBatch submits tasks of a type, of the numbers from first on. more is what else
// is asked of each, such as `"delay":"1h",`.
func (c *client) submitBatch(ctx context.Context, taskType string, first int, more string) error {
	return c.submitMany(ctx, taskType, first, batchSize, contextBytes, more)
}

// submitMany submits so many tasks in one call, with contexts of so many bytes.
func (c *client) submitMany(ctx context.Context, taskType string, first, tasks, size int, more string) error {
	body := make([]byte, 0, tasks*(size+len(more)+40))
	body = append(body, `{"tasks":[`...)
	for n := first; n < first+tasks; n++ {
		if n > first {
			body = append(body, ',')
		}
		body = appendTask(body, taskType, n, size, more)
	}
	answer, err := c.call(ctx, http.MethodPost, "/v1/tasks/batch", append(body, "]}"...))
	if err != nil {
		return err
	}
	// Counting is enough, and takes no time from what is measured.
	if accepted := bytes.Count(answer, []byte(`"order_time"`)); accepted != tasks {
		return fmt.Errorf("%d of a batch of %d were accepted: %.500s", accepted, tasks, answer)
	}
	return nil
}

func appendTask(b []byte, taskType string, n, size int, more string) []byte {
	b = append(b, `{"type":"`+taskType+`",`+more+`"context":`...)
	return append(appendContext(b, n, size), '}')
}

// mostContext is the largest context that appendContext makes.
const mostContext = 128 << 10

// padding can't be compressed by much: Postgres would store less of a context otherwise.
var padding = func() string {
	random := make([]byte, mostContext*3/4)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	return base64.StdEncoding.EncodeToString(random)
}()

// appendContext appends a context of so many bytes with a number in it, by which
// the worker knows the task.
func appendContext(b []byte, n, size int) []byte {
	start := len(b)
	b = append(b, `{"n":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"pad":"`...)
	b = append(b, padding[:size-(len(b)-start)-len(`"}`)]...)
	return append(b, `"}`...)
}
