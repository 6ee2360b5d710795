package main

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
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
	if err := c.check(c.ID, c.Status, endedFlags{}); err != nil {
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
	b, err := selecting[client.BulkDelay](&c.manyFlags, c.Status, endedFlags{})
	if err != nil {
		return err
	}
	b.Delay = c.Delay
	b.RunAt = c.RunAt
	return c.runDelays(ctx, g, "change the time of", b)
}

// runDelays counts the tasks of a change of their time, or makes it.
func (f *manyFlags) runDelays(
	ctx context.Context, g *globals, verb string, b client.BulkDelay,
) error {
	m := many[client.BulkDelay]{verb, g.client().CountDelay, g.client().DelayAll}
	return m.run(ctx, g, f, b)
}

type tasksRunNowCmd struct {
	ID     string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Status string `enum:"waiting,pending," default:""`
	manyFlags
}

func (c *tasksRunNowCmd) Help() string {
	return `It is asyncflow tasks delay with --delay 0s: a delay, a retry's pause or a snooze ends at once.
Limits, pauses and what a task depends on still count.

` + manyHelp + `

Examples:

    asyncflow tasks run-now thumbnails.1.42
    asyncflow tasks run-now --type thumbnails --status waiting --code 503 --pace 50`
}

// Run ends the delay of a task and shows it, or does so for many.
func (c *tasksRunNowCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status, endedFlags{}); err != nil {
		return usageError(err)
	}
	now := client.NewDuration(0)
	if c.ID != "" {
		return g.printTask(g.client().Change(ctx, c.ID, client.TaskPatch{Delay: &now}))
	}
	b, err := selecting[client.BulkDelay](&c.manyFlags, c.Status, endedFlags{})
	if err != nil {
		return err
	}
	b.Delay = &now
	return c.runDelays(ctx, g, "run now", b)
}
