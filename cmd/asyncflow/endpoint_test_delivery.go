package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type endpointsTestCmd struct {
	ID      string `arg:"" name:"id" help:"The endpoint's id."`
	Context string `placeholder:"JSON"`
}

func (c *endpointsTestCmd) Help() string {
	return `The server sends the endpoint one delivery, signed and sent like any other, but outside of
any task: its body has "test": true, and nothing is reported on it. The command shows the request,
the answer, and what such an answer would mean for a task. The exit code is 1 if the attempt would
not have been done or accepted.

Example:

    asyncflow endpoints test 0190a6f0-0000-7000-8000-000000000001 \
      --context '{"image": "harbour.jpg"}'`
}

// Run sends a test delivery.
func (c *endpointsTestCmd) Run(ctx context.Context, g *globals) error {
	doc, err := readContext(c.Context)
	if err != nil {
		return usageError(err)
	}
	t, err := g.client().TestEndpoint(ctx, c.ID, client.EndpointTest{Context: doc})
	if err := g.printEndpointTest(t, err); err != nil {
		return err
	}
	if t.Outcome != api.EndpointTestResultOutcomeDone &&
		t.Outcome != api.EndpointTestResultOutcomeAccepted {
		return fmt.Errorf("the outcome is %s: %s", t.Outcome, printable(t.Error))
	}
	return nil
}

func (g *globals) printEndpointTest(t client.EndpointTestResult, err error) error {
	if done, err := g.asDocument(t, err); done {
		return err
	}
	pairs := []string{"outcome", string(t.Outcome), "error", t.Error,
		"took", milliseconds(t.DurationMs).String()}
	if !t.RetryAfter.IsZero() {
		pairs = append(pairs, "retry after", t.RetryAfter.String())
	}
	pairs = append(pairs, "request", strings.TrimSpace(t.Request.Method+" "+t.Request.URL))
	pairs = append(appendHeaders(pairs, t.Request.Headers), "body", t.Request.Body)
	if t.Response.Status != 0 {
		pairs = append(pairs, "answer",
			strconv.Itoa(t.Response.Status)+" "+http.StatusText(t.Response.Status))
	}
	pairs = append(appendHeaders(pairs, t.Response.Headers), "body", t.Response.Body)
	return g.printFields(pairs...)
}

// appendHeaders appends headers to fields, by their names.
func appendHeaders(pairs []string, headers map[string]string) []string {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		pairs = append(pairs, "header", name+": "+headers[name])
	}
	return pairs
}
