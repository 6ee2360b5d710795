package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksChangeCmd struct {
	ID       string         `arg:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Priority string         `placeholder:"SECONDS"`
	Delay    *time.Duration `placeholder:"TIME" xor:"when"`
	RunAt    time.Time      `placeholder:"TIME" xor:"when"`
}

// Help is shown by asyncflow tasks change --help.
func (c *tasksChangeCmd) Help() string {
	return `A new priority moves the task in the order as if it had been submitted with it, and
applies to later stages. A task that is delayed, or waits for a retry, keeps its time unless you
set another.

Examples:

    asyncflow tasks change thumbnails.1.42 --priority 3600
    asyncflow tasks change thumbnails.1.42 --delay 0s`
}

// Run changes a task and shows it.
func (c *tasksChangeCmd) Run(ctx context.Context, g *globals) error {
	patch := client.TaskPatch{RunAt: c.RunAt, Delay: (*client.Duration)(c.Delay)}
	var err error
	if patch.Priority, err = readPriority(c.Priority); err != nil {
		return usageError(err)
	}
	if len(patch.Priority) == 0 && c.Delay == nil && c.RunAt.IsZero() {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"say what to change: --priority, --delay or --run-at"))
	}
	task, err := g.client().Change(ctx, c.ID, patch)
	if err != nil {
		return err
	}
	return g.printTask(task)
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
