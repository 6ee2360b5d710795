package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/asyncflow/asyncflow/internal/document"
)

type typesApplyCmd struct {
	File string `short:"f" required:"" placeholder:"FILE" help:"YAML or JSON document; - is standard input."`
}

// Help is shown by asyncflow types apply --help.
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

// Run applies the document. It shows the changes even if it fails halfway, since secrets are
// shown only once.
func (c *typesApplyCmd) Run(ctx context.Context, g *globals) error {
	doc, err := readDocument(c.File, g.env)
	if err != nil {
		return usageError(err)
	}
	var changes []document.Change
	report := func(done document.Change) { changes = append(changes, done) }
	failed := doc.Apply(ctx, g.client(), report)
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
