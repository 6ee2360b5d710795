package main

import (
	"context"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type tasksRedriveCmd struct {
	ID        string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	FromStage string `placeholder:"NAME"`
	Context   string `placeholder:"JSON"`
	Status    string `enum:"failed,cancelled," default:""`

	AllChildren bool `help:"With an id: all of its children, not only those that failed."`
	Dependents  bool `help:"With an id: also what failed because of it. --dry-run lists it."`
	manyFlags
}

// Help is shown by asyncflow tasks redrive --help.
func (c *tasksRedriveCmd) Help() string {
	return `A redriven task gets all attempts of its stages again.

` + manyHelp + ` A task that fails again is not redriven again.

Examples:

    asyncflow tasks redrive thumbnails.1.42 --from-stage inspect \
      --context '{"image": "harbour.png"}'
    asyncflow tasks redrive upload.1.7 --dependents --dry-run
    asyncflow tasks redrive --type thumbnails --error timeout --since 24h --dry-run
    asyncflow tasks redrive --type thumbnails --stage resize --from-stage inspect --pace 50`
}

// Run redrives a task and shows it, or redrives many.
func (c *tasksRedriveCmd) Run(ctx context.Context, g *globals) error {
	flags := c.manyFlags
	if c.ID != "" && c.Dependents {
		flags.DryRun = false // it lists them
	}
	if err := flags.check(c.ID, c.Status); err != nil {
		return usageError(err)
	}
	if c.ID == "" {
		if c.AllChildren || c.Dependents {
			return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
				"--all-children, --dependents and --type exclude each other: they are for one task"))
		}
		if c.Context != "" {
			return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
				"--context and --type exclude each other: a context is for one task"))
		}
		b := client.BulkRedrive{Type: c.Type, Status: api.BulkRedriveStatus(c.Status), Stage: c.Stage,
			Error: c.Error,
			Since: c.Since.Time, Until: c.Until.Time, Pace: c.pace(), FromStage: c.FromStage,
			Children: withChildren(c.Children)}
		return c.run(ctx, g, many{
			verb:  "redrive",
			count: func() (int64, error) { return g.client().CountRedrive(ctx, b) },
			begin: func() (client.Operation, error) { return g.client().RedriveAll(ctx, b) },
		})
	}
	if c.Context != "" && !json.Valid([]byte(c.Context)) {
		return usageError(asyncflow.InvalidField("--context", "is not valid JSON"))
	}
	return g.printTask(g.client().RedriveWith(ctx, c.ID, client.RedriveOptions{Stage: c.FromStage,
		Context: json.RawMessage(c.Context), AllChildren: c.AllChildren, Dependents: c.Dependents,
		DryRun: c.DryRun}))
}
