package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow/internal/document"
)

type typesDiffCmd struct {
	File     string `short:"f" required:"" placeholder:"FILE"`
	ExitCode bool   `help:"Exit with 1 if there is a difference."`
}

// Help is shown by asyncflow types diff --help.
func (c *typesDiffCmd) Help() string {
	return `This changes nothing. It marks a change that the server would refuse, such as removing a
stage that has live tasks. It leaves out what only the server has (other types, endpoints and
schedules), since apply removes nothing.

Example:

    asyncflow types diff -f asyncflow.yaml
    ~ type thumbnails
        stages: inspect → resize becomes inspect → resize → report
        stages[resize].timeout: "10s" becomes "20s"
    + endpoint thumbnails report https://worker.example.com/report`
}

// Run compares the document with what the server has.
func (c *typesDiffCmd) Run(ctx context.Context, g *globals) error {
	doc, err := readDocument(c.File, g.env)
	if err != nil {
		return usageError(err)
	}
	found, err := doc.Diff(ctx, g.client())
	if err != nil {
		return err
	}
	if err := printDifferences(g, found); err != nil {
		return err
	}
	if c.ExitCode && len(found) > 0 {
		return silent(exitFailed)
	}
	return nil
}

func printDifferences(g *globals, found []document.Difference) error {
	if g.output == "json" {
		return g.printJSON(asList(found, ""))
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(g.stdout, "no difference")
		return err
	}
	for _, d := range found {
		for _, line := range d.Lines() {
			if _, err := fmt.Fprintln(g.stdout, printable(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
