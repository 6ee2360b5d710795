package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// endpointsCmd groups the commands for endpoints.
type endpointsCmd struct {
	Create  endpointsCreateCmd  `cmd:"" help:"Register an endpoint for a stage."`
	Update  endpointsUpdateCmd  `cmd:"" help:"Change the settings of an endpoint."`
	Verify  endpointsVerifyCmd  `cmd:"" help:"Challenge an endpoint, so that it gets deliveries."`
	Test    endpointsTestCmd    `cmd:"" help:"Send an endpoint a test delivery, outside of any task."`
	Enable  endpointsEnableCmd  `cmd:"" help:"Let a disabled or stopped endpoint get deliveries again."`
	Rotate  endpointsRotateCmd  `cmd:"" name:"rotate-secret" help:"Sign deliveries with a new secret."`
	List    endpointsListCmd    `cmd:"" help:"List the endpoints."`
	Get     endpointsGetCmd     `cmd:"" help:"Show an endpoint."`
	History endpointsHistoryCmd `cmd:"" help:"Show the last hour of an endpoint."`
	Delete  endpointsDeleteCmd  `cmd:"" help:"Delete an endpoint."`
}

type endpointsCreateCmd struct {
	Type       string `required:"" help:"Task type."`
	Stage      string `required:"" help:"Stage of the task type."`
	Endpoint   string `arg:"" name:"endpoint-url"`
	Weight     *int   `placeholder:"N"`
	InFlight   int    `name:"max-in-flight" placeholder:"N"`
	Rate       string `placeholder:"RATE"`
	batchFlags `embed:""`
	Secret     string `env:"ASYNCFLOW_ENDPOINT_SECRET"`
	SecretKind string `enum:",hmac,ed25519" default:"" placeholder:"KIND"`
	Duplicate  bool   `name:"allow-duplicate"`
	File       string `short:"f" placeholder:"FILE"`
}

func (c *endpointsCreateCmd) Help() string {
	return `The server challenges the endpoint at once, unless the operator has turned that off. A
worker that doesn't know the secret yet fails the challenge: give it the secret, and then run
asyncflow endpoints verify.

Example:

    asyncflow endpoints create --type thumbnails --stage inspect https://worker.example.com/inspect

A file for --file may look as follows; ${NAME} is replaced by that environment variable:

    headers: {X-Api-Key: "${API_KEY}"}
    auth:
      kind: oauth2
      token_url: https://login.example.com/token
      client_id: asyncflow
      client_secret: "${CLIENT_SECRET}"
    tls: {ca: "${CA_PEM}"}`
}

// Run registers an endpoint.
func (c *endpointsCreateCmd) Run(ctx context.Context, g *globals) error {
	settings, err := readSettings(c.File, g.env)
	if err != nil {
		return err
	}
	var rate asyncflow.Rate
	if c.Rate != "" {
		if err := rate.UnmarshalText([]byte(c.Rate)); err != nil {
			return usageError(asyncflow.InvalidField("--rate", "%v", err))
		}
	}
	return g.printEndpoint(g.client().CreateEndpoint(ctx,
		client.NewEndpoint{Type: c.Type, Stage: c.Stage, URL: c.Endpoint, Weight: c.Weight,
			MaxInFlight: c.InFlight, Rate: rate, Batch: orNothing(c.batch()),
			Secret: c.Secret, AllowDuplicate: c.Duplicate,
			SecretKind: asyncflow.SecretKind(c.SecretKind),
			Headers:    orNothing(settings.Headers), Auth: orNothing(settings.Auth),
			TLS: orNothing(settings.TLS)}))
}

type endpointsListCmd struct {
	Type string `help:"Only entries of this task type."`
}

// Run lists the endpoints.
func (c *endpointsListCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().Endpoints(ctx, c.Type)
	if done, err := g.asDocument(asList(list, ""), err); done {
		return err
	}
	rows := make([][]string, len(list))
	for i, e := range list {
		rows[i] = []string{e.ID, e.Type, e.Stage, e.URL, strconv.Itoa(e.Weight), limitsLine(e),
			healthWord(e.Health.State), string(e.Verification), timeText(e.CreatedAt)}
	}
	return g.printTable("ID TYPE STAGE URL WEIGHT LIMITS HEALTH VERIFICATION CREATED", rows)
}

// endpointArg names the endpoint of a command.
type endpointArg struct {
	ID string `arg:"" name:"id" help:"The endpoint's id."`
}

type endpointsGetCmd struct{ endpointArg }

// Run shows an endpoint.
func (c *endpointsGetCmd) Run(ctx context.Context, g *globals) error {
	return g.printEndpoint(g.client().Endpoint(ctx, c.ID))
}

type endpointsDeleteCmd struct{ endpointArg }

// Run deletes an endpoint.
func (c *endpointsDeleteCmd) Run(ctx context.Context, g *globals) error {
	return g.printDeleted(c.ID, g.client().DeleteEndpoint(ctx, c.ID))
}

func (g *globals) printEndpoint(e client.Endpoint, err error) error {
	if done, err := g.asDocument(e, err); done {
		return err
	}
	deliveries := ""
	if e.Listen {
		deliveries = "claimed by asyncflow listen"
	}
	pairs := []string{"id", e.ID, "type", e.Type, "stage", e.Stage, "url", e.URL,
		"deliveries", deliveries, "weight",
		strconv.Itoa(e.Weight), "limits", limitsLine(e), "created", timeText(e.CreatedAt),
		"health", healthLine(e.Health), "attempts", attemptsLine(e.Health),
		"took", latencyLine(e.Health.Latency), "failures", codesLine(e.Health.Codes),
		"last failed because", e.Health.Reason,
		"verification", string(e.Verification), "verified", timeText(e.VerifiedAt),
		"not verified because", e.VerificationError, "secret", e.Secret}
	for _, s := range e.Secrets {
		pairs = append(pairs, "signs with", secretLine(s))
	}
	pairs = appendHeaders(pairs, e.Headers)
	return g.printFields(append(pairs, "auth", string(e.Auth.Kind), "tls", tlsLine(e.TLS))...)
}

// limitsLine returns the limits and the batch of an endpoint in one line.
func limitsLine(e client.Endpoint) string {
	var parts []string
	if e.MaxInFlight > 0 {
		parts = append(parts, strconv.Itoa(e.MaxInFlight)+" in flight")
	}
	if !e.Rate.IsZero() {
		parts = append(parts, e.Rate.String())
	}
	if !e.Batch.IsZero() {
		parts = append(parts, fmt.Sprintf("%d in a request, waiting %s for others",
			e.Batch.MaxTasks, e.Batch.MaxWait.Text()))
	}
	return strings.Join(parts, ", ")
}

// batchFlags set how many tasks go into one request.
type batchFlags struct {
	Batch     *int                `placeholder:"N"`
	BatchWait *asyncflow.Duration `placeholder:"TIME"`
}

// batch returns the batch that the flags describe, nil without flags.
func (f batchFlags) batch() *client.EndpointBatch {
	if f.Batch == nil && f.BatchWait == nil {
		return nil
	}
	return &client.EndpointBatch{MaxTasks: orNothing(f.Batch),
		MaxWait: orNothing(f.BatchWait)}
}

// healthWord returns the word for what an endpoint does, as the console shows it too.
func healthWord(state asyncflow.HealthState) string {
	switch state {
	case asyncflow.HealthClosed:
		return "delivering"
	case asyncflow.HealthOpen:
		return "stopped"
	case asyncflow.HealthHalfOpen:
		return "being tested"
	}
	return string(state)
}

// healthLine returns the health of an endpoint in one line.
func healthLine(h client.EndpointHealth) string {
	line := healthWord(h.State)
	if !h.Since.IsZero() {
		line += " since " + timeText(h.Since)
	}
	if !h.Until.IsZero() {
		line += " until " + timeText(h.Until)
	}
	return line
}

// attemptsLine returns the results of the last attempts at an endpoint.
func attemptsLine(h client.EndpointHealth) string {
	return fmt.Sprintf("%d in 5 minutes, %d of them failed", h.Attempts, h.Failures)
}

// latencyLine returns how long attempts took, in one line; "" without any.
func latencyLine(l client.Latency) string {
	if l == (client.Latency{}) {
		return ""
	}
	return "p50 " + latencyText(l.P50Ms) + ", p99 " + latencyText(l.P99Ms)
}

// latencyText returns a number of milliseconds as text; "" for none.
func latencyText(ms float32) string {
	if ms == 0 {
		return ""
	}
	return milliseconds(ms).String()
}

// codesLine returns failures by code, the most frequent first.
func codesLine(codes client.FailureCodes) string {
	parts := slices.SortedFunc(maps.Keys(codes), func(a, b string) int {
		return cmp.Or(cmp.Compare(codes[b], codes[a]), cmp.Compare(a, b))
	})
	for i, code := range parts {
		parts[i] = fmt.Sprintf("%d × %s", codes[code], code)
	}
	return strings.Join(parts, ", ")
}

// secretLine returns the kind of a secret, and until when it signs, in one line.
func secretLine(s client.EndpointSecret) string {
	line := string(s.Kind)
	if s.PublicKey != "" {
		line += " " + s.PublicKey
	}
	if !s.ExpiresAt.IsZero() {
		line += " until " + timeText(s.ExpiresAt)
	}
	return line
}

// tlsLine names the certificates of an endpoint.
func tlsLine(t client.EndpointTLS) string {
	var parts []string
	if t.CA != "" {
		parts = append(parts, "authorities of its own")
	}
	if t.Certificate != "" {
		parts = append(parts, "a client certificate")
	}
	return strings.Join(parts, ", ")
}

// printDeleted confirms a deletion; the API's own answer is empty.
func (g *globals) printDeleted(name string, err error) error {
	if done, err := g.asDocument(map[string]string{"deleted": name}, err); done {
		return err
	}
	_, err = fmt.Fprintln(g.stdout, printable(name), "deleted")
	return err
}
