package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// exportCalls is how many tasks' contents are asked for at the same time, and are in memory.
const exportCalls = 8

// runEnded exports the tasks that ended since the last export, oldest end first.
func (c *tasksExportCmd) runEnded(ctx context.Context, g *globals, now time.Time) error {
	p := c.params()
	p.Text = c.Text
	write, err := c.writer(g)
	if err != nil {
		return err
	}
	e := exporter[client.Task]{exportFlags: c.exportFlags, filter: p,
		since: c.EndedSince.Time, until: c.EndedUntil.Time,
		list: func(
			ctx context.Context, w exportWindow, cursor string,
		) ([]client.Task, string, error) {
			p.EndedSince, p.EndedUntil, p.Limit, p.Cursor = w.since, w.until, pageSize, cursor
			page, err := g.client().List(ctx, p)
			return page.Data, page.NextCursor, err
		},
		at:    func(t client.Task) time.Time { return t.FinishedAt },
		write: write,
		count: func(n int) string { return plural(int64(n)) }}
	return e.run(ctx, g, now)
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

// withContents returns tasks with their contexts, results and attempts, in their order. It asks for
// all of them at the same time.
func withContents(
	ctx context.Context, api *client.Client, tasks []client.Task,
) ([]exportedTask, error) {
	all := make([]exportedTask, len(tasks))
	failed := make([]error, len(tasks))
	var calls sync.WaitGroup
	for i, t := range tasks {
		calls.Go(func() { all[i], failed[i] = contentsOf(ctx, api, t) })
	}
	calls.Wait()
	return all, errors.Join(failed...)
}

// contentsOf returns a task as it was listed, with its contents. What changed since then is left
// out: a task that was started again comes with its next end, and one that is gone is without
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
	if status := asyncflow.Status(c.Status); status != "" && !status.Final() {
		return usageError(asyncflow.InvalidField("--status",
			"is %s, and --state exports tasks that have ended", status))
	}
	return c.checkLag()
}
