package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// typesCmd groups the commands for task types.
type typesCmd struct {
	Apply    typesApplyCmd    `cmd:"" help:"Set up types, endpoints and schedules from a document."`
	Diff     typesDiffCmd     `cmd:"" help:"Show what apply would change."`
	List     typesListCmd     `cmd:"" help:"List the task types."`
	Get      typesGetCmd      `cmd:"" help:"Show a task type."`
	Rolls    typesRollsCmd    `cmd:"" help:"List the rolls of a type: their sizes, and when they go."`
	Versions typesVersionsCmd `cmd:"" help:"List the versions of a task type, or show one."`
	Rollback typesRollbackCmd `cmd:"" help:"Go back to an earlier version of a task type."`
	Pause    typesPauseCmd    `cmd:"" help:"Stop sending the tasks of a type."`
	Resume   typesResumeCmd   `cmd:"" help:"Send the tasks of a paused type again."`
	Release  typesReleaseCmd  `cmd:"" help:"Let the tasks of a flow key go on after one has failed."`
	Delete   typesDeleteCmd   `cmd:"" help:"Delete a task type with its tasks and endpoints."`
}

type typesListCmd struct{}

// Run lists the task types.
func (c *typesListCmd) Run(ctx context.Context, g *globals) error {
	types, err := g.client().TaskTypes(ctx)
	if done, err := g.asDocument(asList(types, ""), err); done {
		return err
	}
	rows := make([][]string, len(types))
	for i, t := range types {
		rows[i] = []string{t.Name, strconv.Itoa(t.Version), stageNames(t), timeText(t.PausedAt),
			timeText(t.UpdatedAt)}
	}
	return g.printTable("NAME VERSION STAGES PAUSED UPDATED", rows)
}

func stageNames(t client.TaskType) string {
	names := make([]string, len(t.Stages))
	for i, s := range t.Stages {
		names[i] = s.Name
	}
	return strings.Join(names, " → ")
}

type typesGetCmd struct {
	Name string `arg:"" help:"The task type."`
}

// Run shows a task type.
func (c *typesGetCmd) Run(ctx context.Context, g *globals) error {
	return g.printType(g.client().TaskType(ctx, c.Name))
}

// printType shows everything about a task type.
func (g *globals) printType(t client.TaskType, err error) error {
	if done, err := g.asDocument(t, err); done {
		return err
	}
	mapping, inFlight, flow, deliverBytes, steps := "", "", "", "", ""
	if len(t.StageMapping) > 0 {
		mapping = jsonText(t.StageMapping)
	}
	if t.MaxInFlight > 0 {
		inFlight = strconv.Itoa(t.MaxInFlight)
	}
	if t.Flow != nil {
		flow = jsonText(t.Flow)
	}
	if t.MaxDeliverBytes > 0 {
		deliverBytes = strconv.Itoa(t.MaxDeliverBytes)
	}
	if branches(t) {
		steps = strconv.Itoa(t.MaxSteps)
	}
	told := ""
	if t.OnFinal != nil {
		told = toldText(t.OnFinal)
	}
	var searchable []string
	for _, field := range t.Searchable {
		searchable = append(searchable,
			fmt.Sprintf("%s (from roll %d on)", field, t.SearchableFrom[field]))
	}
	if err := g.printFields("name", t.Name, "version", strconv.Itoa(t.Version), "paused",
		timeText(t.PausedAt), "reason", t.PauseReason,
		"ramping up until", timeText(t.RampUntil), "schedule_limit", strconv.Itoa(t.ScheduleLimit),
		"schedule_interval", t.ScheduleInterval.Text(), "max_in_flight", inFlight, "rate",
		t.Rate.String(), "max_deliver_bytes", deliverBytes, "max_steps", steps, "flow", flow,
		"roll_rows", strconv.Itoa(t.RollRows), "roll_age",
		t.RollAge.Text(), "retention", t.Retention.String(),
		"stage_mapping", mapping, "on final", told, "searchable", strings.Join(searchable, ", "),
		"created", timeText(t.CreatedAt), "updated",
		timeText(t.UpdatedAt)); err != nil {
		return err
	}
	fmt.Fprintln(g.stdout)
	return g.printStages(t)
}

// branches reports whether there are stages in a type after which workers choose, or a failure
// leads on.
func branches(t client.TaskType) bool { return asyncflow.TaskType{Stages: t.Stages}.Branches() }

// waits reports whether there are stages in a type that wait for signals.
func waits(t client.TaskType) bool {
	return slices.ContainsFunc(t.Stages, func(s asyncflow.Stage) bool { return s.Wait != nil })
}

// printStages shows the stages of a type, which signals they wait for and, if it branches, what may
// follow each of them.
func (g *globals) printStages(t client.TaskType) error {
	columns := "STAGE TIMEOUT MAX_PROCESSING_TIME MAX_SNOOZE MAX_ATTEMPTS INTERVAL PRIORITY DELIVER"
	spawns := asyncflow.TaskType{Stages: t.Stages}.Spawns()
	if waits(t) {
		columns += " SIGNAL WAITS_FOR ON_TIMEOUT"
	}
	linked := slices.ContainsFunc(t.Stages, func(s asyncflow.Stage) bool {
		return s.Wait != nil && s.Wait.Links != nil
	})
	if linked {
		columns += " LINKS"
	}
	if spawns {
		columns += " SPAWN"
	}
	if branches(t) {
		columns += " NEXT ON_FAILURE"
	}
	rows := make([][]string, len(t.Stages))
	for i, s := range t.Stages {
		rows[i] = []string{s.Name, s.Timeout.Text(), s.MaxProcessingTime.Text(), s.MaxSnooze.Text(),
			strconv.Itoa(s.Retry.MaxAttempts), s.Retry.Interval.String(), strconv.Itoa(s.Priority),
			deliverText(s.Deliver)}
		if s.Mode == asyncflow.ModeWait { // it is without any of them
			rows[i] = append([]string{s.Name}, make([]string, len(rows[i])-1)...)
		}
		if waits(t) {
			rows[i] = append(rows[i], waitColumns(s.Wait)...)
		}
		if linked {
			rows[i] = append(rows[i], linksText(s.Wait))
		}
		if spawns {
			rows[i] = append(rows[i], strings.Join(s.Spawn, ","))
		}
		if !branches(t) {
			continue
		}
		undo := ""
		if s.OnFailure != nil {
			undo = s.OnFailure.Next
		}
		rows[i] = append(rows[i], strings.Join(s.Next, ","), undo)
	}
	return g.printTable(columns, rows)
}

// waitColumns shows which signal a stage waits for, for how long, and what follows without it.
func waitColumns(w *asyncflow.Wait) []string {
	switch {
	case w == nil:
		return []string{"", "", ""}
	case w.OnTimeout == nil:
		return []string{w.Signal, w.Timeout.Text(), "fail"}
	}
	return []string{w.Signal, w.Timeout.Text(), w.OnTimeout.Next}
}

// linksText shows what people may decide by the links of a wait.
func linksText(w *asyncflow.Wait) string {
	if w == nil || w.Links == nil {
		return ""
	}
	return strings.Join(w.Links.Names(), ",")
}

type typesPauseCmd struct {
	Name   string `arg:"" help:"The task type."`
	Reason string `placeholder:"TEXT" help:"Why; it is shown with the type."`
}

func (c *typesPauseCmd) Help() string {
	return `No more tasks of the type are started. Attempts in flight are finished, and submits
continue.`
}

// Run pauses a task type and shows it.
func (c *typesPauseCmd) Run(ctx context.Context, g *globals) error {
	return g.printType(g.client().PauseTaskType(ctx, c.Name, c.Reason))
}

type typesResumeCmd struct {
	Name string        `arg:"" help:"The task type."`
	Ramp time.Duration `placeholder:"TIME"`
}

func (c *typesResumeCmd) Help() string {
	return `Example:

    asyncflow types resume thumbnails --ramp 5m`
}

// Run resumes a task type and shows it.
func (c *typesResumeCmd) Run(ctx context.Context, g *globals) error {
	return g.printType(g.client().ResumeTaskType(ctx, c.Name, c.Ramp))
}

type typesReleaseCmd struct {
	Name    string `arg:"" help:"The task type."`
	FlowKey string `arg:"" help:"The flow key."`
}

func (c *typesReleaseCmd) Help() string {
	return `This is for types whose flow has on_failure: block. The failed task stays failed. If none
blocks the key, nothing is released: a message says so, and the exit code is 0.

Example:

    asyncflow types release orders customer-17`
}

// Run releases a flow key, and prints the number of failed tasks that blocked others.
func (c *typesReleaseCmd) Run(ctx context.Context, g *globals) error {
	n, err := g.client().ReleaseFlowKey(ctx, c.Name, c.FlowKey)
	if err != nil {
		return err
	}
	if n == 0 {
		fmt.Fprintf(g.stderr,
			"asyncflow: no failed task blocks the flow key %q of %s: nothing to release\n",
			c.FlowKey, c.Name)
	}
	if g.output == "json" {
		return g.printJSON(map[string]int{"released": n})
	}
	return g.printFields("released", strconv.Itoa(n))
}

type typesDeleteCmd struct {
	Name    string `arg:"" help:"The task type."`
	Cascade bool   `help:"Also delete its schedules, and end the tasks that wait for its tasks."`
}

// Run deletes a task type.
func (c *typesDeleteCmd) Run(ctx context.Context, g *globals) error {
	return g.printDeleted(c.Name, g.client().DeleteTaskType(ctx, c.Name, c.Cascade))
}

type typesRollsCmd struct {
	Name string `arg:"" help:"The task type."`
}

func (c *typesRollsCmd) Help() string {
	return `A roll is one generation of the tables of tasks. It is dropped whole, with all its tasks.
The newest 100 are listed, the newest first.

TASKS is about how many tasks it has, live and final, and BYTES the size of its tables. If its
TABLES are shared, both are those of all types that share them. GOES says when it is dropped, at the
earliest, or, of the open one, when the next one opens. While live tasks keep its tables, it says
when all its other tasks are erased.

Example:

    asyncflow types rolls thumbnails -o json | jq '[.data[].bytes] | add'`
}

// Run lists the rolls of a task type.
func (c *typesRollsCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().TaskTypeRolls(ctx, c.Name)
	if done, err := g.asDocument(list, err); done {
		return err
	}
	rows := make([][]string, len(list.Data))
	for i, r := range list.Data {
		tables := "shared"
		if r.Own {
			tables = "own"
		}
		rows[i] = []string{strconv.Itoa(r.Position), tables, number(r.TasksEstimate),
			number(r.Bytes),
			timeText(r.OpenedAt), timeText(r.SealedAt), timeText(r.IdleSince), rollEndText(r)}
	}
	err = g.printTable("ROLL TABLES TASKS BYTES OPENED SEALED IDLE GOES", rows)
	if err != nil || list.Older == 0 {
		return err
	}
	fmt.Fprintln(g.stdout)
	return g.printFields("older", strconv.Itoa(list.Older))
}

// rollEndText returns when a roll is dropped or compacted, or the next one opens.
func rollEndText(r client.Roll) string {
	switch {
	case !r.CompactsAt.IsZero() && r.IdleSince.IsZero():
		return timeText(r.CompactsAt) + ", but for live tasks"
	case !r.CompactsAt.IsZero():
		return timeText(r.CompactsAt)
	case !r.DropsAt.IsZero():
		return timeText(r.DropsAt)
	case r.NextTasks == 0:
		return longText(r.Retention.Std()) + " after its last task ends, or later"
	case r.NextAt.IsZero():
		return fmt.Sprintf("next one at %d tasks", r.NextTasks)
	}
	return fmt.Sprintf("next one at %d tasks or %s", r.NextTasks, timeText(r.NextAt))
}

// deliverText returns what the deliveries of a stage carry besides the context.
func deliverText(d *asyncflow.Deliver) string {
	if d == nil {
		return ""
	}
	text := d.Outputs
	if d.Input {
		text = append([]string{"(input)"}, text...)
	}
	return strings.Join(text, ",")
}
