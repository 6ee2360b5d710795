package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksCountCmd struct {
	filterFlags
	Exact  bool `help:"Count all of them, however many, in the background."`
	Detach bool `help:"With --exact: don't wait for the end."`
}

// Help is shown by asyncflow tasks count --help.
func (c *tasksCountCmd) Help() string {
	return `The count is that of asyncflow tasks list with the same filter. It is cheap, however many
tasks there are: it may end early, at 10,000 tasks at the latest, and then says "at least".

With --exact, the command starts an operation that counts all tasks that were submitted before it.
Ctrl-C ends only the watching; see asyncflow operations.

Examples:

    asyncflow tasks count --type thumbnails --status failed --since 24h
    asyncflow tasks count --type thumbnails --status succeeded --exact -o json | jq .count`
}

// Run counts tasks, at once or by an operation.
func (c *tasksCountCmd) Run(ctx context.Context, g *globals) error {
	switch {
	case c.Exact && (c.Key != "" || c.Parent != ""):
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"--exact excludes --key and --parent: tasks of a key or parent are counted without it"))
	case c.Detach && !c.Exact:
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid, "--detach needs --exact"))
	case c.Exact:
		return c.countAll(ctx, g)
	}
	return g.printTaskCount(g.client().Count(ctx, c.params()))
}

// countAll counts all tasks, and shows their number as a count without an operation does. An
// operation that isn't done is shown itself.
func (c *tasksCountCmd) countAll(ctx context.Context, g *globals) error {
	o, err := g.client().CountAll(ctx, client.BulkCount{Type: c.Type, Status: client.Status(c.Status),
		Stage: c.Stage, Error: c.Error, Since: c.Since.Time, Until: c.Until.Time,
		Children: withChildren(c.Children)})
	if err != nil {
		return err
	}
	if c.Detach {
		return g.printOperation(o, nil)
	}
	o, err = g.follow(ctx, o)
	if err != nil || o.State != client.OperationDone {
		return g.printEnd(o, err)
	}
	return g.printTaskCount(client.TaskCount{Count: o.Done, Exact: true}, nil)
}

func (g *globals) printTaskCount(n client.TaskCount, err error) error {
	if done, err := g.asDocument(n, err); done {
		return err
	}
	least := ""
	if !n.Exact {
		least = "at least "
	}
	_, err = fmt.Fprintln(g.stdout, least+plural(n.Count))
	return err
}
