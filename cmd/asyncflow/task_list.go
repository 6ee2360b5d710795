package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// pageSize is the limit of tasks in one page.
const pageSize = 500

// endedFlags select final tasks by when they ended.
type endedFlags struct {
	EndedSince timeFlag `placeholder:"TIME"`
	EndedUntil timeFlag `placeholder:"TIME" help:"Only final tasks that ended before this time."`
}

// happenedFlags select tasks by what happened to them, and by their flow key.
type happenedFlags struct {
	Attempts int    `placeholder:"N" help:"Only tasks in attempt N of their stage, or a later one."`
	Code     string `placeholder:"CODE"`

	Fingerprint string `placeholder:"ID" help:"Only tasks whose last error is of this kind."`

	FlowKey  string `placeholder:"KEY" help:"Only tasks with this flow key."`
	Worker   string `placeholder:"NAME" help:"Only tasks that this worker runs or ran."`
	User     string `placeholder:"USER" help:"Only tasks that were submitted for this user."`
	Tags     string `placeholder:"TAG,…" help:"Only tasks with all of these tags."`
	AnyTags  string `placeholder:"TAG,…" help:"Only tasks with one of these tags."`
	Metadata string `placeholder:"NAME=VALUE" help:"Only tasks with this entry of their metadata."`
}

// filterFlags select tasks.
type filterFlags struct {
	Type   string   `placeholder:"NAME" help:"Task type. Default: all types."`
	Status string   `enum:"waiting,pending,running,succeeded,failed,cancelled," default:""`
	Stage  string   `placeholder:"NAME" help:"Only tasks that are, or ended, in this stage."`
	Error  string   `placeholder:"TEXT"`
	Key    string   `placeholder:"KEY" help:"Only the task of this idempotency key."`
	Since  timeFlag `placeholder:"TIME"`
	Until  timeFlag `placeholder:"TIME" help:"Only tasks submitted before this time."`
	Parent string   `placeholder:"ID" help:"Only the children of this task, of all its fan-outs."`

	endedFlags
	happenedFlags

	Children bool `help:"Also children of fan-outs. Default: only with --parent."`
}

// params returns the filter as the client takes it.
func (f *filterFlags) params() client.ListParams {
	return client.ListParams{Type: f.Type, Status: client.Status(f.Status), Stage: f.Stage,
		Error: f.Error, Key: f.Key, Since: f.Since.Time, Until: f.Until.Time, Parent: f.Parent,
		EndedSince: f.EndedSince.Time, EndedUntil: f.EndedUntil.Time, Attempts: f.Attempts,
		Code:        f.Code,
		Fingerprint: f.Fingerprint, FlowKey: f.FlowKey, Worker: f.Worker, User: f.User,
		Tags: f.Tags, AnyTags: f.AnyTags,
		Metadata: f.Metadata, Children: withChildren(f.Children || f.Parent != "")}
}

// withChildren returns the parameter of a call that leaves out children unless they are wanted.
func withChildren(wanted bool) *bool {
	if wanted {
		return nil
	}
	return new(bool)
}

type tasksListCmd struct {
	filterFlags
	Text   string `placeholder:"TEXT" help:"Only tasks with this text in their context or outputs."`
	Order  string `enum:"submitted,ended" default:"submitted" help:"By submit, or by end."`
	Limit  int    `default:"50" help:"The most tasks to list; 0 lists all."`
	Cursor string `help:"Continue a list: the next_cursor of the previous page."`

	Reverse bool `help:"From the other end: the oldest first, and the last type."`
}

func (c *tasksListCmd) Help() string {
	return `Examples:

    asyncflow tasks list --status failed --ended-since 2h --order ended
    asyncflow tasks list --type thumbnails --status failed --stage resize --code timeout
    asyncflow tasks list --type thumbnails --status waiting --reverse --limit 5
    asyncflow tasks list --type thumbnails --attempts 3
    asyncflow tasks list --user customer-17 --metadata order=4711
    asyncflow tasks list --type thumbnails --text harbour.jpg
    asyncflow tasks list --type scans --status failed --children
    asyncflow tasks list --type thumbnails --limit 0 -o json | jq -r '.data[].id'`
}

// Run lists tasks, over as many pages as needed.
func (c *tasksListCmd) Run(ctx context.Context, g *globals) error {
	if c.Limit < 0 {
		return usageError(asyncflow.InvalidField("--limit", "is %d; it must be 0 or more", c.Limit))
	}
	tasks, cursor, searched, err := c.collect(ctx, g)
	doc := taskListing{listing: asList(tasks, cursor), Searched: searched}
	if done, err := g.asDocument(doc, err); done {
		return err
	}
	rows := make([][]string, len(tasks))
	for i, t := range tasks {
		rows[i] = []string{t.ID, string(t.Status), t.Stage, strconv.Itoa(t.Attempt),
			timeText(t.CreatedAt), timeText(t.FinishedAt), t.ErrorCode, t.Error}
	}
	err = g.printPage("ID STATUS STAGE ATTEMPT CREATED FINISHED CODE ERROR", rows, cursor)
	if err != nil {
		return err
	}
	return g.printSearched(searched)
}

// collect returns the tasks, the cursor of the next ones, and what was searched for all pages.
func (c *tasksListCmd) collect(
	ctx context.Context, g *globals,
) (all []client.Task, cursor string, searched client.Searched, err error) {
	p := c.params()
	p.Text = c.Text
	p.Reverse = c.Reverse
	if c.Order == "ended" { // an older server doesn't know the parameter
		p.Order = client.ListOrder(c.Order)
	}
	next := func(size int, from string) ([]client.Task, string, error) {
		p.Limit, p.Cursor = size, from
		page, err := g.client().List(ctx, p)
		searched = addSearched(searched, page.Searched)
		return page.Data, page.NextCursor, err
	}
	all, cursor, err = collect(c.Limit, c.Cursor, next)
	return all, cursor, searched, err
}

// collect returns at most limit items (0: all) from a cursor on, and the cursor of the next ones.
func collect[T any](
	limit int, from string, page func(size int, from string) (items []T, next string, err error),
) (all []T, cursor string, err error) {
	for {
		size := pageSize
		if limit > 0 {
			size = min(pageSize, limit-len(all))
		}
		items, next, err := page(size, from)
		if err != nil {
			return nil, "", err
		}
		all = append(all, items...)
		from = next
		if from == "" || (limit > 0 && len(all) >= limit) {
			return all, from, nil
		}
	}
}

// timeFlag is a time on the command line: RFC 3339, or a duration before now.
type timeFlag struct{ time.Time }

// UnmarshalText reads either form.
func (m *timeFlag) UnmarshalText(text []byte) error {
	if t, err := time.Parse(time.RFC3339, string(text)); err == nil {
		m.Time = t
		return nil
	}
	if d, err := asyncflow.ParseDuration(string(text)); err == nil && d >= 0 {
		m.Time = now().Add(-d)
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeInvalid,
		"must be a time such as 2026-11-21T10:00:00Z or a duration before now such as 1h, not %q",
		text)
}

type tasksCountCmd struct {
	filterFlags
	Exact  bool `help:"Count all of them, however many, in the background."`
	Detach bool `help:"With --exact: don't wait for the end."`
}

func (c *tasksCountCmd) Help() string {
	return `The count is that of asyncflow tasks list with the same filter. It is cheap, however many
tasks there are: it may end early, at 10,000 tasks at the latest, and then says "at least". More tasks of
a type or a final status are estimated at once: it says "about".

With --exact, the command starts an operation that counts all tasks that were submitted before it.
Ctrl-C ends only the watching; see asyncflow operations.

Examples:

    asyncflow tasks count --status failed --ended-since 24h
    asyncflow tasks count --type thumbnails --status succeeded --exact -o json | jq .count`
}

// Run counts tasks, at once or by an operation.
func (c *tasksCountCmd) Run(ctx context.Context, g *globals) error {
	switch {
	case c.Detach && !c.Exact:
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid, "--detach needs --exact"))
	case c.Exact:
		return c.countAll(ctx, g)
	}
	return g.printTaskCount(g.client().Count(ctx, c.params()))
}

// countAll counts all tasks, and shows their number as a count without an operation does. An
// operation that isn't done is shown itself.
func (c *tasksCountCmd) countAll(ctx context.Context, g *globals) error {
	o, err := g.client().CountAll(ctx,
		client.BulkCount{Type: c.Type, AllTypes: c.Type == "", Status: client.Status(c.Status),
			Stage: c.Stage, Error: c.Error, Since: c.Since.Time, Until: c.Until.Time, Key: c.Key,
			Parent: c.Parent, EndedSince: c.EndedSince.Time, EndedUntil: c.EndedUntil.Time,
			Attempts: c.Attempts, Code: c.Code,
			Fingerprint: c.Fingerprint, FlowKey: c.FlowKey, Worker: c.Worker, User: c.User,
			Tags:    c.Tags,
			AnyTags: c.AnyTags, Metadata: c.Metadata,
			Children: withChildren(c.Children || c.Parent != "")})
	if err != nil {
		return err
	}
	if c.Detach {
		return g.printOperation(o, nil)
	}
	o, err = g.follow(ctx, o)
	if err != nil || o.State != client.OperationDone {
		return g.printEnd(o, err)
	}
	return g.printTaskCount(client.TaskCount{Count: o.Done, Exact: true}, nil)
}

func (g *globals) printTaskCount(n client.TaskCount, err error) error {
	if done, err := g.asDocument(n, err); done {
		return err
	}
	text := plural(n.Count)
	switch {
	case n.Estimate > 0:
		text = "about " + plural(n.Estimate)
	case !n.Exact:
		text = "at least " + text
	}
	if _, err := fmt.Fprintln(g.stdout, text); err != nil {
		return err
	}
	return g.printCounted(n)
}
