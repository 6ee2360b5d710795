package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksSubmitCmd struct {
	Type        string        `arg:"" optional:""`
	Context     string        `arg:"" optional:""`
	File        string        `short:"f" placeholder:"FILE"`
	Priority    int           `placeholder:"SECONDS" help:"Seconds of head start, 0 to a year."`
	Delay       time.Duration `placeholder:"TIME" xor:"when"`
	RunAt       time.Time     `placeholder:"TIME" xor:"when"`
	MaxAttempts int           `placeholder:"N"`
	Key         *string       `placeholder:"KEY"`

	KeyWindow  *asyncflow.KeyWindow `placeholder:"TIME" help:"Or until_final. Default: a day."`
	OnConflict string               `placeholder:"return|reject|cancel_running|replace"`
	MaxWait    time.Duration        `placeholder:"TIME" help:"The most that replace postpones a task."`

	StartBy asyncflow.Deadline `placeholder:"TIME" help:"Expire if it has not begun by then, or in 30m."`
	EndBy   asyncflow.Deadline `placeholder:"TIME" help:"Expire if it has not ended by then, or in 2h."`

	FlowKey       *string  `placeholder:"KEY"`
	DependsOn     []string `sep:"none" placeholder:"TASK" help:"A task to wait for; repeatable."`
	ContextFrom   string   `placeholder:"dependencies"`
	OnFinal       string   `placeholder:"URL" help:"Where the end of the task is told."`
	On            []string `placeholder:"STATUS" help:"Which ends are told; all by default."`
	OnFinalSecret string   `env:"ASYNCFLOW_ON_FINAL_SECRET" placeholder:"SECRET"`
	claimFlags
	User string   `placeholder:"USER" help:"For whom it is done, to find it by."`
	Tags []string `placeholder:"TAG" help:"Words to find it by."`

	Metadata map[string]string `mapsep:"none" placeholder:"NAME=VALUE"`
	Trace    string            `placeholder:"TRACEPARENT" help:"The W3C traceparent of the submit."`

	Wait    bool
	Timeout time.Duration `default:"5m" help:"How long to wait with --wait."`
}

func (c *tasksSubmitCmd) Help() string {
	return `With --key, if a task with that key exists, the command shows it and submits nothing. It
says so on standard error and, with --output json, in the field existing. The key stands for the
task for a day, or as --key-window says. With --on-conflict reject that is an error; with
cancel_running, the earlier task is cancelled, unless it is final, and a new one is submitted. With
replace, an earlier task that has not begun gets the context, and is due --delay from now, but no
later than --max-wait after its first submit; if it has begun, a new one is submitted. The field
replaced says so.

With --wait, standard error says after 2 s what the task waits for. The exit code is 0 if the task
succeeded, 6 if it failed, and 7 if it was not final in time.

With --depends-on, the task waits until the other one has ended. Behind the id or TYPE:KEY may
follow ",on_failure=fail", cancel or run, and ",wait_for=24h". With --context-from dependencies,
its first stage gets the results of these tasks, too.

With --on-final, asyncflow tells a URL when the task has ended, or has ended as --on says. The
secret that signs it is in ASYNCFLOW_ON_FINAL_SECRET; without one, the target has its own.

With --file, each line is the context of a task of TYPE or, without TYPE, a whole task such as
{"type": "thumbnails", "context": {}, "delay": "5m"}. Files may have any size. Refused lines are
listed on standard error, and the exit code is then 1. Among the submitted lines, existing counts
those whose key belonged to an existing task.

Examples:

    asyncflow tasks submit thumbnails '{"image": "harbour.jpg"}' --wait
    asyncflow tasks submit thumbnails @context.json --delay 5m
    asyncflow tasks submit index '{"document": 17}' --key document-17 --on-conflict replace \
      --delay 5s --max-wait 1m
    asyncflow tasks submit mail '{}' --user customer-17 --tags eu,nightly --metadata order=4711
    asyncflow tasks submit thumbnails -f contexts.jsonl
    asyncflow tasks submit report --depends-on resize.1.7 \
      --depends-on upload:invoice-17,on_failure=run,wait_for=24h --context-from dependencies
    zcat tasks.jsonl.gz | asyncflow tasks submit -f -`
}

// Run submits one task, or a file of them.
func (c *tasksSubmitCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(); err != nil {
		return usageError(err)
	}
	if c.File != "" {
		return c.submitFile(ctx, g)
	}
	task, err := c.task()
	if err != nil {
		return usageError(err)
	}
	submitted, err := g.client().Submit(ctx, task)
	if err != nil {
		return err
	}
	switch {
	case submitted.Replaced:
		fmt.Fprintf(g.stderr, "asyncflow: task %s has the new context: nothing new was submitted\n",
			submitted.ID)
	case submitted.Existing:
		fmt.Fprintf(g.stderr,
			"asyncflow: the key stands for task %s already: nothing new was submitted\n",
			submitted.ID)
	}
	if c.Wait {
		return c.wait(ctx, g, submitted.ID)
	}
	return g.printSubmitted(submitted, nil)
}

func (g *globals) printSubmitted(submitted client.SubmittedTask, err error) error {
	if done, err := g.asDocument(submitted, err); done {
		return err
	}
	return g.printFields("id", submitted.ID, "type", submitted.Type, "stage", submitted.Stage,
		"status", string(submitted.Status), "order time", timeText(submitted.OrderTime),
		"waits until", timeText(submitted.WaitsUntil))
}

// wait follows the task. If that fails, the error gives the task's id: the task is submitted
// all the same, and must not be submitted again.
func (c *tasksSubmitCmd) wait(ctx context.Context, g *globals, id string) error {
	err := g.waitAndPrint(ctx, id, c.Timeout)
	if err != nil && exitCode(err) < exitTaskFailed {
		return fmt.Errorf("task %s is submitted, but: %w", id, err)
	}
	return err
}

// check refuses flags that don't go together.
func (c *tasksSubmitCmd) check() error {
	options := c.Priority != 0 || c.Delay != 0 || !c.RunAt.IsZero() || c.MaxAttempts != 0 ||
		c.Key != nil || c.FlowKey != nil || len(c.DependsOn) > 0 || c.ContextFrom != "" ||
		c.OnFinal != "" || len(c.ClaimExclude)+len(c.ClaimLabel) > 0 ||
		!c.StartBy.IsZero() || !c.EndBy.IsZero() ||
		c.User != "" || len(c.Tags) > 0 || len(c.Metadata) > 0 || c.Trace != ""
	switch {
	case c.Key != nil && *c.Key == "": // such as from an unset variable in a script
		return asyncflow.InvalidField("--key", "must not be empty")
	case c.Key == nil && c.KeyWindow != nil:
		return asyncflow.InvalidField("--key-window", "needs --key")
	case c.Key == nil && c.OnConflict != "":
		return asyncflow.InvalidField("--on-conflict", "needs --key")
	case c.MaxWait != 0 && c.OnConflict != string(asyncflow.ConflictReplace):
		return asyncflow.InvalidField("--max-wait", "needs --on-conflict replace")
	case c.ContextFrom != "" && c.ContextFrom != asyncflow.ContextFromDependencies:
		return asyncflow.InvalidField("--context-from", "is %q; it must be %s", c.ContextFrom,
			asyncflow.ContextFromDependencies)
	case c.ContextFrom != "" && len(c.DependsOn) == 0:
		return asyncflow.InvalidField("--context-from", "needs --depends-on")
	case c.OnFinal == "" && len(c.On) > 0:
		return asyncflow.InvalidField("--on", "needs --on-final")
	case c.FlowKey != nil && *c.FlowKey == "":
		return asyncflow.InvalidField("--flow-key", "must not be empty")
	case c.File == "" && c.Type == "":
		return asyncflow.Errorf(asyncflow.CodeInvalid, "name a task type, or a file with --file")
	case c.File != "" && c.Context != "":
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"a context and --file exclude each other: each line has a context")
	case c.File != "" && c.Key != nil:
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"--key and --file exclude each other: a key is for one task")
	case c.File != "" && c.Wait:
		return asyncflow.Errorf(asyncflow.CodeInvalid, "--wait and --file exclude each other")
	case c.File != "" && c.Type == "" && options:
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"without a task type the lines are whole tasks: write the options into them")
	case c.Wait && c.Timeout <= 0:
		return asyncflow.InvalidField("--timeout", "is %v; it must be above 0", c.Timeout)
	}
	if _, err := c.claimRules(); err != nil {
		return err
	}
	_, err := dependencies(c.DependsOn)
	return err
}

// task returns the task that the command line describes.
func (c *tasksSubmitCmd) task() (client.NewTask, error) {
	t := c.template()
	raw, err := readContext(c.Context)
	t.Context = raw
	return t, err
}

// readContext returns the context of an argument, {} without one.
func readContext(text string) (json.RawMessage, error) {
	raw, err := readArgument(cmp.Or(text, "{}"))
	if err != nil {
		return nil, err
	}
	if err := asyncflow.CheckJSON(raw); err != nil {
		return nil, asyncflow.InvalidField("the context", "%v", err)
	}
	return raw, nil
}

// readArgument returns the document of an argument: itself, @FILE, or - for standard input; nil
// without one. Whether it is JSON isn't checked.
func readArgument(text string) (json.RawMessage, error) {
	switch {
	case text == "":
		return nil, nil
	case text == "-":
		return readInput("-")
	case strings.HasPrefix(text, "@"):
		return readInput(text[1:])
	}
	return json.RawMessage(text), nil
}

// template returns the task without its context.
func (c *tasksSubmitCmd) template() client.NewTask {
	t := client.NewTask{Type: c.Type, Delay: client.NewDuration(c.Delay), RunAt: c.RunAt,
		Retry: client.RetryPolicy{MaxAttempts: c.MaxAttempts}, ContextFrom: c.ContextFrom,
		User: c.User, Tags: c.Tags, Metadata: c.Metadata, Trace: c.Trace}
	t.DependsOn, _ = dependencies(c.DependsOn) // they are checked
	t.Claim, _ = c.claimRules()                // they are, too
	if c.Key != nil {
		t.Key = *c.Key
	}
	if c.KeyWindow != nil {
		t.KeyWindow = *c.KeyWindow
	}
	t.OnConflict = asyncflow.OnConflict(c.OnConflict)
	t.MaxWait = client.NewDuration(c.MaxWait)
	t.StartBy, t.EndBy = c.StartBy, c.EndBy
	if c.FlowKey != nil {
		t.FlowKey = *c.FlowKey
	}
	if c.OnFinal != "" {
		t.OnFinal = &client.OnFinal{URL: c.OnFinal, Secret: c.OnFinalSecret}
		for _, status := range c.On {
			t.OnFinal.On = append(t.OnFinal.On, client.Status(status))
		}
	}
	if c.Priority != 0 {
		t.Priority = client.Priority{c.Priority}
	}
	return t
}

// dependencies reads the values of --depends-on.
func dependencies(values []string) (all []client.Dependency, err error) {
	for _, v := range values {
		d, err := dependency(v)
		if err != nil {
			return nil, asyncflow.InvalidField("--depends-on", "is %q: %v", v, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// dependency reads an id or TYPE:KEY, with ,on_failure= and ,wait_for= behind it. A key may contain
// commas of its own.
func dependency(text string) (d client.Dependency, err error) {
	for {
		i := strings.LastIndexByte(text, ',')
		if i < 0 {
			break
		}
		name, value, _ := strings.Cut(text[i+1:], "=")
		switch name {
		case "on_failure":
			d.OnFailure = asyncflow.OnFailure(value)
		case "wait_for":
			wait, err := asyncflow.ParseDuration(value)
			if err != nil {
				return d, asyncflow.InvalidField("wait_for", "must be a time such as 24h")
			}
			d.WaitFor = asyncflow.NewDuration(wait)
		default:
			return d, setTarget(&d, text)
		}
		text = text[:i]
	}
	return d, setTarget(&d, text)
}

// setTarget sets the task that is depended on. There is no colon in the names of types.
func setTarget(d *client.Dependency, text string) (err error) {
	var byKey bool
	if d.Type, d.Key, byKey = strings.Cut(text, ":"); byKey {
		if d.Type == "" || d.Key == "" {
			return asyncflow.Errorf(asyncflow.CodeInvalid, "name both, as in TYPE:KEY")
		}
		return nil
	}
	d.Type = ""
	if d.Task, err = asyncflow.ParseTaskID(text); err != nil {
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"it must be an id such as thumbnails.1.42, or TYPE:KEY")
	}
	return nil
}
