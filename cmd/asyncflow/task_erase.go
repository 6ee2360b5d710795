package main

import (
	"context"

	"github.com/asyncflow/asyncflow/client"
)

type tasksEraseCmd struct {
	ID     string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Status string `enum:"succeeded,failed,cancelled," default:""`
	endedFlags
	manyFlags
}

func (c *tasksEraseCmd) Help() string {
	return `The contexts, results, outputs, errors and labels of the tasks are gone at once, and
nothing brings them back. The tasks stay in lists, with their status, times and keys. Only final
tasks can be erased, and an erased task can't be redriven. Its children keep what they have: erase
them with --type and --parent. The token needs the scope manage.

` + manyHelp + `

Examples:

    asyncflow tasks erase thumbnails.1.42
    asyncflow tasks erase --type thumbnails --parent import.1.7
    asyncflow tasks erase --all-types --user ada --dry-run
    asyncflow tasks erase --type thumbnails --status failed --ended-until 720h --pace 50`
}

// Run erases a task and shows what remains of it, or erases many.
func (c *tasksEraseCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status, c.endedFlags); err != nil {
		return usageError(err)
	}
	if c.ID != "" {
		return g.printTask(g.client().Erase(ctx, c.ID))
	}
	b, err := selecting[client.BulkErasure](&c.manyFlags, c.Status, c.endedFlags)
	if err != nil {
		return err
	}
	m := many[client.BulkErasure]{"erase the contents of", g.client().CountErase,
		g.client().EraseAll}
	return m.run(ctx, g, &c.manyFlags, b)
}

// erasedText shows when the contents of a task were erased, and by whom.
func erasedText(e *client.Erasure) string {
	if e == nil {
		return ""
	}
	text := timeText(e.At)
	if e.By != "" {
		text += " by " + e.By
	}
	return text
}
