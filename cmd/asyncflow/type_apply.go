package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

type typesApplyCmd struct {
	File string `short:"f" required:"" placeholder:"FILE" help:"YAML or JSON document; - is standard input."`
}

func (c *typesApplyCmd) Help() string {
	return `Applying the same document again changes nothing. An existing endpoint with the same
type, stage and URL stays as it is, with its secret; endpoints and schedules that the document
doesn't name stay, too. A new secret is shown only now. ${NAME} in a value is replaced by that
environment variable; $${NAME} stands for a literal ${NAME}. Numbers of a context keep their
digits. 00501 and 2026-12-01 are texts; put 0x1F, 1_000 and .inf in quotes to have them as texts.
A document that is JSON is read as JSON. Whatever the server refuses is named with its line, and
the rest is applied.

Example, as a file asyncflow.yaml:

    types:
      - name: thumbnails
        stages:
          - {name: inspect, timeout: 10s}
          - name: resize
            max_processing_time: 5m
            retry: {max_attempts: 5, interval: 30}
    endpoints:
      - {type: thumbnails, stage: inspect, url: "${WORKER_URL}/inspect"}
      - {type: thumbnails, stage: resize, url: "${WORKER_URL}/resize", secret: "${WORKER_SECRET}"}
    schedules:
      - name: nightly
        type: thumbnails
        context: {image: harbour.jpg}
        cron: "30 3 * * *"
        time_zone: Europe/Berlin

and then:

    export WORKER_URL=https://worker.example.com WORKER_SECRET=whsec_…
    asyncflow types apply -f asyncflow.yaml`
}

// Run applies the document.
func (c *typesApplyCmd) Run(ctx context.Context, g *globals) error {
	return g.applyDocument(ctx, c.File, document.Document.Apply)
}

// applyDocument applies the document in a file, or a part of it. It shows the changes even if it
// fails halfway, since secrets are shown only once.
func (g *globals) applyDocument(
	ctx context.Context, file string,
	apply func(document.Document, context.Context, *client.Client, func(document.Change)) error,
) error {
	doc, err := readDocument(file, g.env)
	if err != nil {
		return usageError(err)
	}
	var changes []document.Change
	failed := apply(doc, ctx, g.client(), func(done document.Change) {
		changes = append(changes, done)
	})
	if err := printChanges(g, changes); err != nil {
		return err
	}
	return failed
}

func printChanges(g *globals, changes []document.Change) error {
	if g.output == "json" {
		return g.printJSON(asList(changes, ""))
	}
	for _, done := range changes {
		if _, err := fmt.Fprintln(g.stdout, printable(done.String())); err != nil {
			return err
		}
	}
	return nil
}

// readDocument reads and checks the document in a file, or on standard input if its name is
// "-".
func readDocument(name string, env lookup) (document.Document, error) {
	raw, err := readInput(name)
	if err != nil {
		return document.Document{}, err
	}
	doc, err := document.Parse(raw, env)
	return doc.WithFile(name), document.InFile(name, err)
}

// readInput reads a file, or standard input if its name is "-".
func readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(name)
}

type typesDiffCmd struct {
	File     string `short:"f" required:"" placeholder:"FILE"`
	ExitCode bool   `help:"Exit with 1 if there is a difference."`
}

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

// Run compares the document with what is on the server.
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
