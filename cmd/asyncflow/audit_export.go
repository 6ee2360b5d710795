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
	Since    timeFlag `placeholder:"TIME"`
	Until    timeFlag `placeholder:"TIME" help:"Only entries before this time."`
	Action   string   `placeholder:"WORD" help:"Only this action, such as task_type.put."`
	Subject  string   `placeholder:"NAME" help:"Only entries of this subject: the sub of its token."`
	Outcome  string   `enum:"done,refused,denied,failed," default:""`
	Operator bool
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
	switch {
	case c.State == "":
		return usageError(asyncflow.InvalidField("--state", "is required"))
	case c.Lag < 0:
		return usageError(asyncflow.InvalidField("--lag", "is %s; it must be 0s or more", c.Lag))
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
	filter, err := filterMembers(p)
	if err != nil {
		return err
	}
	w, err := c.window(now, c.Since.Time, c.Until.Time, filter)
	if err != nil {
		return err
	}
	s, err := newSpool()
	if err != nil {
		return err
	}
	defer s.close()
	p.Since, p.Until, p.Limit = w.since, w.until, pageSize
	for more := !w.empty(); more; more = p.Cursor != "" {
		page, err := g.client().Audit(ctx, p)
		if err != nil {
			return err
		}
		for _, e := range page.Data {
			if err := s.add(e.At, e); err != nil {
				return err
			}
		}
		p.Cursor = page.NextCursor
	}
	err = drain(s, pageSize, func(all []client.AuditEntry) error { return printLines(g, all) })
	if err == nil {
		err = c.finish(w)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.stderr, "%d entries written; once they are stored: mv %s %s\n",
		len(s.lines), c.next(), c.State)
	return err
}

// auditTime returns a time by the database's clock that is over: that of the newest entry. A call
// that reads the audit makes one itself, which the second call sees.
func auditTime(ctx context.Context, api *client.Client, operator bool) (at time.Time, err error) {
	for range 2 {
		page, err := api.Audit(ctx, client.AuditParams{Operator: operator, Limit: 1})
		if err != nil {
			return at, err
		}
		if len(page.Data) > 0 {
			at = page.Data[0].At
		}
	}
	return at, nil
}
