package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// List returns a page of tasks, newest first, without their contexts and results. Without a type,
// it lists the tasks of all types, by the names of the types. Reverse is the other way round.
// TaskList.NextCursor is the cursor of the next page, and empty on the last page. A page may be of
// few tasks, or empty, without being the last one.
func (c *Client) List(ctx context.Context, p ListParams) (TaskList, error) {
	params := filterParams(p)
	params["cursor"] = p.Cursor
	params["order"] = string(p.Order)
	if p.Reverse {
		params["reverse"] = "true"
	}
	if p.Limit != 0 {
		params["limit"] = strconv.Itoa(p.Limit)
	}
	return call[TaskList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTasks(ctx, nil, query(params))
	})
}

// All iterates over all tasks that List would return, page by page. An error ends it.
func (c *Client) All(ctx context.Context, p ListParams) iter.Seq2[Task, error] {
	return paged(p.Cursor, func(cursor string) ([]Task, string, error) {
		p.Cursor = cursor
		page, err := c.List(ctx, p)
		return page.Data, page.NextCursor, err
	})
}

// Count counts the tasks that All would return, as far as that is cheap: 10,000 at most. If
// TaskCount.Exact is false, there may be more; see CountAll. Limit and Cursor don't matter; tasks
// can't be counted by Text.
func (c *Client) Count(ctx context.Context, p ListParams) (TaskCount, error) {
	return call[TaskCount](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.GetTaskCount(ctx, nil, query(filterParams(p)))
	})
}

// filterParams returns the parameters that select tasks.
func filterParams(p ListParams) map[string]string {
	children := ""
	if p.Children != nil {
		children = strconv.FormatBool(*p.Children)
	}
	latest := ""
	if p.Latest {
		latest = "true"
	}
	attempts := ""
	if p.Attempts != 0 {
		attempts = strconv.Itoa(p.Attempts)
	}
	return map[string]string{
		"children": children,
		"attempts": attempts,

		"type":   p.Type,
		"status": string(p.Status),
		"stage":  p.Stage,
		"error":  p.Error,
		"key":    p.Key,
		"text":   p.Text,
		"since":  timeParam(p.Since),
		"until":  timeParam(p.Until),
		"parent": p.Parent,
		"latest": latest,
		"code":   p.Code,

		"fingerprint": p.Fingerprint,

		"ended_since": timeParam(p.EndedSince),
		"ended_until": timeParam(p.EndedUntil),
		"flow_key":    p.FlowKey,
		"worker":      p.Worker,
		"user":        p.User,
		"tags":        p.Tags,
		"any_tags":    p.AnyTags,
		"metadata":    p.Metadata,
	}
}

func timeParam(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}
