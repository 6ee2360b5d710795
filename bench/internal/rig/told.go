package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// OnFinal is a member of a type's document, by which the ends of its tasks are told to the worker.
func (r *Rig) OnFinal() string {
	return fmt.Sprintf(`"on_final":{"url":%q},`, r.Worker.Base+worker.ToldPath)
}

// Lateness waits until the worker was told of n ends, and returns how long after them.
func (r *Rig) Lateness(ctx context.Context, n int) (all []time.Duration, err error) {
	err = Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := r.Worker.get(ctx, worker.LatenessPath, &all)
		return len(all) >= n, err
	})
	if err != nil {
		err = fmt.Errorf("%d of %d ends were told: %w", len(all), n, err)
	}
	return all, err
}

// SubmitAndWait submits task n of a type, waits for its end in the same call, and returns how long
// after its end the answer came.
func (c *Client) SubmitAndWait(
	ctx context.Context, taskType string, n int,
) (late time.Duration, err error) {
	body := AppendTask(nil, taskType, n, payload.Usual, "")
	answer, err := c.Call(ctx, http.MethodPost, "/v1/tasks?wait=30s", body)
	now := time.Now()
	if err != nil {
		return 0, err
	}
	var task struct {
		Status     string    `json:"status"`
		FinishedAt time.Time `json:"finished_at"`
	}
	if err := json.Unmarshal(answer, &task); err != nil {
		return 0, err
	}
	if task.Status != "succeeded" {
		return 0, fmt.Errorf("a task that was waited for is %q", task.Status)
	}
	return now.Sub(task.FinishedAt), nil
}
