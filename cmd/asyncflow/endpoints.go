package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow/client"
)

// endpointsCmd is about endpoints.
type endpointsCmd struct {
	Create endpointsCreateCmd `cmd:"" help:"Register an endpoint for a stage."`
	List   endpointsListCmd   `cmd:"" help:"List the endpoints."`
	Get    endpointsGetCmd    `cmd:"" help:"Show an endpoint."`
	Delete endpointsDeleteCmd `cmd:"" help:"Delete an endpoint."`
}

type endpointsCreateCmd struct {
	Type     string `required:"" help:"Task type."`
	Stage    string `required:"" help:"Stage of the task type."`
	Endpoint string `arg:"" name:"endpoint-url" help:"URL that deliveries are sent to (--url is the server's)."`
	Secret   string `env:"ASYNCFLOW_ENDPOINT_SECRET" help:"Signing secret of your own: whsec_ and base64. Left out, one is made and shown this once."`
}

// Help is shown by asyncflow endpoints create --help.
func (c *endpointsCreateCmd) Help() string {
	return `Example:

    asyncflow endpoints create --type thumbnails --stage inspect https://worker.example.com/inspect`
}

// Run registers an endpoint.
func (c *endpointsCreateCmd) Run(ctx context.Context, g *globals) error {
	e, err := g.client().CreateEndpoint(ctx, client.NewEndpoint{Type: c.Type, Stage: c.Stage, Url: c.Endpoint, Secret: c.Secret})
	if err != nil {
		return err
	}
	return g.printEndpoint(e)
}

type endpointsListCmd struct {
	Type string `help:"Only those of this task type."`
}

// Run lists the endpoints.
func (c *endpointsListCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().Endpoints(ctx, c.Type)
	if err != nil {
		return err
	}
	if g.output == "json" {
		return g.printJSON(asList(list, ""))
	}
	rows := make([][]string, len(list))
	for i, e := range list {
		rows[i] = []string{e.Id, e.Type, e.Stage, e.Url, timeText(e.CreatedAt)}
	}
	return g.printTable("ID TYPE STAGE URL CREATED", rows)
}

type endpointsGetCmd struct {
	ID string `arg:"" name:"id" help:"The endpoint's id."`
}

// Run shows an endpoint.
func (c *endpointsGetCmd) Run(ctx context.Context, g *globals) error {
	e, err := g.client().Endpoint(ctx, c.ID)
	if err != nil {
		return err
	}
	return g.printEndpoint(e)
}

type endpointsDeleteCmd struct {
	ID string `arg:"" name:"id" help:"The endpoint's id."`
}

// Run deletes an endpoint.
func (c *endpointsDeleteCmd) Run(ctx context.Context, g *globals) error {
	if err := g.client().DeleteEndpoint(ctx, c.ID); err != nil {
		return err
	}
	return g.printDeleted(c.ID)
}

func (g *globals) printEndpoint(e client.Endpoint) error {
	if g.output == "json" {
		return g.printJSON(e)
	}
	return g.printFields("id", e.Id, "type", e.Type, "stage", e.Stage, "url", e.Url, "created", timeText(e.CreatedAt), "secret", e.Secret)
}

// printDeleted says that something is gone; the API's own answer is empty.
func (g *globals) printDeleted(name string) error {
	if g.output == "json" {
		return g.printJSON(map[string]string{"deleted": name})
	}
	_, err := fmt.Fprintln(g.stdout, printable(name), "deleted")
	return err
}
