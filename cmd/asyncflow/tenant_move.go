package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// moveFlags are the flags of each command that moves tenants.
type moveFlags struct {
	databaseFlag `embed:""`
	MaxPause     time.Duration `default:"10s"`
}

type tenantsMoveCmd struct {
	moveFlags `embed:""`
	Tenant    string     `arg:"" help:"The tenant."`
	To        serverFlag `required:"" placeholder:"HOST[:PORT]"`
}

func (c *tenantsMoveCmd) Help() string {
	return `The tenant's tasks go on while its tables are copied. At the end its submits, deliveries and
settlements wait for a moment; then they go on at the new worker. Configuration that makes or drops
tables waits for the end of the move. A move that fails or is interrupted leaves the tenant where
it was. Each worker needs wal_level = logical. See docs/scale.md.

Example:

    asyncflow tenants move acme --to worker-2.example.com`
}

// Run moves the tenant.
func (c *tenantsMoveCmd) Run(ctx context.Context, g *globals) error {
	moved, err := c.move(ctx, g, c.Tenant, store.Server(c.To))
	if done, err := g.asDocument(movedOut(moved), err); done {
		return err
	}
	return printNote(g, "%s\n", movedText(moved))
}

// move moves a tenant, and tells of its progress.
func (c *moveFlags) move(
	ctx context.Context, g *globals, tenant string, to store.Server,
) (moved store.Moved, err error) {
	if c.MaxPause <= 0 {
		return moved, usageError(asyncflow.InvalidField("--max-pause",
			"is %v; it must be more than 0", c.MaxPause))
	}
	b := auditedCommand{url: c.DatabaseURL, action: "tenant.move", objectType: "tenant",
		object: tenant, detail: map[string]any{"to": to.String()}}
	err = b.do(ctx, func() error {
		moved, err = store.MoveTenant(ctx, c.DatabaseURL, store.Move{Tenant: tenant, To: to,
			MaxPause: c.MaxPause}, func(p store.MoveProgress) {
			fmt.Fprintln(g.stderr, moveText(p))
		})
		if err != nil {
			return err
		}
		b.detail["from"] = moved.From.String()
		b.detail["to"] = moved.To.String()
		b.detail["pause"] = moved.Pause.Round(time.Millisecond).String()
		if moved.TidyError != nil {
			b.detail["tidy_error"] = moved.TidyError.Error()
		}
		return nil
	})
	return moved, err
}

// moveText says how far a move is, and how long its copy may still take.
func moveText(p store.MoveProgress) string {
	text := fmt.Sprintf("%s: %s", p.Tenant, p.Phase)
	if p.Total > 0 {
		text += fmt.Sprintf(", %s of %s", bytesText(p.Done), bytesText(p.Total))
		if left := p.Total - p.Done; p.Done > 0 && left > 0 {
			left := time.Duration(float64(p.Since) * float64(left) / float64(p.Done))
			text += fmt.Sprintf(", about %v left", left.Round(time.Second))
		}
	}
	return text
}

func movedText(m store.Moved) string {
	text := fmt.Sprintf("tenant %s moved from %s to %s: %d tables in %v, writes blocked for %v",
		m.Tenant, m.From, m.To, m.Tables, m.Took.Round(100*time.Millisecond),
		m.Pause.Round(10*time.Millisecond))
	if m.TidyError != nil {
		text += fmt.Sprintf("\nit has moved, but tidying up failed: %v", m.TidyError)
	}
	return text
}

// movedDocument is a move in JSON, with durations in seconds.
type movedDocument struct {
	Tenant string  `json:"tenant"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Tables int     `json:"tables"`
	Took   float64 `json:"took"`
	Pause  float64 `json:"pause"`
	// TidyError says what failed after the tenant had moved.
	TidyError string `json:"tidy_error,omitempty"`
}

func movedOut(m store.Moved) movedDocument {
	d := movedDocument{Tenant: m.Tenant, From: m.From.String(), To: m.To.String(),
		Tables: m.Tables, Took: m.Took.Seconds(), Pause: m.Pause.Seconds()}
	if m.TidyError != nil {
		d.TidyError = m.TidyError.Error()
	}
	return d
}

// serverFlag is a server as HOST or HOST:PORT.
type serverFlag store.Server

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *serverFlag) UnmarshalText(text []byte) error {
	if len(text) > 0 && !strings.Contains(string(text), ":") {
		*f = serverFlag{Host: string(text)}
		return nil
	}
	host, port, err := net.SplitHostPort(string(text))
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 || host == "" {
		return asyncflow.InvalidField("--to", "is %q; it must be HOST or HOST:PORT", text)
	}
	*f = serverFlag{Host: host, Port: uint16(number)}
	return nil
}

type tenantsRebalanceCmd struct {
	moveFlags `embed:""`
	DryRun    bool `help:"Only show which tenants would move."`
}

func (c *tenantsRebalanceCmd) Help() string {
	return `Citus plans by the sizes of the tenants, and asyncflow makes the moves of its plan one after the
other, each as "asyncflow tenants move" does. The first that fails ends the command, with -o json
after the list of the moves that were made: run it again to go on. A plan with a move from or to the
coordinator is refused as a whole.

Example:

    asyncflow tenants rebalance --dry-run`
}

// Run shows the plan, or makes its moves.
func (c *tenantsRebalanceCmd) Run(ctx context.Context, g *globals) error {
	plan, err := store.PlanRebalance(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.show(g, plan)
	}
	made, err := c.moveAll(ctx, g, plan)
	if g.output == "json" {
		return errors.Join(err, g.printJSON(asList(made, "")))
	}
	if err != nil {
		return err
	}
	return printNote(g, "%d tenants moved\n", len(made))
}

// moveAll makes the moves of a plan until one fails, and returns those that it made.
func (c *tenantsRebalanceCmd) moveAll(
	ctx context.Context, g *globals, plan []store.PlannedMove,
) ([]movedDocument, error) {
	made := []movedDocument{}
	for _, p := range plan {
		moved, err := c.move(ctx, g, p.Tenant, p.To)
		if moved.Tenant != "" { // also if the audit has no entry of it
			made = append(made, movedOut(moved))
		}
		if err == nil && g.output != "json" {
			err = printNote(g, "%s\n", movedText(moved))
		}
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// plannedDocument is a planned move in JSON.
type plannedDocument struct {
	Tenant string `json:"tenant"`
	From   string `json:"from"`
	To     string `json:"to"`
	Bytes  int64  `json:"bytes"`
}

func (c *tenantsRebalanceCmd) show(g *globals, plan []store.PlannedMove) error {
	all := make([]plannedDocument, len(plan))
	rows := make([][]string, len(plan))
	for i, p := range plan {
		all[i] = plannedDocument{p.Tenant, p.From.String(), p.To.String(), p.Bytes}
		rows[i] = []string{p.Tenant, p.From.String(), p.To.String(), bytesText(p.Bytes)}
	}
	if g.output == "json" {
		return g.printJSON(asList(all, ""))
	}
	return g.printTable("TENANT FROM TO SIZE", rows)
}

// bytesText is a size in megabytes.
func bytesText(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
