package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// auditCmd groups the commands for the audit.
type auditCmd struct {
	List   auditListCmd   `cmd:"" help:"List the entries, newest first."`
	Export auditExportCmd `cmd:"" help:"Write the entries since the last export, as JSON lines."`
}

// entryFlags select entries of the audit.
type entryFlags struct {
	Since    timeFlag `placeholder:"TIME"`
	Until    timeFlag `placeholder:"TIME" help:"Only entries before this time."`
	Action   string   `placeholder:"WORD" help:"Only this action, such as task_type.put."`
	Subject  string   `placeholder:"NAME" help:"Only entries of this subject: the sub of its token."`
	Outcome  string   `enum:"done,refused,denied,failed," default:""`
	Operator bool
}

type auditListCmd struct {
	entryFlags
	Limit  int    `default:"50" help:"The most entries to list; 0 lists all."`
	Cursor string `help:"Continue a list: the next_cursor of the previous page."`
	Follow bool   `short:"f"`
}

func (c *auditListCmd) Help() string {
	return `A subject in parentheses comes from a token that was not accepted. With --follow, the
command asks for new entries every 5 seconds, leaves out the reading of the audit itself, and
with -o json writes one document per line.

Examples:

    asyncflow audit list --since 24h --outcome denied
    asyncflow audit list --action task_type.put --limit 0 -o json |
      jq -r '.data[] | [.at, .subject, .object] | @tsv'
    asyncflow audit list --operator --follow`
}

// Run lists entries.
func (c *auditListCmd) Run(ctx context.Context, g *globals) error {
	switch {
	case c.Limit < 0:
		return usageError(asyncflow.InvalidField("--limit", "is %d; it must be 0 or more", c.Limit))
	case c.Follow && (c.Cursor != "" || !c.Until.IsZero()):
		return usageError(asyncflow.InvalidField("--follow",
			"goes on without end: it can't be with --cursor or --until"))
	case c.Follow:
		return c.follow(ctx, g, followEvery)
	}
	entries, cursor, err := c.collect(ctx, g, c.params(), c.Limit)
	if done, err := g.asDocument(asList(entries, cursor), err); done {
		return err
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		rows[i] = auditRow(e)
	}
	return g.printPage(auditHeader, rows, cursor)
}

func (c *auditListCmd) params() client.AuditParams {
	return client.AuditParams{Operator: c.Operator, Since: c.Since.Time, Until: c.Until.Time,
		Action: c.Action, Subject: c.Subject,
		Outcome: client.AuditOutcome(c.Outcome), Cursor: c.Cursor}
}

// collect returns at most limit entries (0: all), and the cursor of the next ones.
func (c *auditListCmd) collect(
	ctx context.Context, g *globals, p client.AuditParams, limit int,
) (all []client.AuditEntry, cursor string, err error) {
	next := func(size int, from string) ([]client.AuditEntry, string, error) {
		p.Limit, p.Cursor = size, from
		page, err := g.client().Audit(ctx, p)
		return page.Data, page.NextCursor, err
	}
	return collect(limit, p.Cursor, next)
}

const (
	followEvery = 5 * time.Second
	// followBack is how far each poll reaches back. An entry bears the time of its insert, but
	// becomes visible only with the commit; entries of denied calls come even later.
	followBack = 90 * time.Second
)

// follow lists the last entries, oldest first, and then new ones as they come.
func (c *auditListCmd) follow(ctx context.Context, g *globals, every time.Duration) error {
	entries, _, err := c.collect(ctx, g, c.params(), c.Limit)
	seen := map[string]bool{}
	last := c.Since.Time
	for {
		if err != nil {
			return err
		}
		slices.Reverse(entries)
		var fresh []client.AuditEntry
		known := map[string]bool{}
		for _, e := range entries {
			known[e.ID] = true
			if !seen[e.ID] && (c.Action != "" || !strings.HasSuffix(e.Action, "audit.list")) {
				fresh = append(fresh, e)
			}
			if e.At.After(last) {
				last = e.At
			}
		}
		seen = known
		if err := g.printFollowed(fresh); err != nil {
			return err
		}
		if !sleep.For(ctx, every) {
			return nil
		}
		p := c.params()
		if back := last.Add(-followBack); !last.IsZero() && back.After(p.Since) {
			p.Since = back
		}
		entries, _, err = c.collect(ctx, g, p, 0)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// printFollowed prints entries below the earlier ones.
func (g *globals) printFollowed(entries []client.AuditEntry) error {
	if g.output == "json" {
		for _, entry := range entries {
			if err := g.printJSONLine(entry); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(g.stdout, 16, 0, 2, ' ', 0)
	for _, entry := range entries {
		row := auditRow(entry)
		for i := range row {
			row[i] = cell(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

const auditHeader = "AT SUBJECT ACTION OBJECT OUTCOME STATUS ADDRESS CALLS REQUEST"

func auditRow(e client.AuditEntry) []string {
	subject := e.Subject
	if subject == "" && e.Claimed.Subject != "" {
		subject = "(" + e.Claimed.Subject + ")"
	}
	if e.Tenant != "" {
		subject += "@" + e.Tenant
	}
	if e.Origin != "api" {
		subject = e.Subject
	}
	status := ""
	if e.Status != 0 {
		status = number(int64(e.Status))
	}
	return []string{timeText(e.At), subject, e.Action, e.Object, string(e.Outcome), status,
		e.Address, number(e.Calls), e.RequestID}
}

// auditedCommand is a change that a command makes directly in the database. It leaves an entry in
// the operator's audit.
type auditedCommand struct {
	url        string // of the database
	action     string // as the API names it, where it offers the same
	objectType string
	object     string
	detail     map[string]any // may grow until do ends
}

// do makes the change and writes the entry, also if the change failed.
func (a auditedCommand) do(ctx context.Context, change func() error) error {
	err := change()
	if recorded := a.record(ctx, err); err == nil && recorded != nil {
		return fmt.Errorf("%s was done, but the audit has no entry of it: %w", a.action, recorded)
	}
	return err
}

// recordTime bounds the writing of an entry, also after an interrupt.
const recordTime = 5 * time.Second

func (a auditedCommand) record(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	e := asyncflow.AuditEntry{Origin: asyncflow.AuditFromCLI, Subject: operatorName(),
		UserAgent: "asyncflow/" + version,
		Action:    a.action, ObjectType: a.objectType, Object: a.object, Detail: a.detail,
		Outcome: asyncflow.AuditDone}
	if err != nil {
		e.Outcome, e.Code = asyncflow.AuditFailed, string(asyncflow.CodeOf(err))
		switch asyncflow.CodeOf(err) {
		case asyncflow.CodeInvalid, asyncflow.CodeNotFound, asyncflow.CodeConflict:
			e.Outcome = asyncflow.AuditRefused
		}
	}
	return store.RecordByHand(ctx, a.url, e)
}

// operatorName returns the user who runs this program, as user@host.
func operatorName() string {
	name := "uid-" + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
