package client

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

const (
	// maxBatchBytes is the size of a body above which a batch is split: half of what a server
	// accepts by default.
	maxBatchBytes = 8 << 20
	overheadBytes = len(`{"tasks":[]}`)
)

// Result is the result for one task of SubmitMany.
type Result struct {
	Task SubmittedTask // zero if Err is set
	// Err is an *Error or an *asyncflow.Error. It names the fields of the task without the task's
	// position in the batch.
	Err error
}

// SubmitMany submits tasks in batches of up to 1,000, one batch after the other, and returns the
// results in the order of the tasks. A bad task doesn't keep the others from being accepted. If all
// tasks come with a Key, batches are submitted again like single tasks (see Submit).
//
// An error ends it early. It is about the batch after the results that are returned; Uncertain
// reports whether tasks of that batch may have been accepted.
func (c *Client) SubmitMany(ctx context.Context, tasks []NewTask) ([]Result, error) {
	results := make([]Result, 0, len(tasks))
	ctx, tries := keyed(ctx, tasks...)
	for len(results) < len(tasks) {
		b := nextBatch(tasks[len(results):])
		if err := b.submit(ctx, c); err != nil {
			return results, tries.result(err)
		}
		results = append(results, b.results...)
	}
	return results, nil
}

// batch is the body of one call, and the results of its tasks.
type batch struct {
	body    []byte
	results []Result // of all tasks; tasks that aren't in the body come with an error
	sent    []int    // index into results of each task in the body
}

// nextBatch takes as many of the first tasks as fit into one call. It refuses tasks that can't be
// written as JSON: they would make the whole body unreadable.
func nextBatch(tasks []NewTask) *batch {
	b := &batch{body: []byte(`{"tasks":[`)}
	for i, t := range tasks[:min(len(tasks), asyncflow.MaxBatch)] {
		doc, err := encodeTask(t)
		if err != nil {
			b.results = append(b.results, Result{Err: err})
			continue
		}
		if len(b.sent) > 0 {
			if len(b.body)+len(doc)+overheadBytes > maxBatchBytes {
				break
			}
			b.body = append(b.body, ',')
		}
		b.body = append(b.body, doc...)
		b.sent = append(b.sent, i)
		b.results = append(b.results, Result{})
	}
	b.body = append(b.body, "]}"...)
	return b
}

func encodeTask(t NewTask) ([]byte, error) {
	if err := checkContext(t); err != nil {
		return nil, err
	}
	return encode(t)
}

func (b *batch) submit(ctx context.Context, c *Client) error {
	if len(b.sent) == 0 {
		return nil
	}
	answer, err := call[api.SubmittedBatch](ctx, c, 0,
		func(ctx context.Context) (*http.Response, error) {
			return c.api.SubmitTasksWithBody(ctx, contentJSON, bytes.NewReader(b.body))
		})
	if err != nil {
		return err
	}
	if len(answer.Tasks) != len(b.sent) {
		return &ConnectionError{
			URL: c.url,
			Err: errors.New("its answer has another number of tasks than the batch"),
		}
	}
	for n, r := range answer.Tasks {
		b.results[b.sent[n]] = resultOf(r)
	}
	return nil
}

func resultOf(r api.BatchResult) Result {
	if r.Task.ID != "" {
		return Result{Task: r.Task}
	}
	p := r.Error
	if p.Code == "" {
		p.Code = string(asyncflow.CodeInternal)
		p.Detail = "the server's answer says nothing about this task"
	}
	for i := range p.Errors {
		p.Errors[i].Field = withoutPlace(p.Errors[i].Field)
	}
	p.Detail = withoutPlace(p.Detail)
	return Result{Err: &Error{Status: p.Status, Problem: p}}
}

var place = regexp.MustCompile(`^tasks\[[0-9]+\]\.`)

// withoutPlace removes a leading "tasks[12].". Callers don't know the batches of this package, so a
// position in one would mean nothing to them.
func withoutPlace(text string) string {
	return strings.TrimPrefix(text, place.FindString(text))
}
