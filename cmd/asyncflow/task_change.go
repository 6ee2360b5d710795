package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type tasksChangeCmd struct {
	ID       string           `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Priority string           `placeholder:"SECONDS"`
	Delay    *client.Duration `placeholder:"TIME" xor:"when"`
	RunAt    time.Time        `placeholder:"TIME" xor:"when"`
	Context  string           `placeholder:"JSON"`
	Retry    string           `placeholder:"JSON"`
	Status   string           `enum:"waiting,pending," default:""`

	StartBy asyncflow.Deadline `placeholder:"TIME" help:"A time, a duration from now, or none."`
	EndBy   asyncflow.Deadline `placeholder:"TIME" help:"A time, a duration from now, or none."`
	otherClaimFlags
	manyFlags
}

func (c *tasksChangeCmd) Help() string {
	return `A new priority moves the task in the order as if it had been submitted with it, and
applies to later stages. A task that is delayed, or waits for a retry, keeps its time unless you
set another. A new context is what the present stage gets from the next attempt on. A new retry
policy is the task's own: what it leaves out is as in the type, and {} is the type's.
--claim-exclude and --claim-label replace all rules of who may claim the task, from the next claim
on.

` + manyHelp + `

Examples:

    asyncflow tasks change thumbnails.1.42 --priority 3600
    asyncflow tasks change thumbnails.1.42 --delay 0s
    asyncflow tasks change thumbnails.1.42 --context '{"image": "harbour.png"}'
    asyncflow tasks change thumbnails.1.42 --retry '{"max_attempts": 40, "interval": 600}'
    asyncflow tasks change --type thumbnails --stage resize --priority 3600 --dry-run`
}

// Run changes a task and shows it, or changes many.
func (c *tasksChangeCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status, endedFlags{}); err != nil {
		return usageError(err)
	}
	patch := client.TaskPatch{RunAt: c.RunAt, Delay: c.Delay, StartBy: c.StartBy, EndBy: c.EndBy}
	var err error
	if patch.Priority, err = readPriority(c.Priority); err != nil {
		return usageError(err)
	}
	if c.Context != "" && !json.Valid([]byte(c.Context)) {
		return usageError(asyncflow.InvalidField("--context", "is not valid JSON"))
	}
	patch.Context = json.RawMessage(c.Context)
	if patch.Retry, err = readRetry(c.Retry); err != nil {
		return usageError(err)
	}
	if patch.Claim, err = c.otherClaimFlags.change(); err != nil {
		return usageError(err)
	}
	if len(patch.Priority) == 0 && !c.changesOne(patch) {
		return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
			"say what to change: --priority, --delay, --run-at, --start-by, --end-by, --context, "+
				"--retry, --claim-exclude, --claim-label or --claim-anyone"))
	}
	if c.ID == "" {
		if c.changesOne(patch) {
			return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
				"of many tasks only the --priority can be changed; asyncflow tasks delay changes "+
					"their time"))
		}
		return c.changeAll(ctx, g, patch.Priority)
	}
	return g.printTask(g.client().Change(ctx, c.ID, patch))
}

// changesOne reports whether the patch says what only one task can be given.
func (c *tasksChangeCmd) changesOne(p client.TaskPatch) bool {
	return c.Delay != nil || !c.RunAt.IsZero() || c.Context != "" || c.Retry != "" ||
		p.Claim != nil || !c.StartBy.IsZero() || !c.EndBy.IsZero()
}

// changeAll changes the priority of many tasks.
func (c *tasksChangeCmd) changeAll(ctx context.Context, g *globals, p client.Priority) error {
	b, err := selecting[client.BulkPriority](&c.manyFlags, c.Status, endedFlags{})
	if err != nil {
		return err
	}
	b.Priority = p
	m := many[client.BulkPriority]{"change the priority of", g.client().CountPrioritize,
		g.client().PrioritizeAll}
	return m.run(ctx, g, &c.manyFlags, b)
}

// readPriority reads numbers separated by commas; "" stands for none.
func readPriority(text string) (client.Priority, error) {
	if text == "" {
		return nil, nil
	}
	var p client.Priority
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, asyncflow.InvalidField("--priority",
				"is %q; it must be a number of seconds, or several with commas", text)
		}
		p = append(p, n)
	}
	return p, nil
}

// readRetry reads a retry policy; "" stands for none.
func readRetry(text string) (*client.RetryPolicy, error) {
	if text == "" {
		return nil, nil
	}
	p := &client.RetryPolicy{}
	read := json.NewDecoder(strings.NewReader(text))
	read.DisallowUnknownFields()
	if err := read.Decode(p); err != nil {
		return nil, asyncflow.InvalidField("--retry",
			`must be JSON such as {"max_attempts": 40, "interval": 600}: %v`, err)
	}
	return p, nil
}

type tasksCancelCmd struct {
	ID     string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Reason string `placeholder:"TEXT" help:"Why; it is kept with each task."`
	Status string `enum:"waiting,pending,running," default:""`
	manyFlags
}

func (c *tasksCancelCmd) Help() string {
	return `An attempt in flight is not interrupted: its worker learns of the cancellation by its next
heartbeat, and its report is ignored.

` + manyHelp + `

Examples:

    asyncflow tasks cancel thumbnails.1.42 --reason "the order was withdrawn"
    asyncflow tasks cancel --type thumbnails --status waiting --dry-run
    asyncflow tasks cancel --type thumbnails --stage resize --until 24h --pace 100`
}

// Run cancels a task and shows it, or cancels many.
func (c *tasksCancelCmd) Run(ctx context.Context, g *globals) error {
	if err := c.check(c.ID, c.Status, endedFlags{}); err != nil {
		return usageError(err)
	}
	if c.ID == "" {
		b, err := selecting[client.BulkCancellation](&c.manyFlags, c.Status, endedFlags{})
		if err != nil {
			return err
		}
		b.Reason = c.Reason
		m := many[client.BulkCancellation]{"cancel", g.client().CountCancel, g.client().CancelAll}
		return m.run(ctx, g, &c.manyFlags, b)
	}
	return g.printTask(g.client().Cancel(ctx, c.ID, c.Reason))
}

type tasksPauseCmd struct {
	ID     string `arg:"" name:"id" help:"The id of a task that waits for its children."`
	Reason string `placeholder:"TEXT" help:"Why; it is shown with the task."`
}

func (c *tasksPauseCmd) Help() string {
	return `No further child of the task begins until it is resumed. Children that run are finished.

Example:

    asyncflow tasks pause scans.1.17 --reason "the scanner's disk is full"`
}

// Run pauses the children of a task and shows the task.
func (c *tasksPauseCmd) Run(ctx context.Context, g *globals) error {
	return g.printTask(g.client().Pause(ctx, c.ID, c.Reason))
}

type tasksResumeCmd struct {
	ID string `arg:"" name:"id" help:"The id of a paused task."`
}

func (c *tasksResumeCmd) Help() string {
	return `Children begin again, each at its old place in the order.

Example:

    asyncflow tasks resume scans.1.17`
}

// Run resumes the children of a task and shows the task.
func (c *tasksResumeCmd) Run(ctx context.Context, g *globals) error {
	return g.printTask(g.client().Resume(ctx, c.ID))
}

type tasksRedriveCmd struct {
	ID        string `arg:"" optional:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	FromStage string `placeholder:"NAME"`
	Context   string `placeholder:"JSON"`
	Status    string `enum:"failed,cancelled," default:""`

	StartBy asyncflow.Deadline `placeholder:"TIME" help:"Another start_by: a time, or a duration."`
	EndBy   asyncflow.Deadline `placeholder:"TIME" help:"Another end_by."`

	AllChildren bool `help:"With an id: all of its children, not only those that failed."`
	Fresh       bool `help:"With an id: without the checkpoint that its last attempt left."`
	Dependents  bool `help:"With an id: also what failed because of it. --dry-run lists it."`
	endedFlags
	manyFlags
}

func (c *tasksRedriveCmd) Help() string {
	return `A redriven task gets all attempts of its stages again.

` + manyHelp + ` A task that fails again is not redriven again.

Examples:

    asyncflow tasks redrive thumbnails.1.42 --from-stage inspect \
      --context '{"image": "harbour.png"}'
    asyncflow tasks redrive upload.1.7 --dependents --dry-run
    asyncflow tasks redrive --type thumbnails --code timeout --ended-since 2h --dry-run
    asyncflow tasks redrive --all-types --code 503 --ended-since 2h
    asyncflow tasks redrive --type thumbnails --stage resize --from-stage inspect --pace 50`
}

// Run redrives a task and shows it, or redrives many.
func (c *tasksRedriveCmd) Run(ctx context.Context, g *globals) error {
	flags := c.manyFlags
	if c.ID != "" && c.Dependents {
		flags.DryRun = false // it lists them
	}
	if err := flags.check(c.ID, c.Status, c.endedFlags); err != nil {
		return usageError(err)
	}
	if c.ID == "" {
		if c.AllChildren || c.Dependents || c.Fresh {
			return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
				"--all-children, --fresh, --dependents and --type exclude each other: they are "+
					"for one task"))
		}
		if c.Context != "" {
			return usageError(asyncflow.Errorf(asyncflow.CodeInvalid,
				"--context and --type exclude each other: a context is for one task"))
		}
		b, err := selecting[client.BulkRedrive](&c.manyFlags, c.Status, c.endedFlags)
		if err != nil {
			return err
		}
		b.FromStage = c.FromStage
		b.StartBy = c.StartBy
		b.EndBy = c.EndBy
		m := many[client.BulkRedrive]{"redrive", g.client().CountRedrive, g.client().RedriveAll}
		return m.run(ctx, g, &c.manyFlags, b)
	}
	if c.Context != "" && !json.Valid([]byte(c.Context)) {
		return usageError(asyncflow.InvalidField("--context", "is not valid JSON"))
	}
	return g.printTask(g.client().RedriveWith(ctx, c.ID, client.RedriveOptions{Stage: c.FromStage,
		Context: json.RawMessage(c.Context), AllChildren: c.AllChildren, Fresh: c.Fresh,
		Dependents: c.Dependents, DryRun: c.DryRun, StartBy: c.StartBy, EndBy: c.EndBy}))
}
