package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/client"
)

// A wait says what it is for after waitSilent, and again when that has changed, at most every
// waitLook.
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
		text := fmt.Sprintf("is running at stage %s, until %s at most", t.Stage, clockText(t.Deadline))
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
	text := strings.NewReplacer("{parent}", parent, "{type}", t.Type, "{stage}", t.Stage, "{id}", t.ID,
		"{flow_key}", t.FlowKey, "{due}", clockText(t.OrderTime),
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
	"delay": "is delayed until {due}; asyncflow tasks change {id} --delay 0s starts it now",
	"retry": "waits for its next attempt at {due}",
	"endpoint": "waits for an endpoint of stage {stage}: create one with asyncflow endpoints create " +
		"--type {type} --stage {stage} URL, or run asyncflow listen",
	"endpoint_limit": "waits for an endpoint of stage {stage} below its max_in_flight and rate; see " +
		"asyncflow endpoints list --type {type}",
	"endpoint_unhealthy": "waits for a healthy endpoint of stage {stage}; asyncflow endpoints list " +
		"--type {type} shows which ones are open or disabled, and why",
	"flow_key": "waits for its turn within its flow key {flow_key}; asyncflow tasks list --type " +
		"{type} shows the tasks before it",
	"type_limit": "waits because the max_in_flight or rate of type {type} is used up; see asyncflow " +
		"types get {type}",
	"quota_concurrency": "waits because the tenant's quota concurrency is used up; see GET /v1/quota",
	"quota_deliveries_per_second": "waits because the tenant's quota deliveries_per_second is used " +
		"up; see GET /v1/quota",
	"paused":        "waits because type {type} is paused; asyncflow types resume {type} lets it go on",
	"parent_paused": "waits because its parent is paused; asyncflow tasks resume {parent} lets it go on",
	"dependencies":  "waits for the tasks that it depends on: {dependencies}",
	"children":      "waits for its children: {children}; see asyncflow tasks tree {id}",
	"claimer": "waits for a worker that claims it; asyncflow claim --type {type} --stage {stage} does " +
		"so by hand",
	"capacity": "is due, and waits for a dispatcher with capacity; see asyncflow nodes",
}
