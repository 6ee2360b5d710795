package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/document"
)

type typesVersionsCmd struct {
	Name    string `arg:"" help:"The task type."`
	Version int    `arg:"" optional:"" help:"Show this version, as a document for types apply."`
	Diff    int    `placeholder:"VERSION" help:"Show how VERSION differs from the one that is shown."`
}

func (c *typesVersionsCmd) Help() string {
	return `Lists the versions of a type, newest first: the present one, and the latest 100 before it, as
far as they have up to 1 MiB together. asyncflow audit list says who applied them.

Examples:

    asyncflow types versions thumbnails
    asyncflow types versions thumbnails 3 > old.json
    asyncflow types versions thumbnails 4 --diff 3`
}

// Run lists the versions of a type, or shows one.
func (c *typesVersionsCmd) Run(ctx context.Context, g *globals) error {
	switch {
	case c.Version == 0 && c.Diff != 0:
		return usageError(asyncflow.InvalidField("--diff", "needs a version to compare with"))
	case c.Version == 0:
		return c.list(ctx, g)
	}
	shown, err := g.client().TaskTypeVersion(ctx, c.Name, c.Version)
	if err != nil {
		return err
	}
	if c.Diff != 0 {
		old, err := g.client().TaskTypeVersion(ctx, c.Name, c.Diff)
		if err != nil {
			return err
		}
		return printDifferences(g, document.DiffSpecs(c.Name, old.Spec, shown.Spec))
	}
	if g.output == "json" {
		return g.printJSON(shown)
	}
	return g.printJSON(map[string]any{"types": document.OfType(c.Name, shown.Spec).Types})
}

func (c *typesVersionsCmd) list(ctx context.Context, g *globals) error {
	list, err := g.client().TaskTypeVersions(ctx, c.Name)
	if done, err := g.asDocument(list, err); done {
		return err
	}
	rows := make([][]string, len(list.Data))
	for i, v := range list.Data {
		now := ""
		if v.Current {
			now = "present"
		}
		rows[i] = []string{strconv.Itoa(v.Version), timeText(v.AppliedAt), now}
	}
	return g.printTable("VERSION APPLIED STATE", rows)
}

type typesRollbackCmd struct {
	Name    string `arg:"" help:"The task type."`
	Version int    `arg:"" help:"The version to go back to; see asyncflow types versions."`
	DryRun  bool   `help:"Only show what would change, and whether the server would refuse it."`
}

func (c *typesRollbackCmd) Help() string {
	return `Applies an earlier version of a task type again, as a new version, after showing what changes.
A stage that the earlier version doesn't have can't go while live tasks are in it: take the document
from asyncflow types versions, give it a stage_mapping, and apply that.

Example:

    asyncflow types rollback thumbnails 3 --dry-run
    asyncflow types rollback thumbnails 3`
}

// Run goes back to a version, or shows what that would change.
func (c *typesRollbackCmd) Run(ctx context.Context, g *globals) error {
	old, err := g.client().TaskTypeVersion(ctx, c.Name, c.Version)
	if err != nil {
		return err
	}
	doc := document.OfType(c.Name, old.Spec)
	found, err := doc.Diff(ctx, g.client())
	if err != nil {
		return err
	}
	if c.DryRun {
		return printDifferences(g, found)
	}
	if g.output != "json" {
		if err := printDifferences(g, found); err != nil {
			return err
		}
	}
	var changes []document.Change
	report := func(done document.Change) { changes = append(changes, done) }
	if err := doc.Apply(ctx, g.client(), report); err != nil {
		return fmt.Errorf("version %d of %s: %w", c.Version, c.Name, err)
	}
	return printChanges(g, changes)
}
