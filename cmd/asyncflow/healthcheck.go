package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow/client"
)

// healthcheckCmd asks a server whether it can take requests.
type healthcheckCmd struct{}

func (c *healthcheckCmd) Help() string {
	return `The exit code is 0 if GET /readyz is answered with 200, else 1, as Docker expects. This
command needs no token.

Example, in a Dockerfile:

    HEALTHCHECK CMD ["asyncflow", "healthcheck", "--url", "http://127.0.0.1:8080"]`
}

const healthTimeout = 5 * time.Second

// Run asks once, without retries: health checks are repeated anyway.
func (c *healthcheckCmd) Run(ctx context.Context, g *globals) error {
	api, err := client.New(g.client().URL(), "", client.WithTimeout(healthTimeout),
		client.WithRetries(0))
	if err != nil {
		return usageError(err)
	}
	health, err := api.Ready(ctx)
	if err != nil {
		return &codedError{exitFailed, err}
	}
	if g.output == "json" {
		return g.printJSON(health)
	}
	_, err = fmt.Fprintln(g.stdout, health.Status)
	return err
}
