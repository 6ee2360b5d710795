package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

type failuresCmd struct {
	Type   string   `placeholder:"NAME" help:"Task type. Default: all types."`
	Since  timeFlag `default:"1h" placeholder:"TIME"`
	Until  timeFlag `placeholder:"TIME" help:"Only tasks that failed before this time."`
	Newest bool     `help:"First the kind with the latest failure, not the one with the most."`
	Limit  int      `default:"50" help:"The most kinds to show, up to 100."`
}

func (c *failuresCmd) Help() string {
	return `It groups the tasks that failed and were not started again: a group has the tasks whose
errors differ only in numbers, times, ids, addresses and quoted parts. The column OVER TIME divides
the time into 24 equal parts. NEW marks errors that came with the present version of the task type:
under the version before, no task failed so within the time shown.

The fingerprint of a group selects its tasks in the commands that list, count, redrive, rerun,
cancel and erase tasks.

Examples:

    asyncflow failures --since 15m
    asyncflow failures --type thumbnails --since 24h --newest
    asyncflow tasks list --fingerprint 5d41402abc4b2a76 --status failed
    asyncflow tasks redrive --all-types --fingerprint 5d41402abc4b2a76`
}

// Run shows the failures of a time, by the kinds of their errors.
func (c *failuresCmd) Run(ctx context.Context, g *globals) error {
	p := client.FailureParams{Type: c.Type, Since: c.Since.Time, Until: c.Until.Time,
		Limit: c.Limit}
	if c.Newest {
		p.Order = api.GetFailuresParamsOrderNewest
	}
	report, err := g.client().Failures(ctx, p)
	if done, err := g.asDocument(report, err); done {
		return err
	}
	rows := make([][]string, len(report.Groups))
	for i, group := range report.Groups {
		rows[i] = failureRow(group)
	}
	err = g.printTable("COUNT OVER-TIME FIRST LAST NEW CODE WHERE FINGERPRINT ERROR", rows)
	if err != nil {
		return err
	}
	return g.printFailuresRead(report, c.Type)
}

// failureRow returns the row of a group.
func failureRow(group client.FailureGroup) []string {
	where := ""
	if len(group.Places) > 0 {
		where = group.Places[0].Type + "/" + group.Places[0].Stage
	}
	if more := group.PlaceCount - 1; more > 0 {
		where += fmt.Sprintf(" +%d", more)
	}
	isNew := ""
	if group.NewSinceVersion {
		isNew = "new"
	}
	return []string{strconv.Itoa(group.Count), bars(group.Steps), timeText(group.FirstAt),
		timeText(group.LastAt), isNew, group.ErrorCode, where, group.Fingerprint, group.Pattern}
}

// bars draws counts as a line of bars. There is a bar for a count that isn't 0, however small.
func bars(counts []int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, n := range counts {
		if n == 0 {
			out.WriteByte('.')
			continue
		}
		out.WriteRune(levels[(n*len(levels)-1)/slices.Max(counts)])
	}
	return out.String()
}

// printFailuresRead says what was read and what wasn't, and how to go on, on the standard error.
func (g *globals) printFailuresRead(report client.FailureReport, taskType string) error {
	text := plural(int64(report.Failures)) + " failed"
	if more := report.Count - len(report.Groups); more > 0 {
		text += fmt.Sprintf("; %d more kinds of errors: see --limit", more)
	}
	if !report.Searched.Complete {
		text += "; that is not all: older failures were not read of " +
			strings.Join(report.Searched.TypesLeft, ", ")
	}
	if len(report.Groups) > 0 {
		which := "--all-types"
		if taskType != "" {
			which = "--type " + taskType
		}
		text += "\nto start the first ones again: asyncflow tasks redrive " + which +
			" --fingerprint " + report.Groups[0].Fingerprint +
			" --ended-since " + report.Since.UTC().Format(time.RFC3339Nano) +
			" --ended-until " + report.Until.UTC().Format(time.RFC3339Nano)
	}
	_, err := fmt.Fprintln(g.stderr, text)
	return err
}
