package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
)

type tasksExportCmd struct {
	filterFlags
	Text   string `placeholder:"TEXT" help:"Only tasks with this text in their context or outputs."`
	Format string `enum:"jsonl,csv" default:"jsonl" help:"jsonl, a task a line, or csv."`
}

func (c *tasksExportCmd) Help() string {
	return `The tasks are written as they are read, newest first, so their number has no limit. A
line of JSON has the task as asyncflow tasks list shows it, without its context. In a CSV, a text
that a spreadsheet would take for a formula has an apostrophe before it. The number of tasks goes to
stderr.

Examples:

    asyncflow tasks export --type thumbnails --status failed > failed.jsonl
    asyncflow tasks export --ended-since 24h --format csv > today.csv`
}

// Run writes all tasks of the filter, a page at a time.
func (c *tasksExportCmd) Run(ctx context.Context, g *globals) error {
	p := c.params()
	p.Text = c.Text
	p.Limit = pageSize
	write := g.printJSONLine
	if c.Format == "csv" {
		w := csv.NewWriter(g.stdout)
		if err := w.Write(exportColumns); err != nil {
			return err
		}
		write = func(task any) error {
			if err := w.Write(exportCells(task.(client.Task))); err != nil {
				return err
			}
			w.Flush()
			return w.Error()
		}
		defer w.Flush()
	}
	n := 0
	for {
		page, err := g.client().List(ctx, p)
		if err != nil {
			return err
		}
		for _, t := range page.Data {
			if err := write(t); err != nil {
				return err
			}
		}
		n += len(page.Data)
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			_, err := fmt.Fprintln(g.stderr, plural(int64(n))+" written")
			return err
		}
	}
}

// exportColumns are the columns of a CSV, here and in the console.
var exportColumns = strings.Fields(`id type status stage attempt max_attempts created_at finished_at
	turnaround_ms key flow_key user tags error_code error`)

// exportCells returns a task as a row of a CSV.
func exportCells(t client.Task) []string {
	cells := []string{t.ID, t.Type, string(t.Status), t.Stage, strconv.Itoa(t.Attempt),
		strconv.Itoa(t.MaxAttempts), cellTime(t.CreatedAt), cellTime(t.FinishedAt),
		latencyCell(t.TurnaroundMs), t.Key, t.FlowKey, t.User, strings.Join(t.Tags, ","),
		string(t.ErrorCode), t.Error}
	for i, text := range cells {
		cells[i] = safeCell(text)
	}
	return cells
}

// cellTime returns a time with all its digits, "" for none.
func cellTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
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
