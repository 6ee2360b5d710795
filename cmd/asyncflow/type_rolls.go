package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/asyncflow/asyncflow/client"
)

type typesRollsCmd struct {
	Name string `arg:"" help:"The task type."`
}

// Help is shown by asyncflow types rolls --help.
func (c *typesRollsCmd) Help() string {
	return `A roll is one generation of the tables of tasks. It is dropped whole, with all its tasks.
The newest 100 are listed, the newest first.

TASKS is about how many tasks it has, live and final, and BYTES the size of its tables. If its
TABLES are shared, both are those of all types that share them. GOES says when it is dropped, at the
earliest, or, of the open one, when the next one opens.

Example:

    asyncflow types rolls thumbnails -o json | jq '[.data[].bytes] | add'`
}

// Run lists the rolls of a task type.
func (c *typesRollsCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().TaskTypeRolls(ctx, c.Name)
	if done, err := g.asDocument(list, err); done {
		return err
	}
	rows := make([][]string, len(list.Data))
	for i, r := range list.Data {
		tables := "shared"
		if r.Own {
			tables = "own"
		}
		rows[i] = []string{strconv.Itoa(r.Position), tables, number(r.TasksEstimate), number(r.Bytes),
			timeText(r.OpenedAt), timeText(r.SealedAt), timeText(r.IdleSince), rollEndText(r)}
	}
	err = g.printTable("ROLL TABLES TASKS BYTES OPENED SEALED IDLE GOES", rows)
	if err != nil || list.Older == 0 {
		return err
	}
	fmt.Fprintln(g.stdout)
	return g.printFields("older", strconv.Itoa(list.Older))
}

// rollEndText returns when a roll is dropped, or the next one opens.
func rollEndText(r client.Roll) string {
	switch {
	case !r.DropsAt.IsZero():
		return timeText(r.DropsAt)
	case r.NextTasks == 0:
		return r.Retention.String() + " after its last task ends, or later"
	case r.NextAt.IsZero():
		return fmt.Sprintf("next one at %d tasks", r.NextTasks)
	}
	return fmt.Sprintf("next one at %d tasks or %s", r.NextTasks, timeText(r.NextAt))
}
