package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// operationsCmd groups the commands for operations.
type operationsCmd struct {
	List  operationsListCmd  `cmd:"" help:"List operations that run or ended within 30 days."`
	Get   operationsGetCmd   `cmd:"" help:"Show an operation."`
	Watch operationsWatchCmd `cmd:"" help:"Watch an operation until it ends."`
	Stop  operationsStopCmd  `cmd:"" help:"Stop an operation. What it has done stays done."`
}

type operationsListCmd struct{}

func (c *operationsListCmd) Help() string {
	return `These start operations: asyncflow tasks cancel, change, delay, redrive, rerun and erase with
--type or --all-types, and asyncflow tasks count --exact.

Example:

    asyncflow operations list -o json | jq -r '.data[] | select(.state == "running") | .id'`
}

// Run lists the operations.
func (c *operationsListCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().Operations(ctx)
	if done, err := g.asDocument(asList(list, ""), err); done {
		return err
	}
	rows := make([][]string, len(list))
	for i, o := range list {
		rows[i] = []string{o.ID, string(o.Kind), typeText(o), string(o.State), number(o.Total),
			number(o.Done), number(o.Skipped), timeText(o.CreatedAt), timeText(o.FinishedAt)}
	}
	return g.printTable("ID KIND TYPE STATE TOTAL DONE SKIPPED CREATED FINISHED", rows)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// operationArg names the operation of a command.
type operationArg struct {
	ID string `arg:"" name:"id" help:"The operation's id."`
}

type operationsGetCmd struct{ operationArg }

// Run shows an operation.
func (c *operationsGetCmd) Run(ctx context.Context, g *globals) error {
	return g.printOperation(g.client().Operation(ctx, c.ID))
}

type operationsStopCmd struct{ operationArg }

// Run stops an operation.
func (c *operationsStopCmd) Run(ctx context.Context, g *globals) error {
	return g.printOperation(g.client().StopOperation(ctx, c.ID))
}

type operationsWatchCmd struct{ operationArg }

func (c *operationsWatchCmd) Help() string {
	return `The exit code is 0 if the operation is done, and 1 if it was stopped or can't continue.`
}

// Run watches an operation.
func (c *operationsWatchCmd) Run(ctx context.Context, g *globals) error {
	o, err := g.client().Operation(ctx, c.ID)
	if err != nil {
		return err
	}
	return g.watch(ctx, o)
}

func (g *globals) printOperation(o client.Operation, err error) error {
	if done, err := g.asDocument(o, err); done {
		return err
	}
	pace := ""
	if o.Pace > 0 {
		pace = jsonText(o.Pace) + " tasks a second"
	}
	return g.printFields("id", o.ID, "kind", string(o.Kind), "type", typeText(o),
		"filter", filterText(o.Filter), "state", string(o.State), "total", number(o.Total),
		"done", number(o.Done), "skipped", number(o.Skipped), "pace", pace,
		"context patch", string(o.ContextPatch),
		"created", timeText(o.CreatedAt), "finished", timeText(o.FinishedAt), "error", o.Error)
}

// typeText returns the type of an operation, or that it is on all of them.
func typeText(o client.Operation) string {
	switch {
	case !o.Filter.AllTypes:
		return o.Type
	case o.State == client.OperationRunning:
		return "all, at " + o.Type
	}
	return "all"
}

// filterText returns the filter of an operation in one line; "" for all tasks.
func filterText(f client.OperationFilter) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	add("status", string(f.Status))
	add("stage", f.Stage)
	if f.Error != "" {
		add("error", strconv.Quote(f.Error))
	}
	add("code", f.Code)
	add("since", exactTime(f.Since))
	add("until", exactTime(f.Until))
	add("ended since", exactTime(f.EndedSince))
	add("ended until", exactTime(f.EndedUntil))
	if f.Attempts > 0 {
		add("attempts", strconv.Itoa(f.Attempts))
	}
	if f.Key != "" {
		add("key", strconv.Quote(f.Key))
	}
	if f.FlowKey != "" {
		add("flow key", strconv.Quote(f.FlowKey))
	}
	add("fingerprint", f.Fingerprint)
	add("worker", f.Worker)
	add("parent", f.Parent)
	if f.User != "" {
		add("user", strconv.Quote(f.User))
	}
	add("tags", f.Tags)
	add("any tags", f.AnyTags)
	if f.Metadata != "" {
		add("metadata", strconv.Quote(f.Metadata))
	}
	if n := len(f.Ids); n > 0 {
		add(plural(int64(n)), "by id")
	}
	if f.Children != nil {
		add("children", strconv.FormatBool(*f.Children))
	}
	return strings.Join(parts, ", ")
}

const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// watch shows the progress of an operation until it ends, and then the operation. The exit code
// tells how it ended.
func (g *globals) watch(ctx context.Context, o client.Operation) error {
	return g.printEnd(g.follow(ctx, o))
}

// printEnd shows an operation that is over. Its error carries the exit code unless it is done.
func (g *globals) printEnd(o client.Operation, err error) error {
	if err := g.printOperation(o, err); err != nil || o.State == client.OperationDone {
		return err
	}
	return silent(exitFailed)
}

// follow shows the progress of an operation until it ends, and returns it. If that stops earlier,
// the operation goes on.
func (g *globals) follow(ctx context.Context, o client.Operation) (client.Operation, error) {
	bar := newProgress(g.stderr, o)
	defer bar.clear()
	for pause := firstLook; o.State == client.OperationRunning; pause = min(2*pause, lastLook) {
		bar.show(o)
		if !sleep.For(ctx, pause) {
			return o, stillRunning(o, "interrupted")
		}
		next, err := g.client().Operation(ctx, o.ID)
		switch {
		case err != nil && ctx.Err() != nil:
			return o, stillRunning(o, "interrupted")
		case err != nil:
			return o, fmt.Errorf("operation %s goes on, but: %w", o.ID, err)
		}
		o = next
	}
	return o, nil
}

func stillRunning(o client.Operation, why string) error {
	return &codedError{exitFailed,
		fmt.Errorf("%s: operation %[2]s goes on; asyncflow operations watch %[2]s shows it, "+
			"asyncflow operations stop %[2]s stops it", why, o.ID)}
}

// progress returns a progress bar on a terminal, and nil elsewhere.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(out io.Writer, o client.Operation) progress {
	if !isTerminal(out) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(max(o.Total, 1), progressbar.OptionSetWriter(out),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(20))}
}

func (p progress) show(o client.Operation) {
	if p.bar == nil {
		return
	}
	p.bar.Describe(fmt.Sprintf("%s %s: done %d, skipped %d", o.Kind, o.Type, o.Done, o.Skipped))
	// a failure to draw is no reason to stop
	_ = p.bar.Set64(min(o.Done+o.Skipped, max(o.Total, 1)))
}

func (p progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
