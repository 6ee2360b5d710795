package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
)

type tasksWatchCmd struct {
	ID string `arg:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
}

// Help is shown by asyncflow tasks watch --help.
func (c *tasksWatchCmd) Help() string {
	return `Prints a line for each attempt so far, and then one for each event until the task is
final. The exit code is 0 if the task succeeded, and 6 if it failed or was cancelled. Times are
in UTC. With -o json, each line is a document with the field attempt or task.

Example:

    asyncflow tasks watch thumbnails.1.42`
}

// Run shows what happens to a task.
func (c *tasksWatchCmd) Run(ctx context.Context, g *globals) error {
	var last client.Status
	for e, err := range g.client().Watch(ctx, c.ID) {
		if err != nil {
			return err
		}
		if err = g.printEvent(e); err != nil {
			return err
		}
		if e.Task != nil {
			last = e.Task.Status
		}
	}
	if last != client.StatusSucceeded {
		return silent(exitTaskFailed)
	}
	return nil
}

// printEvent shows an event in one line.
func (g *globals) printEvent(e client.Event) error {
	if g.output == "json" {
		return g.printJSONLine(e)
	}
	at, text := now(), ""
	if e.Attempt != nil {
		at, text = e.Attempt.At, attemptText(*e.Attempt)
	} else {
		text = taskText(*e.Task)
		if !e.Task.FinishedAt.IsZero() {
			at = e.Task.FinishedAt
		}
	}
	_, err := fmt.Fprintf(g.stdout, "%s  %s\n", clockText(at), printable(text))
	return err
}

// clockText returns the time of day, with the date unless that is today's.
func clockText(t time.Time) string {
	layout := "15:04:05.000"
	if t.UTC().Format(time.DateOnly) != now().UTC().Format(time.DateOnly) {
		layout = "2006-01-02 " + layout
	}
	return t.UTC().Format(layout)
}

// attemptText returns how an attempt ended, such as "inspect #1 done in 35ms".
func attemptText(a client.Attempt) string {
	text := fmt.Sprintf("%s #%d %s", a.Stage, a.Attempt, a.Outcome)
	if a.DurationMs != 0 {
		text += " in " + tookText(a.DurationMs)
	}
	if a.Error != "" {
		text += ": " + a.Error
	}
	return text
}

// tookText returns milliseconds as 3.2ms, 35ms or 1.25s.
func tookText(ms float32) string {
	d := time.Duration(float64(ms) * float64(time.Millisecond))
	unit := 100 * time.Microsecond
	if d >= 10*time.Millisecond {
		unit = time.Millisecond
	}
	return d.Round(unit).String()
}

// taskText returns the state of a task, such as "running resize #2 until 12:00:31.000, 40% page
// 12".
func taskText(t client.Task) string {
	if t.Status.Final() {
		return strings.TrimSuffix(string(t.Status)+": "+t.Error, ": ")
	}
	text := fmt.Sprintf("%s %s #%d", t.Status, t.Stage, t.Attempt)
	if t.WaitsFor != "" {
		text += " (" + string(t.WaitsFor) + ")"
	}
	switch until := cmp.Or(t.Deadline, t.OrderTime); {
	case until.IsZero():
	case t.Status == client.StatusRunning:
		text += " until " + clockText(until)
	case until.After(now()):
		text += ", due " + clockText(until)
	}
	if t.WaitsFor == "children" && t.Children != nil {
		text += ", " + childrenText(t.Children)
	}
	if paused := pausedText(t); paused != "" {
		text += ", paused " + paused
	}
	if progress := progressText(t); progress != "" {
		text += ", " + progress
	}
	return text
}

// progressText returns the progress that a worker has reported, "" without one.
func progressText(t client.Task) string {
	if t.Progress.Percent == 0 && t.Progress.Note == "" {
		return ""
	}
	return strings.TrimSpace(strconv.Itoa(t.Progress.Percent) + "% " + t.Progress.Note)
}
