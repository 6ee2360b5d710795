package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// manyFlags select the tasks that a command changes together, and how it does so.
type manyFlags struct {
	Type  string   `placeholder:"NAME"`
	Stage string   `placeholder:"NAME" help:"With --type: only tasks that are, or ended, in this stage."`
	Error string   `placeholder:"TEXT"`
	Since timeFlag `placeholder:"TIME"`
	Until timeFlag `placeholder:"TIME" help:"With --type: only those submitted before this time."`

	AllTypes bool   `help:"Instead of --type: the tasks of all types."`
	Key      string `placeholder:"KEY" help:"With --type: only the task of this idempotency key."`
	Parent   string `placeholder:"ID" help:"With --type: only children of this task."`
	happenedFlags

	Children *bool `negatable:"" help:"With --type: also children of fan-outs. Default: they are."`

	DryRun bool     `help:"With --type: only count them."`
	Pace   *float32 `placeholder:"N" help:"With --type: the most tasks per second. Default: no limit."`
	Yes    bool     `short:"y" help:"With --type: don't ask."`
	Detach bool     `help:"With --type: don't wait for the end."`
}

const manyHelp = `With --type or --all-types instead of an id, the command starts an operation: it handles all
tasks that the filter matches, in the background. On a terminal, it asks for confirmation. Ctrl-C
ends only the watching; see asyncflow operations.`

// check refuses flags that don't go together.
func (f *manyFlags) check(id, status string, ended endedFlags) error {
	filter := ended != (endedFlags{}) || f.Type != "" || f.AllTypes || status != "" ||
		f.Stage != "" || f.Error != "" || !f.Since.IsZero() || !f.Until.IsZero() ||
		f.Key != "" || f.Parent != "" || f.happenedFlags != (happenedFlags{}) || f.Children != nil
	switch {
	case id != "" && (filter || f.DryRun || f.Pace != nil || f.Detach):
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"an id excludes --type and what goes with it: it is one task, or all that a filter "+
				"finds")
	case id == "" && f.Type == "" && !f.AllTypes:
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"name a task by its id, or many by --type or --all-types")
	case f.Type != "" && f.AllTypes:
		return asyncflow.Errorf(asyncflow.CodeInvalid, "--type and --all-types exclude each other")
	case f.Pace != nil && *f.Pace <= 0:
		return asyncflow.InvalidField("--pace", "is %v; it must be above 0", *f.Pace)
	}
	return nil
}

// selecting returns the body of a call about many tasks: with the filter and the pace, which all of
// these calls name alike. A call that lacks one of them is refused: it would change more tasks.
// ended is for tasks that may be final.
func selecting[B any](f *manyFlags, status string, ended endedFlags) (b B, err error) {
	doc, err := json.Marshal(struct {
		client.BulkCount
		Pace *float32 `json:"pace,omitempty"`
	}{client.BulkCount{Type: f.Type, AllTypes: f.AllTypes, Key: f.Key, Parent: f.Parent,
		Attempts: f.Attempts, Code: f.Code, Fingerprint: f.Fingerprint, FlowKey: f.FlowKey,
		Worker: f.Worker, User: f.User, Tags: f.Tags, AnyTags: f.AnyTags, Metadata: f.Metadata,
		EndedSince: ended.EndedSince.Time, EndedUntil: ended.EndedUntil.Time,
		Status: client.Status(status), Stage: f.Stage, Error: f.Error, Since: f.Since.Time,
		Until: f.Until.Time, Children: withChildren(f.Children == nil || *f.Children)}, f.Pace})
	if err != nil { // a time that JSON can't write
		return b, usageError(err)
	}
	into := json.NewDecoder(bytes.NewReader(doc))
	into.DisallowUnknownFields()
	return b, into.Decode(&b)
}

// many is a change that a command makes to many tasks.
type many[B any] struct {
	verb  string
	count func(context.Context, B) (int64, error)
	begin func(context.Context, B) (client.Operation, error)
}

// run counts the tasks that b selects, or changes them. On a terminal it first asks for
// confirmation.
func (m many[B]) run(ctx context.Context, g *globals, f *manyFlags, b B) error {
	if f.DryRun {
		return g.printCount(m.count(ctx, b))
	}
	if !f.Yes && isTerminal(os.Stdin) && isTerminal(g.stderr) {
		n, err := m.count(ctx, b)
		if err != nil {
			return err
		}
		if n > 0 && !confirm(ctx, os.Stdin, g.stderr, fmt.Sprintf("%s %s?", m.verb, plural(n))) {
			return &codedError{exitFailed, fmt.Errorf("nothing was done")}
		}
	}
	o, err := m.begin(ctx, b)
	if err != nil || f.Detach {
		return g.printOperation(o, err)
	}
	return g.watch(ctx, o)
}

func (g *globals) printCount(n int64, err error) error {
	if done, err := g.asDocument(map[string]int64{"count": n}, err); done {
		return err
	}
	_, err = fmt.Fprintln(g.stdout, plural(n))
	return err
}

func plural(n int64) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}

// confirm asks a question, and accepts nothing but a yes. It ends with ctx.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case text := <-answer:
		return text == "y" || text == "yes"
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false
	}
}
