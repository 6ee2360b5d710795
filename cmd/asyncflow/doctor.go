package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

// doctorCmd looks at the whole installation.
type doctorCmd struct {
	databaseFlag
	PooledURL            string      `name:"pooled-url" env:"ASYNCFLOW_POOLED_URL" placeholder:"URL"`
	Egress               egressFlags `embed:""`
	AllowPrivateNetworks bool        `env:"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS"`
	All                  bool        `help:"Also show the checks that found nothing."`
}

func (c *doctorCmd) Help() string {
	return `It looks at the server, the way to it, the schemas and roles, the nodes, the background
jobs, and at what the types of all tenants lack, and changes nothing. Each finding says what to do,
and where the manual (docs/) says more. It has one of three levels: a problem keeps tasks from their
work or may lose them, a warning costs something or soon will, a note may be meant so. The exit code
is 1 if there is a problem. For programs: --output json.

It needs the database, not a running node. With the role pg_monitor its user also sees the
transactions of others and the standbys. It opens a TLS connection to each endpoint's host, within
the same limits as a node (--egress-allow, --egress-deny, --allow-private-networks), and sends
nothing.`
}

// checkupReport is what programs get.
type checkupReport struct {
	Problems int             `json:"problems"`
	Warnings int             `json:"warnings"`
	Findings []store.Finding `json:"findings"`
}

// Run shows the findings.
func (c *doctorCmd) Run(ctx context.Context, g *globals) error {
	egress, err := c.Egress.policy(false, c.AllowPrivateNetworks)
	if err != nil {
		return err
	}
	all, err := store.Examine(ctx, c.DatabaseURL, c.PooledURL, c.off(),
		func(ctx context.Context, url string) (time.Time, error) {
			return callbacks.CertificateEnd(ctx, callbacks.Config{Egress: egress}, url)
		})
	if err != nil {
		return err
	}
	r := checkupReport{Findings: []store.Finding{}}
	for _, f := range all {
		switch f.Level {
		case store.FindingProblem:
			r.Problems++
		case store.FindingWarning:
			r.Warnings++
		case store.FindingOK:
			if !c.All && g.output != "json" {
				continue
			}
		}
		r.Findings = append(r.Findings, f)
	}
	if done, err := g.asDocument(r, nil); err != nil {
		return err
	} else if !done {
		if err := r.print(g); err != nil {
			return err
		}
	}
	if r.Problems > 0 {
		return asyncflow.Errorf(asyncflow.CodeConflict, "the doctor found %s",
			things(r.Problems, "problem"))
	}
	return nil
}

func (r checkupReport) print(g *globals) error {
	w := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		text := f.Text
		if f.Tenant != "" {
			text = f.Tenant + ": " + text
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, cell(text))
		if f.Do != "" {
			fmt.Fprintf(w, "\t\tDo: %s\n", cell(f.Do))
		}
		if f.Page != "" {
			fmt.Fprintf(w, "\t\tSee: docs/%s\n", f.Page)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(g.stdout, "%s, %s\n", things(r.Problems, "problem"),
		things(r.Warnings, "warning"))
	return err
}

// things writes a number of things.
func things(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
