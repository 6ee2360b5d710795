package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksExportCmd struct {
	filterFlags
	exportFlags
	Text     string `placeholder:"TEXT" help:"Only tasks with this text in their context or outputs."`
	Format   string `enum:"jsonl,csv" default:"jsonl" help:"jsonl, a task a line, or csv."`
	Contents bool   `help:"With context, result and attempts: two more calls for each task."`
}

func (c *tasksExportCmd) Help() string {
	return `The tasks are written as they are read, newest first, so their number has no limit. A
line of JSON has the task as asyncflow tasks list shows it, without its context. In a CSV, a text
that a spreadsheet would take for a formula has an apostrophe before it. The number of tasks goes to
stderr.

With --state, each run exports the tasks that ended since the last one, oldest end first. FILE says
where the last one ended. The command leaves it as it is and writes FILE.next: rename that once the
output is stored. A run that was killed is done again from the same place.

Examples:

    asyncflow tasks export --type thumbnails --status failed > failed.jsonl
    asyncflow tasks export --ended-since 24h --format csv > today.csv
    asyncflow tasks export --children --state export.state > batch.jsonl`
}

// Run writes all tasks of the filter, a page at a time, or the ones that ended since the last run.
func (c *tasksExportCmd) Run(ctx context.Context, g *globals) error {
	if c.Contents && c.Format == "csv" {
		return usageError(asyncflow.InvalidField("--contents", "needs --format jsonl"))
	}
	if c.State != "" {
		if err := c.checkState(); err != nil {
			return err
		}
		now, err := databaseTime(ctx, g.client())
		if err != nil {
			return err
		}
		return c.runEnded(ctx, g, now)
	}
	p := c.params()
	p.Text = c.Text
	p.Limit = pageSize
	write, err := c.writer(g)
	if err != nil {
		return err
	}
	n := 0
	for {
		page, err := g.client().List(ctx, p)
		if err != nil {
			return err
		}
		if err := write(ctx, page.Data); err != nil {
			return err
		}
		n += len(page.Data)
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			_, err := fmt.Fprintln(g.stderr, plural(int64(n))+" written")
			return err
		}
	}
}

// writer returns what writes tasks in the format of the command. A CSV begins with its columns.
func (c *tasksExportCmd) writer(
	g *globals,
) (write func(context.Context, []client.Task) error, err error) {
	switch {
	case c.Format == "csv":
		w := csv.NewWriter(g.stdout)
		err = w.Write(exportColumns)
		w.Flush()
		return func(_ context.Context, tasks []client.Task) error {
			rows := make([][]string, len(tasks))
			for i, t := range tasks {
				rows[i] = exportCells(t)
			}
			return w.WriteAll(rows)
		}, errors.Join(err, w.Error())
	case c.Contents:
		return func(ctx context.Context, tasks []client.Task) error {
			for some := range slices.Chunk(tasks, exportCalls) {
				full, err := withContents(ctx, g.client(), some)
				if err != nil {
					return err
				}
				if err := printLines(g, full); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	return func(_ context.Context, tasks []client.Task) error { return printLines(g, tasks) }, nil
}

// printLines writes documents, one a line.
func printLines[T any](g *globals, docs []T) error {
	for _, doc := range docs {
		if err := g.printJSONLine(doc); err != nil {
			return err
		}
	}
	return nil
}

// exportColumns are the columns of a CSV, here and in the console.
var exportColumns = strings.Fields(`id type status stage attempt max_attempts created_at finished_at
	turnaround_ms key flow_key user tags error_code error`)

// exportCells returns a task as a row of a CSV.
func exportCells(t client.Task) []string {
	cells := []string{t.ID, t.Type, string(t.Status), t.Stage, strconv.Itoa(t.Attempt),
		strconv.Itoa(t.MaxAttempts), exactTime(t.CreatedAt), exactTime(t.FinishedAt),
		latencyCell(t.TurnaroundMs), t.Key, t.FlowKey, t.User, strings.Join(t.Tags, ","),
		string(t.ErrorCode), t.Error}
	for i, text := range cells {
		cells[i] = safeCell(text)
	}
	return cells
}

// formula matches where a spreadsheet would begin to read a formula: at the beginning of a cell,
// also of one that it begins at a semicolon or a tab, as it does with some languages.
var formula = regexp.MustCompile(`(^|[;\t\r\n])([ "]*[=+\-@\t\r])`)

// safeCell returns a text that no spreadsheet runs as a formula. Whoever submits a task chooses its
// key, and a worker its error.
func safeCell(text string) string { return formula.ReplaceAllString(text, "$1'$2") }

// latencyCell returns a time in ms, "" for none.
func latencyCell(ms float32) string {
	if ms == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(ms), 'f', -1, 32)
}
