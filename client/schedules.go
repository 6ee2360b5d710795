package client

import (
	"bytes"
	"context"
	"net/http"

	"github.com/asyncflow/asyncflow"
)

// The values of ScheduleSpec.Overlap and ScheduleSpec.CatchUp; see asyncflow.Overlap and
// asyncflow.CatchUp.
const (
	OverlapQueue   = asyncflow.OverlapQueue
	OverlapSkip    = asyncflow.OverlapSkip
	OverlapReplace = asyncflow.OverlapReplace

	CatchUpLast = asyncflow.CatchUpLast
	CatchUpNone = asyncflow.CatchUpNone
	CatchUpAll  = asyncflow.CatchUpAll
)

// PutSchedule creates a schedule, or a new version of it. If the spec is the same, nothing changes,
// and the answer is the present version.
func (c *Client) PutSchedule(
	ctx context.Context, name string, spec ScheduleSpec,
) (Schedule, error) {
	return c.putSchedule(ctx, name, spec, nil)
}

// CheckSchedule is a dry run of PutSchedule: it returns the same result or error, and changes
// nothing.
func (c *Client) CheckSchedule(
	ctx context.Context, name string, spec ScheduleSpec,
) (Schedule, error) {
	return c.putSchedule(ctx, name, spec, map[string]string{"dry_run": "true"})
}

func (c *Client) putSchedule(
	ctx context.Context, name string, spec ScheduleSpec, params map[string]string,
) (Schedule, error) {
	if err := checkPart("name", name); err != nil {
		return Schedule{}, err
	}
	if err := asyncflow.CheckJSON(spec.Context); err != nil {
		return Schedule{}, asyncflow.InvalidField("context", "%v", err)
	}
	body, err := encode(spec)
	if err != nil {
		return Schedule{}, err
	}
	return call[Schedule](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.PutScheduleWithBody(ctx, name, nil, contentJSON, bytes.NewReader(body),
			query(params))
	})
}

// Schedules returns all schedules by name, without their contexts.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	return gathered(listed[Schedule](ctx, c, nil, c.api.ListSchedules))
}

// Schedule returns a schedule, with its next runs.
func (c *Client) Schedule(ctx context.Context, name string) (Schedule, error) {
	return callOn[Schedule](ctx, c, "name", name, c.api.GetSchedule)
}

// PauseSchedule pauses a schedule, and returns it: its ticks pass without tasks.
func (c *Client) PauseSchedule(ctx context.Context, name string) (Schedule, error) {
	return callOn[Schedule](ctx, c, "name", name, c.api.PauseSchedule)
}

// ResumeSchedule resumes a paused schedule with its next tick, and returns it.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (Schedule, error) {
	return callOn[Schedule](ctx, c, "name", name, c.api.ResumeSchedule)
}

// TriggerSchedule submits a task of a schedule now, in addition to its ticks. After a
// *ConnectionError, once the request was sent, the task may exist.
func (c *Client) TriggerSchedule(ctx context.Context, name string) (SubmittedTask, error) {
	return callOn[SubmittedTask](ctx, c, "name", name, c.api.TriggerSchedule)
}

// DeleteSchedule deletes a schedule. It submits no more tasks; existing ones stay.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	_, err := callOn[noAnswer](ctx, c, "name", name, c.api.DeleteSchedule)
	return err
}
