package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

// schedulesCmd groups the commands for schedules.
type schedulesCmd struct {
	Apply   schedulesApplyCmd   `cmd:"" help:"Set up the schedules of a document."`
	List    schedulesListCmd    `cmd:"" help:"List the schedules."`
	Get     schedulesGetCmd     `cmd:"" help:"Show a schedule."`
	Next    schedulesNextCmd    `cmd:"" help:"Show when a schedule runs next, by its clocks."`
	Trigger schedulesTriggerCmd `cmd:"" help:"Submit a task of a schedule now, beside its ticks."`
	Pause   schedulesPauseCmd   `cmd:"" help:"Pause a schedule: its ticks pass without tasks."`
	Resume  schedulesResumeCmd  `cmd:"" help:"Let a paused schedule continue with its next tick."`
	Delete  schedulesDeleteCmd  `cmd:"" help:"Delete a schedule. Its tasks stay."`
}

type schedulesApplyCmd struct {
	File string `short:"f" required:"" placeholder:"FILE" help:"YAML or JSON document; - is standard input."`
}

func (c *schedulesApplyCmd) Help() string {
	return `The document is one of asyncflow types apply; this command sets up only its schedules.
Applying the same document again changes nothing. Schedules that the document doesn't name stay.

Example, as a file asyncflow.yaml:

    schedules:
      - name: nightly
        type: thumbnails
        context: {image: harbour.jpg}
        cron: "30 3 * * *"
        time_zone: Europe/Berlin
        overlap: skip       # or queue, replace
        catch_up: last      # or none, all
      - {name: often, type: thumbnails, context: {}, every: 10m}

and then:

    asyncflow schedules apply -f asyncflow.yaml`
}

// Run applies the schedules of a document.
func (c *schedulesApplyCmd) Run(ctx context.Context, g *globals) error {
	return g.applyDocument(ctx, c.File, document.Document.ApplySchedules)
}

type schedulesListCmd struct{}

// Run lists the schedules.
func (c *schedulesListCmd) Run(ctx context.Context, g *globals) error {
	list, err := g.client().Schedules(ctx)
	if done, err := g.asDocument(asList(list, ""), err); done {
		return err
	}
	rows := make([][]string, len(list))
	for i, s := range list {
		next := ""
		if len(s.NextRuns) > 0 {
			next = timeText(s.NextRuns[0])
		}
		rows[i] = []string{s.Name, s.Type, timesText(s), next, timeText(s.LastRunAt), s.LastTaskID,
			timeText(s.PausedAt), s.LastError}
	}
	return g.printTable("NAME TYPE TIMES NEXT LAST LAST_TASK PAUSED ERROR", rows)
}

// timesText returns in short when a schedule ticks.
func timesText(s client.Schedule) string {
	if s.Cron == "" {
		return "every " + s.Every.Text()
	}
	return s.Cron + " " + s.TimeZone
}

// scheduleArg names the schedule of a command.
type scheduleArg struct {
	Name string `arg:"" help:"The schedule."`
}

type schedulesGetCmd struct{ scheduleArg }

// Run shows a schedule.
func (c *schedulesGetCmd) Run(ctx context.Context, g *globals) error {
	return g.printSchedule(g.client().Schedule(ctx, c.Name))
}

// printSchedule shows everything about a schedule.
func (g *globals) printSchedule(s client.Schedule, err error) error {
	if done, err := g.asDocument(s, err); done {
		return err
	}
	catchUp, priority, retry, skipped, next := string(s.CatchUp), "", "", "", ""
	if s.CatchUp == client.CatchUpAll {
		catchUp += ", the latest " + strconv.Itoa(s.CatchUpLimit)
	}
	if len(s.Priority) > 0 {
		priority = jsonText(s.Priority)
	}
	if !s.Retry.IsZero() {
		retry = jsonText(s.Retry)
	}
	if s.Skipped > 0 {
		skipped = number(s.Skipped) + ", last " + timeText(s.LastSkippedAt)
	}
	if len(s.NextRuns) > 0 {
		next = timeText(s.NextRuns[0])
	}
	return g.printFields("name", s.Name, "version", strconv.Itoa(s.Version), "type", s.Type,
		"times", timesText(s), "starts", timeText(s.StartsAt),
		"ends", timeText(s.EndsAt), "overlap", string(s.Overlap), "catch up", catchUp, "priority",
		priority, "retry", retry,
		"paused", timeText(s.PausedAt), "next run", next, "last run", timeText(s.LastRunAt),
		"last task",
		s.LastTaskID, "skipped", skipped, "failing since", timeText(s.FailingSince), "last error",
		s.LastError,
		"created", timeText(s.CreatedAt), "updated", timeText(s.UpdatedAt), "context",
		string(s.Context))
}

type schedulesNextCmd struct{ scheduleArg }

// Run shows the next runs of a schedule in its time zone.
func (c *schedulesNextCmd) Run(ctx context.Context, g *globals) error {
	s, err := g.client().Schedule(ctx, c.Name)
	if done, err := g.asDocument(map[string]any{"next_runs": s.NextRuns}, err); done {
		return err
	}
	if len(s.NextRuns) == 0 {
		why := "it has come to its end"
		if !s.PausedAt.IsZero() {
			why = "it is paused"
		}
		_, err := fmt.Fprintln(g.stdout, "none:", why)
		return err
	}
	zone, err := time.LoadLocation(cmp.Or(s.TimeZone, "UTC"))
	if err != nil { // the server knows more zones
		zone = time.UTC
	}
	for _, run := range s.NextRuns {
		if _, err := fmt.Fprintln(g.stdout, run.In(zone).Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return nil
}

type schedulesTriggerCmd struct{ scheduleArg }

// Run submits a task of a schedule.
func (c *schedulesTriggerCmd) Run(ctx context.Context, g *globals) error {
	return g.printSubmitted(g.client().TriggerSchedule(ctx, c.Name))
}

type schedulesPauseCmd struct{ scheduleArg }

// Run pauses a schedule and shows it.
func (c *schedulesPauseCmd) Run(ctx context.Context, g *globals) error {
	return g.printSchedule(g.client().PauseSchedule(ctx, c.Name))
}

type schedulesResumeCmd struct{ scheduleArg }

// Run resumes a schedule and shows it.
func (c *schedulesResumeCmd) Run(ctx context.Context, g *globals) error {
	return g.printSchedule(g.client().ResumeSchedule(ctx, c.Name))
}

type schedulesDeleteCmd struct{ scheduleArg }

// Run deletes a schedule.
func (c *schedulesDeleteCmd) Run(ctx context.Context, g *globals) error {
	return g.printDeleted(c.Name, g.client().DeleteSchedule(ctx, c.Name))
}
