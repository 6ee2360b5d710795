package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

type endpointsUpdateCmd struct {
	ID         string  `arg:"" name:"id" help:"The endpoint's id."`
	Endpoint   *string `name:"endpoint-url" placeholder:"URL" help:"URL that deliveries are sent to."`
	Weight     *int    `placeholder:"N"`
	InFlight   *int    `name:"max-in-flight" placeholder:"N"`
	Rate       *string `placeholder:"RATE"`
	batchFlags `embed:""`
	Duplicate  bool   `name:"allow-duplicate"`
	File       string `short:"f" placeholder:"FILE"`
}

func (c *endpointsUpdateCmd) Help() string {
	return `An endpoint with a new URL must echo a challenge again. If scheme, host or port change,
headers and auth must be given again. headers: {}, auth: {kind: none} and tls: {} remove the
present ones.

Example:

    asyncflow endpoints update 0190a6f0-0000-7000-8000-000000000001 --weight 0`
}

// Run changes an endpoint.
func (c *endpointsUpdateCmd) Run(ctx context.Context, g *globals) error {
	settings, err := readSettings(c.File, g.env)
	if err != nil {
		return err
	}
	return g.printEndpoint(g.client().UpdateEndpoint(ctx, c.ID,
		client.EndpointPatch{URL: c.Endpoint, Weight: c.Weight, MaxInFlight: c.InFlight,
			Rate: c.Rate, Batch: c.batch(), AllowDuplicate: c.Duplicate,
			Headers: settings.Headers, Auth: settings.Auth, TLS: settings.TLS}))
}

// endpointSettings are the headers, auth and certificates of deliveries, as in a file.
type endpointSettings struct {
	Headers *map[string]string   `json:"headers"`
	Auth    *client.EndpointAuth `json:"auth"`
	TLS     *client.EndpointTLS  `json:"tls"`
}

// readSettings reads a YAML file; the name "" stands for no settings.
func readSettings(name string, env lookup) (s endpointSettings, err error) {
	if name == "" {
		return s, nil
	}
	raw, err := readInput(name)
	if err != nil {
		return s, usageError(err)
	}
	if err := document.Decode(raw, "headers, auth or tls", env, &s); err != nil {
		return s, usageError(document.InFile(name, err))
	}
	return s, nil
}

// orNothing returns the value that p points to, or the zero value for nil.
func orNothing[V any](p *V) (v V) {
	if p != nil {
		v = *p
	}
	return v
}

type endpointsVerifyCmd struct{ endpointArg }

func (c *endpointsVerifyCmd) Help() string {
	return `The server sends {"type": "asyncflow.challenge", "challenge": "…"} to the endpoint,
signed like a delivery. The endpoint must answer with 200 and {"challenge": "…"} within 10 s; if
it doesn't, the exit code is 1.`
}

// Run challenges an endpoint.
func (c *endpointsVerifyCmd) Run(ctx context.Context, g *globals) error {
	e, err := g.client().VerifyEndpoint(ctx, c.ID)
	if err := g.printEndpoint(e, err); err != nil {
		return err
	}
	if e.VerificationError != "" {
		return fmt.Errorf("the endpoint didn't echo the challenge: %s",
			printable(e.VerificationError))
	}
	return nil
}

type endpointsEnableCmd struct{ endpointArg }

func (c *endpointsEnableCmd) Help() string {
	return `For an endpoint that is disabled because it answered with 410, or whose circuit breaker
is open: it gets deliveries again at once.`
}

// Run enables an endpoint.
func (c *endpointsEnableCmd) Run(ctx context.Context, g *globals) error {
	return g.printEndpoint(g.client().EnableEndpoint(ctx, c.ID))
}

type endpointsRotateCmd struct {
	ID      string        `arg:"" name:"id" help:"The endpoint's id."`
	Overlap time.Duration `default:"24h"`
	Kind    string        `enum:",hmac,ed25519" default:"" placeholder:"KIND"`
	Secret  string        `env:"ASYNCFLOW_ENDPOINT_SECRET"`
}

func (c *endpointsRotateCmd) Help() string {
	return `Give the new secret to the worker while the old one still signs, too: the worker accepts a
delivery if one of its signatures is right.`
}

// Run rotates an endpoint's secret.
func (c *endpointsRotateCmd) Run(ctx context.Context, g *globals) error {
	overlap := asyncflow.NewDuration(c.Overlap)
	return g.printEndpoint(g.client().RotateEndpointSecret(ctx, c.ID,
		client.SecretRotation{Overlap: &overlap, Kind: asyncflow.SecretKind(c.Kind),
			Secret: c.Secret}))
}
