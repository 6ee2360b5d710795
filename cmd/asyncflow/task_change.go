package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type tasksChangeCmd struct {
	ID       string           `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Priority string           `placeholder:"SECONDS"`
	Delay    *client.Duration `placeholder:"TIME" xor:"when"`
	RunAt    time.Time        `placeholder:"TIME" xor:"when"`
	Status   string           `enum:"waiting,pending," default:""`
	manyFlags
}

// Help is shown by asyncflow tasks change --help.
func (c *tasksChangeCmd) Help() string {
	return `A new priority moves the task in the order as if it had been submitted with it, and
applies to later stages. A task that is delayed, or waits for a retry, keeps its time unless you
set another.

` + manyHelp + `

Examples:

    asyncflow tasks change thumbnails.1.42 --priority 3600
    asyncflow tasks change thumbnails.1.42 --delay 0s
    asyncflow tasks change --type thumbnails --stage resize --priority 3600 --dry-run`
}

// Run changes a task and shows it, or changes many.
func (c *tasksChangeCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status); err != nil {
		return usageError(err)
	}
	patch := client.TaskPatch{RunAt: c.RunAt, Delay: c.Delay}
	var err error
	if patch.Priority, err = readPriority(c.Priority); err != nil {
		return usageError(err)
	}
	if len(patch.Priority) == 0 && c.Delay == nil && c.RunAt.IsZero() {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"say what to change: --priority, --delay or --run-at"))
	}
	if c.ID == "" {
		return c.changeAll(ctx, g, patch.Priority)
	}
	return g.printTask(g.client().Change(ctx, c.ID, patch))
}

// changeAll changes the priority of many tasks.
func (c *tasksChangeCmd) changeAll(ctx context.Context, g *globals, p client.Priority) error {
	if len(p) == 0 || c.Delay != nil || !c.RunAt.IsZero() {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"of many tasks only the --priority can be changed"))
	}
	b := client.BulkPriority{Type: c.Type, Status: api.BulkPriorityStatus(c.Status), Stage: c.Stage,
		Error: c.Error, Since: c.Since.Time, Until: c.Until.Time, Pace: c.pace(), Priority: p,
		Children: withChildren(c.Children)}
	return c.run(ctx, g, many{
		verb:  "change the priority of",
		count: func() (int64, error) { return g.client().CountPrioritize(ctx, b) },
		begin: func() (client.Operation, error) { return g.client().PrioritizeAll(ctx, b) },
	})
}

// readPriority reads numbers separated by commas; "" stands for none.
func readPriority(text string) (client.Priority, error) {
	if text == "" {
		return nil, nil
	}
	var p client.Priority
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, asyncflow.InvalidField("--priority",
				"is %q; it must be a number of seconds, or several with commas", text)
		}
		p = append(p, n)
	}
	return p, nil
}
