package rig

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// TaskType is a task type that is measured.
type TaskType struct {
	Name string
	Shape
	History   Range // of the tasks that were written there as finished
	Submitted int   // other tasks
}

// Range spans the ids of tasks from the first to the last one; the zero value is empty.
type Range struct{ First, Last int64 }

// Shape says what a task type and its tasks are like. A zero field stands for its usual value.
type Shape struct {
	Stages   int    // each with the same endpoint; 1
	Size     int    // bytes of a context; payload.Usual
	Batch    int    // tasks of a batch call; BatchSize
	Path     string // of the endpoint; worker.DeliverPath
	More     string // members of the type's document, each with a comma behind it
	Endpoint string // members of the endpoint's document, each with a comma before it
	FanOut   string // the first stage's fan_out, a JSON document; "": no children
	Next     string // path of the endpoints of later stages; Path
	Claim    bool   // workers ask for the tasks of its one stage, which is without an endpoint
}

func (s Shape) withDefaults() Shape {
	s.Stages, s.Size = max(s.Stages, 1), max(s.Size, payload.Usual)
	if s.Batch == 0 {
		s.Batch = BatchSize
	}
	if s.Path == "" {
		s.Path = worker.DeliverPath
	}
	if s.Next == "" {
		s.Next = s.Path
	}
	return s
}

// Register makes a task type, and the endpoints of its stages at the worker.
func (r *Rig) Register(ctx context.Context, name string, s Shape) (*TaskType, error) {
	t := &TaskType{Name: name, Shape: s.withDefaults()}
	err := r.API.putTaskType(ctx, name, t.Shape)
	if err == nil && !s.Claim {
		err = r.API.addEndpoints(ctx, name, t.Shape, r.Worker.Base)
	}
	return t, err
}

func (c *Client) putTaskType(ctx context.Context, name string, s Shape) error {
	stages := make([]string, s.Stages)
	for i := range stages {
		stages[i] = `{"name":"` + stageName(i) + `"}`
	}
	if s.FanOut != "" {
		stages[0] = `{"name":"` + stageName(0) + `","fan_out":` + s.FanOut + `}`
	}
	if s.Claim {
		stages[0] = `{"name":"` + stageName(0) + `","mode":"claim"}`
	}
	document := `{` + s.More + `"stages":[` + strings.Join(stages, ",") + `]}`
	_, err := c.Call(ctx, http.MethodPut, "/v1/task-types/"+name, []byte(document))
	return err
}

func (c *Client) addEndpoints(ctx context.Context, name string, s Shape, worker string) error {
	for i := range s.Stages {
		path := s.Path
		if i > 0 {
			path = s.Next
		}
		endpoint := fmt.Appendf(nil, `{"type":%q,"stage":%q,"url":%q%s}`,
			name, stageName(i), worker+path, s.Endpoint)
		if _, err := c.Call(ctx, http.MethodPost, "/v1/endpoints", endpoint); err != nil {
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

// Pause pauses a type: the nodes lease no more of its tasks.
func (r *Rig) Pause(ctx context.Context, t *TaskType) error {
	_, err := r.API.Call(ctx, http.MethodPost, "/v1/task-types/"+t.Name+"/pause", nil)
	return err
}

// Resume ends a pause.
func (r *Rig) Resume(ctx context.Context, t *TaskType) error {
	_, err := r.API.Call(ctx, http.MethodPost, "/v1/task-types/"+t.Name+"/resume", nil)
	return err
}

// Take reserves numbers for the next tasks of a type, and returns the first.
func (r *Rig) Take(t *TaskType, tasks int) int {
	first := r.next
	r.next += tasks
	t.Submitted += tasks
	return first
}
