package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type claimCmd struct {
	Type    string        `required:"" help:"Task type."`
	Stage   string        `required:"" help:"Stage of the task type; its mode must be claim."`
	Claimer string        `placeholder:"NAME" help:"Who asks (by default the user and the process)."`
	Max     int           `default:"1" help:"The most tasks."`
	Label   []string      `placeholder:"NAME=VALUE" help:"What the claimer is or can do."`
	Wait    time.Duration `default:"0s" help:"How long to wait for the first one."`
}

func (c *claimCmd) Help() string {
	return `Prints each delivery as a line of JSON, as a worker would get it. Report on it by its
callback: the claim ends after 15 s unless there is a heartbeat, progress or a report by then. The
token needs the scope work.

Example:

    asyncflow claim --type moderation --stage judge --max 5 --wait 30s`
}

// Run claims tasks.
func (c *claimCmd) Run(ctx context.Context, g *globals) error {
	if c.Claimer == "" {
		c.Claimer = fmt.Sprintf("cli-%d-%d", os.Getuid(), os.Getpid())
	}
	labels, err := claimerLabels(c.Label)
	if err != nil {
		return err
	}
	all, err := g.client().Claim(ctx, client.ClaimRequest{Type: c.Type, Stage: c.Stage,
		Labels: labels, Claimer: c.Claimer, Max: c.Max, Wait: asyncflow.NewDuration(c.Wait)})
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := g.printJSONLine(d); err != nil {
			return err
		}
	}
	return nil
}

// claimerLabels reads labels of the form name=value. A name given several times stands for all
// values.
func claimerLabels(texts []string) (asyncflow.ClaimerLabels, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	all := asyncflow.ClaimerLabels{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, asyncflow.InvalidField("--label", "is %.80q; it must be NAME=VALUE", text)
		}
		all[name] = append(all[name], value)
	}
	return all, asyncflow.CheckClaimerLabels("--label", all)
}
