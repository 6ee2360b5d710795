package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// exportChunk is how many tasks are written at once, and exportCalls how many calls ask for their
// contents at the same time.
const (
	exportChunk = 64
	exportCalls = 8
)

// runEnded exports the tasks that ended since the last export, oldest end first. The lists of the
// API have them in the order of their numbers. So a spool has them until all are known.
func (c *tasksExportCmd) runEnded(ctx context.Context, g *globals, now time.Time) error {
	p := c.params()
	p.Text = c.Text
	filter, err := filterMembers(p)
	if err != nil {
		return err
	}
	w, err := c.window(now, c.EndedSince.Time, c.EndedUntil.Time, filter)
	if err != nil {
		return err
	}
	s, err := newSpool()
	if err != nil {
		return err
	}
	defer s.close()
	p.EndedSince, p.EndedUntil, p.Limit = w.since, w.until, pageSize
	for more := !w.empty(); more; more = p.Cursor != "" {
		page, err := g.client().List(ctx, p)
		if err != nil {
			return err
		}
		for _, t := range page.Data {
			if err := s.add(t.FinishedAt, t); err != nil {
				return err
			}
		}
		p.Cursor = page.NextCursor
	}
	out, err := c.writer(g)
	if err != nil {
		return err
	}
	err = drain(s, exportChunk, func(tasks []client.Task) error { return out(ctx, tasks) })
	if err == nil {
		err = c.finish(w)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.stderr, "%s written; once they are stored: mv %s %s\n",
		plural(int64(len(s.lines))), c.next(), c.State)
	return err
}

// databaseTime returns a time by the database's clock that is over, less than a minute ago.
// Machines' clocks don't matter then.
func databaseTime(ctx context.Context, api *client.Client) (time.Time, error) {
	h, err := api.History(ctx, client.HistoryQuery{Step: time.Minute})
	return h.Until.Add(-time.Minute), err // it ends with the minute of now
}

// exportedTask is a task with its contents.
type exportedTask struct {
	client.Task
	Attempts []client.Attempt `json:"attempts,omitempty"`
}

// withContents returns tasks with their contexts, results and attempts, in their order.
func withContents(
	ctx context.Context, api *client.Client, tasks []client.Task,
) ([]exportedTask, error) {
	all := make([]exportedTask, len(tasks))
	failed := make([]error, len(tasks))
	var calls sync.WaitGroup
	slots := make(chan struct{}, exportCalls)
	for i, t := range tasks {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			all[i], failed[i] = contentsOf(ctx, api, t)
		})
	}
	calls.Wait()
	return all, errors.Join(failed...)
}

// contentsOf returns a task as it was listed, with its contents. What has changed since then is
// left out: a task that was started again comes with its next end, and one that is gone has no
// contents.
func contentsOf(
	ctx context.Context, api *client.Client, listed client.Task,
) (exportedTask, error) {
	t := exportedTask{Task: listed}
	now, err := api.Get(ctx, listed.ID)
	if err == nil && now.FinishedAt.Equal(listed.FinishedAt) && now.Status == listed.Status {
		t.Context, t.Result, t.Erased = now.Context, now.Result, now.Erased
		t.Attempts, err = api.Attempts(ctx, listed.ID)
	}
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return exportedTask{Task: listed}, nil
	}
	return t, err
}

// checkState returns what is wrong with flags beside --state.
func (c *tasksExportCmd) checkState() error {
	switch status := asyncflow.Status(c.Status); {
	case status != "" && !status.Final():
		return usageError(asyncflow.InvalidField("--status",
			"is %s, and --state exports tasks that have ended", status))
	case c.Lag < 0:
		return usageError(asyncflow.InvalidField("--lag", "is %s; it must be 0s or more", c.Lag))
	}
	return nil
}
