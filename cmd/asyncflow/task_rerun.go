package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksRerunCmd struct {
	ID      string           `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Context string           `placeholder:"JSON" xor:"context"`
	Delay   *client.Duration `placeholder:"TIME" xor:"when"`
	RunAt   time.Time        `placeholder:"TIME" xor:"when"`
	Status  string           `enum:"succeeded,failed,cancelled," default:""`

	ContextPatch string `placeholder:"JSON" xor:"context"`

	otherClaimFlags
	StartBy asyncflow.Deadline `placeholder:"TIME" help:"Expire if not begun by then, or in 30m."`
	EndBy   asyncflow.Deadline `placeholder:"TIME" help:"Expire if not final by then, or in 2h."`

	IdempotencyKey *string `placeholder:"KEY" help:"With an id: the same key makes one task."`
	endedFlags
	manyFlags
}

func (c *tasksRerunCmd) Help() string {
	return `The new task begins at the first stage, and has the context, labels and options of the old
one, which stays as it is.

` + manyHelp + ` It leaves out children of fan-outs.

Examples:

    asyncflow tasks rerun thumbnails.1.42
    asyncflow tasks rerun thumbnails.1.42 --context '{"image": "harbour.png"}'
    asyncflow tasks rerun --type thumbnails --status succeeded --ended-since 2h --dry-run
    asyncflow tasks rerun --type thumbnails --status succeeded --ended-since 2h \
      --context-patch '{"width": 800, "draft": null}'`
}

// Run runs a task again and shows the new one, or runs many again.
func (c *tasksRerunCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status, c.endedFlags); err != nil {
		return usageError(err)
	}
	if c.ID != "" {
		return c.runOne(ctx, g)
	}
	if c.Children != nil && *c.Children {
		return usageError(asyncflow.InvalidField("--children",
			"can't be used: children run again with their parent"))
	}
	c.Children = nil // the call leaves them out in any case
	claim, err := c.otherClaimFlags.change()
	if err != nil {
		return usageError(err)
	}
	if c.Context != "" || c.Delay != nil || !c.RunAt.IsZero() || c.IdempotencyKey != nil ||
		claim != nil {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid, "--context, --delay, --run-at, "+
			"--claim-exclude, --claim-label, --claim-anyone and --idempotency-key are for one task"))
	}
	if c.Status == "" {
		return usageError(asyncflow.InvalidField("--status",
			"is missing: succeeded, failed or cancelled tasks run again"))
	}
	patch, err := contextFlag("--context-patch", c.ContextPatch)
	if err != nil {
		return usageError(err)
	}
	b, err := selecting[client.BulkRerun](&c.manyFlags, c.Status, c.endedFlags)
	if err != nil {
		return err
	}
	b.StartBy = c.StartBy
	b.EndBy = c.EndBy
	b.ContextPatch = patch
	m := many[client.BulkRerun]{"run again", g.client().CountRerun, g.client().RerunAll}
	return m.run(ctx, g, &c.manyFlags, b)
}

// runOne runs one task again.
func (c *tasksRerunCmd) runOne(ctx context.Context, g *globals) error {
	how := client.RerunOptions{RunAt: c.RunAt, Delay: c.Delay, StartBy: c.StartBy, EndBy: c.EndBy}
	var err error
	if how.Claim, err = c.otherClaimFlags.change(); err != nil {
		return usageError(err)
	}
	if how.Context, err = contextFlag("--context", c.Context); err != nil {
		return usageError(err)
	}
	if how.ContextPatch, err = contextFlag("--context-patch", c.ContextPatch); err != nil {
		return usageError(err)
	}
	key := ""
	if c.IdempotencyKey != nil {
		if key = *c.IdempotencyKey; key == "" {
			return usageError(asyncflow.InvalidField("--idempotency-key", "must not be empty"))
		}
	}
	return g.printSubmitted(g.client().Rerun(ctx, c.ID, how, key))
}

// contextFlag returns the JSON in a flag, nil without it.
func contextFlag(name, text string) (client.JSON, error) {
	switch {
	case text == "":
		return nil, nil
	case !json.Valid([]byte(text)):
		return nil, asyncflow.InvalidField(name, "is not valid JSON")
	}
	return client.JSON(text), nil
}
