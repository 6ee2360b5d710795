package main

import (
	"context"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type tasksCancelCmd struct {
	ID     string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Reason string `placeholder:"TEXT" help:"Why; it is kept with each task."`
	Status string `enum:"waiting,pending,running," default:""`
	manyFlags
}

// Help is shown by asyncflow tasks cancel --help.
func (c *tasksCancelCmd) Help() string {
	return `An attempt in flight is not interrupted: its worker learns of the cancellation by its next
heartbeat, and its report is ignored.

` + manyHelp + `

Examples:

    asyncflow tasks cancel thumbnails.1.42 --reason "the order was withdrawn"
    asyncflow tasks cancel --type thumbnails --status waiting --dry-run
    asyncflow tasks cancel --type thumbnails --stage resize --until 24h --pace 100`
}

// Run cancels a task and shows it, or cancels many.
func (c *tasksCancelCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status); err != nil {
		return usageError(err)
	}
	if c.ID == "" {
		b := client.BulkCancellation{Type: c.Type, Status: api.BulkCancellationStatus(c.Status),
			Stage: c.Stage, Error: c.Error,
			Since: c.Since.Time, Until: c.Until.Time, Pace: c.pace(), Reason: c.Reason,
			Children: withChildren(c.Children)}
		return c.run(ctx, g, many{
			verb:  "cancel",
			count: func() (int64, error) { return g.client().CountCancel(ctx, b) },
			begin: func() (client.Operation, error) { return g.client().CancelAll(ctx, b) },
		})
	}
	return g.printTask(g.client().Cancel(ctx, c.ID, c.Reason))
}
