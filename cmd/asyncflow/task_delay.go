package main

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type tasksDelayCmd struct {
	ID     string           `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Delay  *client.Duration `placeholder:"TIME" xor:"when"`
	RunAt  time.Time        `placeholder:"TIME" xor:"when"`
	Status string           `enum:"waiting,pending," default:""`
	manyFlags
}

func (c *tasksDelayCmd) Help() string {
	return `It puts pending and waiting tasks behind, or has them run earlier: --delay 0s means at once, for a
retry as well. A --delay counts from this call, so all tasks get the same time.

` + manyHelp + ` It skips tasks that wait for their children or
for a signal.

Examples:

    asyncflow tasks delay thumbnails.1.42 --delay 2h
    asyncflow tasks delay --type thumbnails --code 503 --delay 1h --dry-run
    asyncflow tasks delay --type thumbnails --status waiting --delay 0s --pace 50`
}

// Run changes when a task runs and shows it, or does so for many.
func (c *tasksDelayCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status); err != nil {
		return usageError(err)
	}
	if c.Delay == nil && c.RunAt.IsZero() {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"say when: --delay or --run-at"))
	}
	if c.ID != "" {
		return g.printTask(g.client().Change(ctx, c.ID,
			client.TaskPatch{RunAt: c.RunAt, Delay: c.Delay}))
	}
	b := client.BulkDelay{Type: c.Type, AllTypes: c.AllTypes, Key: c.Key, Parent: c.Parent,
		Attempts: c.Attempts, Code: c.Code,
		Fingerprint: c.Fingerprint, FlowKey: c.FlowKey,
		User: c.User, Tags: c.Tags, AnyTags: c.AnyTags, Metadata: c.Metadata,
		Status: api.BulkDelayStatus(c.Status), Stage: c.Stage, Error: c.Error,
		Since: c.Since.Time, Until: c.Until.Time, Pace: c.pace(), Delay: c.Delay, RunAt: c.RunAt,
		Children: withChildren(c.Children)}
	return c.run(ctx, g, many{
		verb:  "change the time of",
		count: func() (int64, error) { return g.client().CountDelay(ctx, b) },
		begin: func() (client.Operation, error) { return g.client().DelayAll(ctx, b) },
	})
}
