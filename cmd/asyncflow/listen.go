package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// listenCmd forwards the deliveries of a tenant to a worker on this machine.
type listenCmd struct {
	Forward     string   `placeholder:"URL"`
	Type        []string `placeholder:"NAME" sep:"none"`
	Stage       []string `placeholder:"NAME" sep:"none"`
	Label       []string `placeholder:"NAME=VALUE" sep:"none"`
	Secret      string   `env:"ASYNCFLOW_ENDPOINT_SECRET" placeholder:"SECRET"`
	PrintSecret bool
}

// outputQuiet is the output of listen that shows nothing but errors.
const outputQuiet = "quiet"

var errNotQuiet = errors.New("only asyncflow listen can be quiet")

func (c *listenCmd) Help() string {
	return `Makes an endpoint for listening for each stage that has no endpoint yet, claims the
deliveries, and forwards them to --forward: the same signed requests that pushes would be. The
answers count as those to pushes. A stage with an endpoint of its own is left alone.

Prints a line for each delivery: time, stage, task, status, duration and size. On a terminal, r
repeats the last delivery to your worker, without a report, and q ends the program. While your
worker or asyncflow can't be reached, tasks wait and lose no attempt.

The token needs the scopes read, manage and work.

Example:

    export WEBHOOK_SECRET=$(asyncflow listen --print-secret)
    asyncflow listen --forward http://localhost:3000`
}

// Run forwards deliveries until it is interrupted.
func (c *listenCmd) Run(ctx context.Context, g *globals) error {
	to, err := c.check()
	if err != nil {
		return usageError(err)
	}
	labels, err := claimerLabels(c.Label)
	if err != nil {
		return usageError(err)
	}
	secrets, err := openListenSecrets(g)
	if err != nil {
		return err
	}
	out := newListenOutput(g)
	stages, err := c.prepare(ctx, g.client(), secrets, out)
	secrets.close()
	if err != nil {
		return err
	}
	if c.PrintSecret {
		return printSecrets(g, stages)
	}
	l, err := newListener(g, out, to)
	if err != nil {
		return err
	}
	l.labels = labels
	return l.run(ctx, stages)
}

// check checks the flags, and returns where deliveries go.
func (c *listenCmd) check() (*url.URL, error) {
	if c.Secret != "" && !strings.HasPrefix(c.Secret, "whsec_") {
		return nil, asyncflow.InvalidField("--secret", "must be whsec_ and base64")
	}
	if c.PrintSecret {
		return nil, nil
	}
	to, err := url.Parse(c.Forward)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "" ||
		to.User != nil || to.Fragment != "" {
		return nil, asyncflow.InvalidField("--forward",
			"must be the URL of your worker, such as http://localhost:3000")
	}
	return to, nil
}

// printSecrets prints the signing secrets of stages, each once.
func printSecrets(g *globals, stages []listenStage) error {
	shown := map[string]bool{}
	for _, s := range stages {
		if s.secret == "" {
			return fmt.Errorf("%s", s.unknownSecret())
		}
		if !shown[s.secret] {
			fmt.Fprintln(g.stdout, s.secret)
			shown[s.secret] = true
		}
	}
	return nil
}

// claimerName returns a name that no other process uses.
func claimerName() string {
	host, _ := os.Hostname()
	host = strings.Map(func(c rune) rune { // see asyncflow.CheckClaimer
		if c <= ' ' || c > '~' {
			return '-'
		}
		return c
	}, host)
	return fmt.Sprintf("listen-%.60s-%d-%x", host, os.Getpid(), now().UnixNano())
}
