package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// pipe is a task type that is measured.
type pipe struct {
	name string
	shape
	history   int64 // number of the last task that was put there finished; 0: none was
	submitted int   // tasks after it
}

// shape says what the tasks of a pipe are like; what is zero is as usual.
type shape struct {
	stages   int    // each with the same endpoint; 1
	size     int    // bytes of a context; contextBytes
	batch    int    // tasks of a batch call; batchSize
	path     string // of the endpoint; deliveryPath
	more     string // members of the type's document, each with a comma behind it
	endpoint string // members of the endpoint's document, each with a comma before it
}

func (s shape) withDefaults() shape {
	s.stages, s.size = max(s.stages, 1), max(s.size, contextBytes)
	if s.batch == 0 {
		s.batch = batchSize
	}
	if s.path == "" {
		s.path = deliveryPath
	}
	return s
}

// register makes a task type of one stage, and its endpoint. More are members of the
// type's document, each with a comma behind it.
func (b *bench) register(ctx context.Context, name, more string) (*pipe, error) {
	return b.registerShape(ctx, name, shape{more: more})
}

// registerShape makes a task type and the endpoints of its stages.
func (b *bench) registerShape(ctx context.Context, name string, s shape) (*pipe, error) {
	p := &pipe{name: name, shape: s.withDefaults()}
	return p, b.api.register(ctx, name, p.shape, b.sink.base)
}

// register makes a task type whose endpoints are those of a worker.
func (c *client) register(ctx context.Context, name string, s shape, worker string) error {
	stages := make([]string, s.stages)
	for i := range stages {
		stages[i] = `{"name":"` + stageName(i) + `"}`
	}
	document := `{` + s.more + `"stages":[` + strings.Join(stages, ",") + `]}`
	if _, err := c.call(ctx, http.MethodPut, "/v1/task-types/"+name, []byte(document)); err != nil {
		return err
	}
	for i := range stages {
		endpoint := fmt.Sprintf(`{"type":%q,"stage":%q,"url":%q%s}`, name, stageName(i), worker+s.path, s.endpoint)
		if _, err := c.call(ctx, http.MethodPost, "/v1/endpoints", []byte(endpoint)); err != nil {
			return err
		}
	}
	return nil
}

// stageName returns the name of a stage by its number: call, call2, call3.
func stageName(i int) string {
	if i == 0 {
		return "call"
	}
	return "call" + strconv.Itoa(i+1)
}

// pause has nothing of a pipe leased any more.
func (b *bench) pause(ctx context.Context, p *pipe) error {
	_, err := b.api.call(ctx, http.MethodPost, "/v1/task-types/"+p.name+"/pause", nil)
	return err
}

func (b *bench) resume(ctx context.Context, p *pipe) error {
	_, err := b.api.call(ctx, http.MethodPost, "/v1/task-types/"+p.name+"/resume", nil)
	return err
}

// take returns the number of the first of the next tasks, which are of this type.
func (b *bench) take(p *pipe, tasks int) int {
	first := b.next
	b.next += tasks
	p.submitted += tasks
	return first
}
