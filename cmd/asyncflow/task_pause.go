package main

import "context"

type tasksPauseCmd struct {
	ID     string `arg:"" name:"id" help:"The id of a task that waits for its children."`
	Reason string `placeholder:"TEXT" help:"Why; it is shown with the task."`
}

// Help is shown by asyncflow tasks pause --help.
func (c *tasksPauseCmd) Help() string {
	return `No further child of the task begins until it is resumed. Children that run are finished.

Example:

    asyncflow tasks pause scans.1.17 --reason "the scanner's disk is full"`
}

// Run pauses the children of a task and shows the task.
func (c *tasksPauseCmd) Run(ctx context.Context, g *globals) error {
	return g.printTask(g.client().Pause(ctx, c.ID, c.Reason))
}

type tasksResumeCmd struct {
	ID string `arg:"" name:"id" help:"The id of a paused task."`
}

// Help is shown by asyncflow tasks resume --help.
func (c *tasksResumeCmd) Help() string {
	return `Children begin again, each at its old place in the order.

Example:

    asyncflow tasks resume scans.1.17`
}

// Run resumes the children of a task and shows the task.
func (c *tasksResumeCmd) Run(ctx context.Context, g *globals) error {
	return g.printTask(g.client().Resume(ctx, c.ID))
}
