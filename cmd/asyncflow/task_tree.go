package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

type tasksTreeCmd struct {
	ID    string        `arg:"" name:"id" help:"The id of a task, or of a child without children."`
	Watch bool          `help:"Show each change until the task is final."`
	Every time.Duration `default:"1s" placeholder:"TIME" help:"How often --watch shows it at most."`
	Limit int           `default:"20" help:"The most children to list; 0 lists none."`
}

func (c *tasksTreeCmd) Help() string {
	return `Shows a task, how far its children are, and those that aren't done yet, or failed.

Example:

    asyncflow tasks tree scans.1.17 --watch`
}

// Run shows a tree, once or until its task is final.
func (c *tasksTreeCmd) Run(ctx context.Context, g *globals) error {
	t, err := g.client().Get(ctx, c.ID)
	if err == nil && t.ChildOf != nil && t.Children == nil { // the tree is its parent's
		t, err = g.client().Get(ctx, t.ChildOf.Parent)
	}
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.show(ctx, g, t)
	}
	return c.watch(ctx, g, t.ID)
}

// watch shows a tree whenever its task, or how far its children are, changed. Of changes that come
// too soon after another, it shows the latest.
func (c *tasksTreeCmd) watch(ctx context.Context, g *globals, id string) error {
	latest := make(chan client.Task, 1)
	var failed error // once latest is closed
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(latest)
		for e, err := range g.client().Watch(ctx, id) {
			if err != nil {
				failed = err
				return
			}
			if e.Task == nil {
				continue
			}
			select {
			case <-latest:
			default:
			}
			latest <- *e.Task
		}
	}()
	for t := range latest {
		if err := c.show(ctx, g, t); err != nil || t.Status.Final() {
			return err
		}
		if !sleep.For(ctx, c.Every) {
			return ctx.Err()
		}
	}
	return failed
}

// show prints a task and its children.
func (c *tasksTreeCmd) show(ctx context.Context, g *globals, t client.Task) error {
	if g.output == "json" {
		return g.printJSON(t)
	}
	lines := []string{t.ID + "  " + taskText(t)}
	if t.Children != nil {
		lines = append(lines, "  "+progressBar(*t.Children)+"  "+childrenText(t.Children))
	}
	if tree := treeText(t.Tree); tree != "" {
		lines = append(lines, "  tree "+tree)
	}
	if paused := pausedText(t); paused != "" {
		lines = append(lines, "  paused "+paused)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(g.stdout, printable(line)); err != nil {
			return err
		}
	}
	if t.Children == nil {
		return nil
	}
	left := c.Limit
	for _, of := range []struct {
		status client.Status
		n      int // in the latest fan-out; its children are listed first
	}{{client.StatusRunning, t.Children.Running}, {client.StatusFailed, t.Children.Failed},
		{client.StatusPending, t.Children.Pending}, {client.StatusWaiting, t.Children.Waiting}} {
		shown, err := c.list(ctx, g, t, of.status, min(left, of.n))
		if err != nil {
			return err
		}
		left -= shown
	}
	return nil
}

// list prints up to limit children with a status, and returns how many.
func (c *tasksTreeCmd) list(
	ctx context.Context, g *globals, t client.Task, status client.Status, limit int,
) (shown int, err error) {
	types := t.ChildTypes
	if len(types) == 0 {
		types = []string{t.Type}
	}
	for _, name := range types {
		if shown >= limit {
			break
		}
		page, err := g.client().List(ctx, client.ListParams{Type: name, Parent: t.ID,
			Latest: true, Status: status, Limit: limit - shown})
		if err != nil {
			return shown, err
		}
		for _, child := range page.Data {
			_, err := fmt.Fprintf(g.stdout, "  ├─ %s  %s\n", child.ID, printable(taskText(child)))
			if err != nil {
				return shown, err
			}
		}
		shown += len(page.Data)
	}
	return shown, nil
}

// childrenText returns how many children are in which status, such as "797 of 1000 succeeded, 80
// running"; "" without children.
func childrenText(c *client.Children) string {
	if c == nil {
		return ""
	}
	text := fmt.Sprintf("%d of %d succeeded", c.Succeeded, c.Total)
	for _, part := range []struct {
		n    int
		name string
	}{{c.Failed, "failed"}, {c.Cancelled, "cancelled"}, {c.Running, "running"},
		{c.Pending, "pending"}, {c.Waiting, "waiting"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.name)
		}
	}
	return text
}

// treeText returns how many tasks there are below a task, such as "2 levels, 180 of 240 succeeded,
// 2 failed"; "" if there is one level at most.
func treeText(c *client.TreeCounts) string {
	if c == nil {
		return ""
	}
	total := strconv.Itoa(c.Total)
	if c.AtLeast {
		total = "at least " + total
	}
	text := fmt.Sprintf("%d levels, %d of %s succeeded", c.Levels, c.Succeeded, total)
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d failed", c.Failed)
	}
	if c.Cancelled > 0 {
		text += fmt.Sprintf(", %d cancelled", c.Cancelled)
	}
	return text
}

// pausedText returns since when the children of a task are paused, and why; "": they aren't.
func pausedText(t client.Task) string {
	if t.Paused == nil {
		return ""
	}
	return strings.TrimSuffix("since "+clockText(t.Paused.Since)+": "+t.Paused.Reason, ": ")
}

// progressBar draws which part of the children ended.
func progressBar(c client.Children) string {
	const width = 20
	full := 0
	if c.Total > 0 {
		full = width * (c.Succeeded + c.Failed + c.Cancelled) / c.Total
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", width-full) + "]"
}
