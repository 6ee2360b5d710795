package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/workercheck"
)

// verifyCmd tests a worker during its development. It needs no server.
type verifyCmd struct {
	Worker       string        `arg:"" name:"worker-url"`
	Type         string        `help:"Task type of the deliveries."`
	Stage        string        `help:"Their stage."`
	OnFinal      bool          `help:"Send events of on_final, in place of deliveries."`
	Context      string        `placeholder:"JSON"`
	Input        string        `placeholder:"JSON" help:"Input that all deliveries carry."`
	Outputs      string        `placeholder:"JSON" help:"Outputs that all carry, by stage."`
	Links        string        `placeholder:"JSON" help:"Decisions by stage: each delivery has links to them."`
	Checkpoint   string        `placeholder:"JSON" help:"A checkpoint that the worker may leave."`
	Secret       string        `env:"ASYNCFLOW_ENDPOINT_SECRET"`
	SecretFile   string        `type:"path" placeholder:"FILE" help:"File with the secret, instead."`
	Batch        int           `placeholder:"N"`
	Timeout      time.Duration `default:"10s" help:"How long an answer may take: the stage's timeout."`
	ReportWithin time.Duration `default:"30s"`
	Listen       string        `default:"127.0.0.1:0"`
	CallbackURL  string        `placeholder:"URL"`
	AllowHTTP    bool          `help:"Allow a worker's URL with plain http."`
	AllowPrivate bool          `name:"allow-private-networks"`
}

func (c *verifyCmd) Help() string {
	return `Plays a difficult dispatcher. The checks include challenges, bad and old signatures,
missing headers, the same delivery twice, an attempt that comes after its successor, a large
context and a slow connection. For a worker that answers with 202, a server takes its reports,
and refuses some. If the stage asks for more than the context, give --input and --outputs; if a
wait with links follows it, give --links.

The output shows the result of each check, and how to fix what failed; the exit code is then 1. A
check that doesn't concern the worker, such as heartbeats if it answers at once, is not
applicable (n/a).

The worker does its work about 20 times: run it where that does no harm.

With --on-final, it tries out a receiver of the ends of tasks: it sends events that are signed,
not signed, old, long, or come twice.

Examples:

    export ASYNCFLOW_ENDPOINT_SECRET=whsec_…
    asyncflow verify http://127.0.0.1:9000 --type hello --stage greet --context '{"name": "Ada"}' \
      --allow-http --allow-private-networks
    asyncflow verify https://shop.example.com/ended --on-final`
}

// Run tests the worker.
func (c *verifyCmd) Run(ctx context.Context, g *globals) error {
	cfg, err := c.config()
	if err != nil {
		return usageError(err)
	}
	show := func(check workercheck.Check) { g.printCheck(check) }
	if g.output == "json" {
		show = nil
	}
	report, err := workercheck.Run(ctx, cfg, show)
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeInvalid:
		return usageError(ownFlags(err))
	case err != nil:
		return err
	case g.output == "json":
		err = g.printJSON(report)
	default:
		_, err = fmt.Fprintf(g.stdout, "\n%d passed, %d failed, %d not applicable\n", report.Passed,
			report.Failed, len(report.Checks)-report.Passed-report.Failed)
	}
	if err == nil && report.Failed > 0 {
		return silent(exitFailed)
	}
	return err
}

// ownFlags makes an error name this command's flags in place of the operator's.
func ownFlags(err error) error {
	known := new(asyncflow.Error)
	if !errors.As(err, &known) {
		return err
	}
	flags := strings.NewReplacer(
		"(the operator's --allow-http)", "(use --allow-http)",
		"(the operator's --allow-private-networks, or a network of --egress-allow)",
		"(use --allow-private-networks)",
		"it must be a host that others know too", "use --allow-private-networks")
	own := *known
	own.Fields = slices.Clone(known.Fields)
	for i, f := range own.Fields {
		own.Fields[i].Message = flags.Replace(f.Message)
	}
	return &own
}

func (c *verifyCmd) config() (workercheck.Config, error) {
	for name, value := range map[string]string{"--type": c.Type, "--stage": c.Stage} {
		if value == "" && !c.OnFinal {
			return workercheck.Config{}, asyncflow.Errorf(asyncflow.CodeInvalid,
				"missing flags: %s; only --on-final needs none", name)
		}
	}
	document, err := readContext(c.Context)
	if err != nil {
		return workercheck.Config{}, err
	}
	secret, err := c.secret()
	if err != nil {
		return workercheck.Config{}, err
	}
	for name, d := range map[string]time.Duration{"--timeout": c.Timeout,
		"--report-within": c.ReportWithin} {
		if d <= 0 {
			return workercheck.Config{},
				asyncflow.InvalidField(name, "is %v; it must be above 0", d)
		}
	}
	cfg := workercheck.Config{URL: c.Worker, OnFinal: c.OnFinal, Type: c.Type, Stage: c.Stage,
		Secret:  secret,
		Context: document, Batch: c.Batch,
		Timeout: c.Timeout, ReportTime: c.ReportWithin, Listen: c.Listen,
		CallbackURL: c.CallbackURL,
		Version:     version,
		Egress:      asyncflow.Egress{AllowHTTP: c.AllowHTTP, AllowPrivate: c.AllowPrivate}}
	err = c.readFields(&cfg)
	return cfg, err
}

// readFields reads the documents of the fields that only some stages ask for.
func (c *verifyCmd) readFields(cfg *workercheck.Config) (err error) {
	if cfg.Input, err = readArgument(c.Input); err != nil {
		return err
	}
	if cfg.Checkpoint, err = readArgument(c.Checkpoint); err != nil {
		return err
	}
	err = readObject("--outputs", c.Outputs, `{"inspect": {"width": 640}}`, &cfg.Outputs)
	if err != nil {
		return err
	}
	return readObject("--links", c.Links, `{"review": ["approve", "reject"]}`, &cfg.Links)
}

// readObject reads an argument that is an object with stages, if it is given.
func readObject(name, argument, example string, into any) error {
	doc, err := readArgument(argument)
	if err != nil || doc == nil {
		return err
	}
	if json.Unmarshal(doc, into) != nil {
		return asyncflow.InvalidField(name, "must be an object with stages, such as %s", example)
	}
	return nil
}

func (c *verifyCmd) secret() (string, error) {
	switch {
	case c.SecretFile != "":
		text, err := readInput(c.SecretFile)
		return strings.TrimSpace(string(text)), err
	case c.Secret == "":
		return "", asyncflow.InvalidField("ASYNCFLOW_ENDPOINT_SECRET",
			"must be the worker's secret, or give --secret-file")
	}
	return c.Secret, nil
}

// printCheck shows a check as soon as it is done.
func (g *globals) printCheck(c workercheck.Check) {
	sign := map[workercheck.Result]string{workercheck.Passed: "ok", workercheck.Failed: "FAIL",
		workercheck.NotApplicable: "n/a"}[c.Result]
	fmt.Fprintf(g.stdout, "%-5s %-24s %s\n", sign, c.Name, printable(c.Detail))
	if c.Fix != "" {
		fmt.Fprintf(g.stdout, "%-5s %-24s fix: %s\n", "", "", c.Fix)
	}
}
