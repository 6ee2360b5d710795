package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/client/api"
)

// tasksCmd groups the commands for tasks.
type tasksCmd struct {
	Submit     tasksSubmitCmd     `cmd:"" help:"Submit a task, or a file of them."`
	Get        tasksGetCmd        `cmd:"" help:"Show a task, waiting for its end if asked to."`
	Watch      tasksWatchCmd      `cmd:"" help:"Show what happens to a task until it is final."`
	List       tasksListCmd       `cmd:"" help:"List the tasks of a type, newest first."`
	Export     tasksExportCmd     `cmd:"" help:"Write the tasks that a filter finds, as JSON lines or CSV."`
	Count      tasksCountCmd      `cmd:"" help:"Count the tasks that a filter finds."`
	Tree       tasksTreeCmd       `cmd:"" help:"Show a task with its children."`
	Results    tasksResultsCmd    `cmd:"" help:"Show how the children of a task ended."`
	Votes      tasksVotesCmd      `cmd:"" help:"Show the votes on a task."`
	Checkpoint tasksCheckpointCmd `cmd:"" help:"Show what the latest attempt left for the next one."`
	Attempts   tasksAttemptsCmd   `cmd:"" help:"List the attempts of a task."`
	Change     tasksChangeCmd     `cmd:"" help:"Change the priority, start time or context of a task."`
	Delay      tasksDelayCmd      `cmd:"" help:"Change when a task runs, or all that a filter matches."`
	RunNow     tasksRunNowCmd     `cmd:"" help:"Run a task that waits at once, or all that a filter matches."`
	Cancel     tasksCancelCmd     `cmd:"" help:"Cancel a task, or all that a filter matches."`
	Pause      tasksPauseCmd      `cmd:"" help:"Keep further children of a task from beginning."`
	Resume     tasksResumeCmd     `cmd:"" help:"Let the children of a paused task begin again."`
	Redrive    tasksRedriveCmd    `cmd:"" help:"Run failed or cancelled tasks again."`
	Rerun      tasksRerunCmd      `cmd:"" help:"Run final tasks again, as new tasks."`
	Erase      tasksEraseCmd      `cmd:"" help:"Erase the contents of final tasks."`
}

type tasksGetCmd struct {
	ID   string        `arg:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
	Wait time.Duration `placeholder:"TIME"`
}

func (c *tasksGetCmd) Help() string {
	return `With --wait, the exit code is 0 if the task succeeded, 6 if it failed, and 7 if it was
not final in time.

Example:

    asyncflow tasks get thumbnails.1.42 --wait 30s`
}

// Run shows a task.
func (c *tasksGetCmd) Run(ctx context.Context, g *globals) error {
	if c.Wait < 0 {
		return usageError(asyncflow.InvalidField("--wait", "is %v; it must be above 0", c.Wait))
	}
	if c.Wait > 0 {
		return g.waitAndPrint(ctx, c.ID, c.Wait)
	}
	return g.printTask(g.client().Get(ctx, c.ID))
}

// waitAndPrint shows a task once it is final, or after d. Its error carries the exit code for
// the task's status.
func (g *globals) waitAndPrint(ctx context.Context, id string, d time.Duration) error {
	task, err := g.waitAndReport(ctx, id, d)
	if err := g.printTask(task, err); err != nil {
		return err
	}
	switch task.Status {
	case client.StatusSucceeded:
		return nil
	case client.StatusFailed, client.StatusCancelled:
		return silent(exitTaskFailed)
	}
	return &codedError{exitNotFinal, fmt.Errorf("task %s is %s: not final within %v", task.ID,
		task.Status, d)}
}

// printTask shows everything about a task.
func (g *globals) printTask(t client.Task, err error) error {
	if done, err := g.asDocument(t, err); done {
		return err
	}
	attempt := ""
	if t.Attempt > 0 {
		attempt = strconv.Itoa(t.Attempt)
		if t.MaxAttempts > 0 {
			attempt += " of " + strconv.Itoa(t.MaxAttempts)
		}
	}
	priority := ""
	if len(t.Priority) > 0 {
		priority = jsonText(t.Priority)
	}
	return g.printFields("id", t.ID, "type", t.Type, "key", t.Key, "user", t.User,
		"tags", strings.Join(t.Tags, ", "), "metadata", metadataText(t.Metadata), "trace", t.Trace,
		"status", string(t.Status),
		"stage", t.Stage, "attempt", attempt,
		"waits for", string(t.WaitsFor), "because", t.WaitsBecause, "signal",
		signalText(t.Signal), "depends on",
		dependenciesText(t.Dependencies), "redriven",
		strings.Join(t.Redriven, " "), "priority", priority, "order time", timeText(t.OrderTime),
		"start by", timeText(t.Lifetime.StartBy), "end by", timeText(t.Lifetime.EndBy),
		"deadline", timeText(t.Deadline), "progress", progressText(t), "runs", runText(t.Run),
		"last heartbeat", heartbeatText(t.Run), "children",
		childrenText(t.Children), "tree", treeText(t.Tree), "paused", pausedText(t), "parent",
		t.Parent, "rerun of", t.RerunOf, "retry", retryText(t.Retry),
		"claim rules", claimRulesText(t.Claim),
		"started", spawnedText(t), "path", pathText(t),
		"on final", onFinalText(t),
		"notifications", strings.Join(t.Notifications, " "),
		"created", timeText(t.CreatedAt), "finished", timeText(t.FinishedAt),
		"took", latencyText(t.TurnaroundMs), "erased", erasedText(t.Erased), "error", t.Error,
		"error code", t.ErrorCode,
		"context", string(t.Context), "result", string(t.Result))
}

// retryText shows the retry policy of a task's own.
func retryText(p *client.RetryPolicy) string {
	if p == nil {
		return ""
	}
	return jsonText(p)
}

// claimRulesText shows who may claim a task.
func claimRulesText(r *asyncflow.ClaimRules) string {
	if r == nil {
		return ""
	}
	return jsonText(r)
}

// runText shows where a task runs, such as "since …, worker-7f9c, https://…, node m8x2k1qf".
func runText(r *api.TaskRun) string {
	if r == nil {
		return ""
	}
	texts := []string{"since " + timeText(r.Since)}
	if r.WaitMs != nil && *r.WaitMs > 0 {
		texts = append(texts, "after a wait of "+latencyText(*r.WaitMs))
	}
	for _, one := range []struct{ before, text string }{{"worker ", r.Worker},
		{"claimed by ", r.Claimer}, {"", r.Endpoint}, {"node ", r.Node}} {
		if one.text != "" {
			texts = append(texts, one.before+one.text)
		}
	}
	return strings.Join(texts, ", ")
}

func heartbeatText(r *api.TaskRun) string {
	if r == nil {
		return ""
	}
	return timeText(r.LastHeartbeat)
}

// onFinalText shows where the end of a task is told, or what it tells itself.
func onFinalText(t client.Task) string {
	switch {
	case t.Notification != nil:
		return "tells " + t.Notification.Task + " to " + t.Notification.URL
	case t.OnFinal == nil:
		return ""
	}
	return toldText(t.OnFinal)
}

// toldText shows where ends are told, and which.
func toldText(f *client.OnFinal) string {
	text := f.URL
	for i, status := range f.On {
		text += []string{", if ", " or "}[min(i, 1)] + string(status)
	}
	return text
}

// metadataText shows metadata by name, such as "order=4711, shop=de".
func metadataText(m map[string]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, name+"="+m[name])
	}
	return strings.Join(texts, ", ")
}

// signalText shows the signal that a task waits for.
func signalText(s api.SignalWait) string {
	if s.Name == "" {
		return ""
	}
	text := s.Name + ", until " + timeText(s.Until)
	if len(s.Decisions) > 0 {
		text += ", by links: " + strings.Join(s.Decisions, ", ")
	}
	return text
}

// pathText shows the visits of a task, such as "fetch → store (2 attempts) → fetch #2".
func pathText(t client.Task) string {
	texts := make([]string, len(t.Path))
	for i, v := range t.Path {
		texts[i] = v.Stage
		if v.Visit > 1 {
			texts[i] += " #" + strconv.Itoa(v.Visit)
		}
		if v.Attempts > 1 {
			texts[i] += " (" + strconv.Itoa(v.Attempts) + " attempts)"
		}
	}
	if more := t.Steps - len(t.Path); more > 0 {
		texts = append([]string{strconv.Itoa(more) + " more"}, texts...)
	}
	return strings.Join(texts, " → ")
}

// spawnedText shows how many tasks a task started, and how to list them.
func spawnedText(t client.Task) string {
	if len(t.Spawned) == 0 {
		return ""
	}
	counts := make([]string, len(t.Spawned))
	for i, c := range t.Spawned {
		counts[i] = strconv.Itoa(c.Count) + " " + c.Type
	}
	return fmt.Sprintf("%s (asyncflow tasks list --type %s --parent %s)",
		strings.Join(counts, ", "), t.Spawned[0].Type, t.ID)
}

// dependenciesText lists what a task depends on, each with its status.
func dependenciesText(all []api.DependencyState) string {
	texts := make([]string, len(all))
	for i, d := range all {
		name := d.Task
		if d.Key != "" {
			name = d.Type + ":" + d.Key
		}
		texts[i] = name + " (" + string(d.Status)
		open := d.Status == asyncflow.DependencyRunning || d.Status == asyncflow.DependencyMissing
		if open && !d.Until.IsZero() {
			texts[i] += ", until " + timeText(d.Until)
		}
		texts[i] += ")"
	}
	return strings.Join(texts, ", ")
}

// jsonText returns a small value as JSON.
func jsonText(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

type tasksAttemptsCmd struct {
	ID string `arg:"" name:"id" help:"The task's id, such as thumbnails.1.42."`
}

// Run lists the attempts of a task.
func (c *tasksAttemptsCmd) Run(ctx context.Context, g *globals) error {
	var attempts []client.Attempt
	for a, err := range g.client().AllAttempts(ctx, c.ID, g.output == "json") {
		if err != nil {
			return err
		}
		attempts = append(attempts, a)
	}
	if g.output == "json" {
		return g.printJSON(asList(attempts, ""))
	}
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		status, took, waited := "", "", ""
		if a.WaitMs != nil {
			waited = latencyText(*a.WaitMs)
		}
		if a.StatusCode != 0 {
			status = strconv.Itoa(a.StatusCode)
		}
		if a.DurationMs != 0 {
			took = strconv.FormatFloat(float64(a.DurationMs), 'f', 1, 32) + "ms"
		}
		target := a.Endpoint
		if a.Worker != "" {
			target = strings.TrimSpace(a.Worker + " " + target)
		}
		if a.Claimer != "" {
			target = strings.TrimSpace(
				a.Worker + " claimed by " + claimerText(a.Claimer, a.Subject))
		}
		if len(a.Changes) > 0 {
			target = changesText(a.Changes)
		}
		rows[i] = []string{strconv.Itoa(a.Seq), timeText(a.At), a.Stage, strconv.Itoa(a.Attempt),
			string(a.Outcome), string(a.Final), status, waited, took, timeText(a.NextTime), target,
			a.Error}
	}
	return g.printTable(
		"SEQ AT STAGE ATTEMPT OUTCOME FINAL STATUS WAITED TOOK NEXT ENDPOINT ERROR", rows)
}
