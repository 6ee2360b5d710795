package main

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type auditExportCmd struct {
	exportFlags
	entryFlags
}

func (c *auditExportCmd) Help() string {
	return `Writes the entries since the last run as JSON lines, oldest first. FILE says where the
last run ended. The command leaves it as it is and writes FILE.next: rename that once the output is
stored. A run that was killed is done again from the same place.

Examples:

    asyncflow audit export --state audit.state > audit.jsonl && mv audit.state.next audit.state
    asyncflow audit export --operator --state operator.state`
}

// Run writes the entries since the last run.
func (c *auditExportCmd) Run(ctx context.Context, g *globals) error {
	if c.State == "" {
		return usageError(asyncflow.InvalidField("--state", "is required"))
	}
	if err := c.checkLag(); err != nil {
		return err
	}
	now, err := auditTime(ctx, g.client(), c.Operator)
	if err != nil {
		return err
	}
	return c.run(ctx, g, now)
}

// run exports the entries before a time by the database's clock, less the lag.
func (c *auditExportCmd) run(ctx context.Context, g *globals, now time.Time) error {
	p := client.AuditParams{Operator: c.Operator, Action: c.Action, Subject: c.Subject,
		Outcome: client.AuditOutcome(c.Outcome)}
	e := exporter[client.AuditEntry]{exportFlags: c.exportFlags, operator: c.Operator,
		filter: p,
		since:  c.Since.Time, until: c.Until.Time,
		list: func(
			ctx context.Context, w exportWindow, cursor string,
		) ([]client.AuditEntry, string, error) {
			p.Since, p.Until, p.Limit, p.Cursor = w.since, w.until, pageSize, cursor
			page, err := g.client().Audit(ctx, p)
			return page.Data, page.NextCursor, err
		},
		at: func(e client.AuditEntry) time.Time { return e.At },
		write: func(_ context.Context, some []client.AuditEntry) error {
			return printLines(g, some)
		},
		count: func(n int) string { return fmt.Sprintf("%d entries", n) }}
	return e.run(ctx, g, now)
}

// auditTime returns a time by the database's clock that is over: that of the newest entry. A call
// that reads the audit makes one itself, which the second call sees.
func auditTime(ctx context.Context, api *client.Client, operator bool) (time.Time, error) {
	for range 2 {
		page, err := api.Audit(ctx, client.AuditParams{Operator: operator, Limit: 1})
		if err != nil {
			return time.Time{}, err
		}
		if len(page.Data) > 0 {
			return page.Data[0].At, nil
		}
	}
	return time.Time{}, asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the audit has no entry, not even of this call: the node's log may say why")
}
