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
	if changes := changesText(a.Changes); changes != "" {
		text += ": " + changes
	}
	if a.Error != "" {
		text += ": " + a.Error
	}
	return text
}

// changesText returns what a change made of a task's options, such as "retry {} becomes none".
func changesText(all []client.OptionChange) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = fmt.Sprintf("%s %s becomes %s", c.Field, cmp.Or(string(c.Before), "none"),
			cmp.Or(string(c.After), "none"))
	}
	return strings.Join(texts, ", ")
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

// progressText returns the progress that a worker reported, "" without one.
func progressText(t client.Task) string {
	if t.Progress.Percent == 0 && t.Progress.Note == "" {
		return ""
	}
	return strings.TrimSpace(strconv.Itoa(t.Progress.Percent) + "% " + t.Progress.Note)
}

// A wait says what it is for after waitSilent, and again when that changed, at most every waitLook.
const (
	waitSilent = 2 * time.Second
	waitLook   = 5 * time.Second
)

// waitAndReport returns a task once it is final, or after d. Meanwhile it says on standard error
// what the task waits for.
func (g *globals) waitAndReport(
	ctx context.Context, id string, d time.Duration,
) (client.Task, error) {
	end, said := now().Add(d), ""
	for next := waitSilent; ; next = waitLook {
		left := end.Sub(now())
		task, err := g.client().Wait(ctx, id, max(min(next, left), time.Millisecond))
		if err != nil || task.Status.Final() || left <= next || ctx.Err() != nil {
			return task, err
		}
		if text := waitText(task); text != said {
			said = text
			fmt.Fprintf(g.stderr, "asyncflow: task %s %s\n", task.ID, printable(text))
		}
	}
}

// waitText says for what a task waits, until when, and what would help.
func waitText(t client.Task) string {
	if t.Status == client.StatusRunning {
		text := fmt.Sprintf("is running at stage %s, until %s at most", t.Stage,
			clockText(t.Deadline))
		if progress := progressText(t); progress != "" {
			text += ": " + progress
		}
		return text
	}
	why, known := waitTexts[string(t.WaitsFor)]
	if !known {
		why = "is " + string(t.Status) + ", and waits for: " + string(t.WaitsFor)
	}
	parent := ""
	if t.ChildOf != nil {
		parent = t.ChildOf.Parent
	}
	signal := signalText(t.Signal) // lists leave it out
	if signal != "" {
		signal = ": " + signal
	}
	text := strings.NewReplacer("{parent}", parent, "{type}", t.Type, "{stage}", t.Stage, "{id}",
		t.ID, "{flow_key}", t.FlowKey, "{due}", clockText(t.OrderTime),
		"{signal}", signal,
		"{dependencies}", dependenciesText(t.Dependencies),
		"{children}", childrenText(t.Children)).Replace(why)
	if t.WaitsBecause != "" {
		text += ". " + t.WaitsBecause
	}
	if t.Error != "" {
		text += "; its last error: " + t.Error
	}
	return text
}

// waitTexts explain each waits_for of a task.
var waitTexts = map[string]string{
	"delay":  "is delayed until {due}; asyncflow tasks change {id} --delay 0s starts it now",
	"retry":  "waits for its next attempt at {due}",
	"snooze": "was put off by its worker until {due}",
	"endpoint": "waits for an endpoint of stage {stage}: create one with asyncflow endpoints " +
		"create --type {type} --stage {stage} URL, or run asyncflow listen",
	"endpoint_limit": "waits for an endpoint of stage {stage} below its max_in_flight and rate; " +
		"see asyncflow endpoints list --type {type}",
	"endpoint_unhealthy": "waits for a healthy endpoint of stage {stage}; asyncflow endpoints " +
		"list --type {type} shows which ones are open or disabled, and why",
	"flow_key": "waits for its turn within its flow key {flow_key}; asyncflow tasks list --type " +
		"{type} shows the tasks before it",
	"type_limit": "waits because the max_in_flight or rate of type {type} is used up; see " +
		"asyncflow types get {type}",
	"quota_concurrency": "waits because the tenant's quota concurrency is used up; see GET " +
		"/v1/quota",
	"quota_deliveries_per_second": "waits because the tenant's quota deliveries_per_second is " +
		"used up; see GET /v1/quota",
	"paused": "waits because type {type} is paused; asyncflow types resume {type} lets it " +
		"go on",
	"parent_paused": "waits because its parent {parent}, or a task above that, is paused; " +
		"asyncflow tasks resume lets it go on",
	"dependencies": "waits for the tasks that it depends on: {dependencies}",
	"children":     "waits for its children: {children}; see asyncflow tasks tree {id}",
	"signal":       "waits for its signal{signal}; asyncflow signals send sends one",
	"claimer": "waits for a worker that claims it; asyncflow claim --type {type} --stage {stage} " +
		"does so by hand",
	"capacity": "is due, and waits for a dispatcher with capacity; see asyncflow nodes",
}

// longText returns a duration to the second, with days from two of them on: 47h0m0s, 30d, 2d1h0m5s.
func longText(d time.Duration) string {
	const day = 24 * time.Hour
	d = d.Round(time.Second)
	if d < 2*day {
		return d.String()
	}
	days := strconv.FormatInt(int64(d/day), 10) + "d"
	if rest := d % day; rest > 0 {
		days += rest.String()
	}
	return days
}
