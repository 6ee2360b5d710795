package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// alertsCmd groups the commands for alerts.
type alertsCmd struct {
	Set    alertsSetCmd    `cmd:"" help:"Set up where alerts go, and when."`
	Get    alertsGetCmd    `cmd:"" help:"Show where alerts go, and when."`
	List   alertsListCmd   `cmd:"" help:"List firing alerts, and those resolved within 30 days."`
	Firing alertsFiringCmd `cmd:"" help:"List what is firing now. Needs only the scope read."`
	Delete alertsDeleteCmd `cmd:"" help:"Send no more alerts."`
}

type alertsSetCmd struct {
	To                  string `arg:"" name:"alert-url"`
	Secret              string `env:"ASYNCFLOW_ENDPOINT_SECRET"`
	BacklogAge          client.Duration
	FailureRate         float64
	EndpointFailureRate float64
	FailureAttempts     int
	NoClaimers          client.Duration
	DependencyLate      client.Duration
	FailedForGood       int
	FailedInTotal       int
	FailedWithin        client.Duration
	BlockedKey          client.Duration
	LongWait            client.Duration
	LongWaitWithin      client.Duration
	WillExpire          int
	WillExpireWithin    client.Duration
}

func (c *alertsSetCmd) Help() string {
	return `The rules replace the present ones. Each alert is sent as a task of the task type
asyncflow-alerts: see asyncflow tasks list --type asyncflow-alerts.

Example:

    asyncflow alerts set https://ops.example.com/asyncflow --backlog-age 5m --failure-rate 0.5`
}

// Run sets up alerts.
func (c *alertsSetCmd) Run(ctx context.Context, g *globals) error {
	rules := client.AlertRules{
		BacklogAge: c.BacklogAge, FailureRate: c.FailureRate,
		EndpointFailureRate: c.EndpointFailureRate, FailureAttempts: c.FailureAttempts,
		NoClaimers: c.NoClaimers, DependencyLate: c.DependencyLate,
		FailedForGood: c.FailedForGood, FailedInTotal: c.FailedInTotal,
		FailedWithin: c.FailedWithin, BlockedKey: c.BlockedKey,
		LongWait: c.LongWait, LongWaitWithin: c.LongWaitWithin,
		WillExpire: c.WillExpire, WillExpireWithin: c.WillExpireWithin}
	if rules.IsZero() {
		return usageError(errors.New("alerts need a rule: give --backlog-age, --failure-rate, " +
			"--endpoint-failure-rate, --no-claimers, --dependency-late, --failed-for-good, " +
			"--failed-in-total, --blocked-key, --long-wait or --will-expire"))
	}
	return g.printAlerts(g.client().PutAlerts(ctx,
		client.NewAlerts{URL: c.To, Secret: c.Secret, Rules: rules}))
}

type alertsGetCmd struct{}

// Run shows where alerts go.
func (c *alertsGetCmd) Run(ctx context.Context, g *globals) error {
	return g.printAlerts(g.client().Alerts(ctx))
}

func (g *globals) printAlerts(a client.Alerts, err error) error {
	if done, err := g.asDocument(a, err); done {
		return err
	}
	firing := 0
	for _, e := range a.Episodes {
		if e.ResolvedAt.IsZero() {
			firing++
		}
	}
	fields := append([]string{"url", a.URL, "secret", a.Secret}, ruleFields(a.Rules)...)
	return g.printFields(append(fields, "updated", timeText(a.UpdatedAt),
		"firing", strconv.Itoa(firing))...)
}

// ruleFields returns the names and values of rules; "" is a rule that isn't set.
func ruleFields(r client.AlertRules) []string {
	duration := func(d client.Duration) string {
		if d.IsZero() {
			return ""
		}
		return d.Text()
	}
	number := func(n float64) string {
		if n == 0 {
			return ""
		}
		return jsonText(n)
	}
	return []string{
		"backlog age", duration(r.BacklogAge), "failure rate", number(r.FailureRate),
		"endpoint failure rate", number(r.EndpointFailureRate),
		"failure attempts", number(float64(r.FailureAttempts)),
		"no claimers", duration(r.NoClaimers), "dependency late", duration(r.DependencyLate),
		"failed for good", number(float64(r.FailedForGood)),
		"failed in total", number(float64(r.FailedInTotal)),
		"failed within", duration(r.FailedWithin), "blocked key", duration(r.BlockedKey),
		"long wait", duration(r.LongWait), "long wait within", duration(r.LongWaitWithin),
		"will expire", number(float64(r.WillExpire)),
		"will expire within", duration(r.WillExpireWithin),
	}
}

type alertsListCmd struct{}

// Run lists the episodes.
func (c *alertsListCmd) Run(ctx context.Context, g *globals) error {
	a, err := g.client().Alerts(ctx)
	missing := err != nil && g.noAlerts(ctx, err)
	if err != nil && !missing {
		return err
	}
	if g.output == "json" {
		return g.printJSON(asList(a.Episodes, ""))
	}
	if err := g.printEpisodes(a.Episodes); err != nil || !missing {
		return err
	}
	return g.hintAtAlerts()
}

// noAlerts reports whether err, of a call for alerts, means that none are set up. Another server's
// 404, or that of a proxy, doesn't.
func (g *globals) noAlerts(ctx context.Context, err error) bool {
	if asyncflow.CodeOf(err) != asyncflow.CodeNotFound {
		return false
	}
	firing, err := g.client().FiringAlerts(ctx)
	return err == nil && !firing.Enabled
}

func (g *globals) printEpisodes(episodes []client.AlertEpisode) error {
	rows := make([][]string, len(episodes))
	for i, e := range episodes {
		rows[i] = []string{string(e.Alert), e.Subject, string(e.State), timeText(e.Since),
			timeText(e.ResolvedAt), jsonText(e.Value), jsonText(e.Limit),
			string(e.WaitsFor), keysText(e), alertTaskText(e.Task), strings.Join(e.Tasks, ",")}
	}
	return g.printTable(
		"ALERT SUBJECT STATE SINCE RESOLVED VALUE LIMIT WAITS-FOR KEYS TASK NOTICES", rows)
}

// alertTaskText names the task that stands for those of an alert, with its key and for whom it is
// done.
func alertTaskText(t *client.AlertTask) string {
	if t == nil {
		return ""
	}
	return aboutTask(t.ID, t.Key, t.User)
}

// aboutTask names a task, with its key and for whom it is done, as far as they are known.
func aboutTask(id, key, user string) string {
	var about []string
	if key != "" {
		about = append(about, "key "+key)
	}
	if user != "" {
		about = append(about, "user "+user)
	}
	if len(about) > 0 {
		id += ", "
	}
	return id + strings.Join(about, ", ")
}

// keysText names the flow keys of an alert, with the task that each waits for, and says how many
// more there are.
func keysText(e client.AlertEpisode) string {
	var all []string
	for _, k := range e.Keys {
		all = append(all, fmt.Sprintf("%s (%s)", k.Key, aboutTask(k.Task, k.TaskKey, k.User)))
	}
	if more := e.BlockedKeys - len(e.Keys); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

type alertsFiringCmd struct{}

func (c *alertsFiringCmd) Help() string {
	return `Example:

    asyncflow alerts firing -o json | jq -e '.enabled and .data == []'`
}

// Run lists the episodes that go on.
func (c *alertsFiringCmd) Run(ctx context.Context, g *globals) error {
	a, err := g.client().FiringAlerts(ctx)
	if done, err := g.asDocument(a, err); done {
		return err
	}
	if err := g.printEpisodes(a.Data); err != nil || a.Enabled {
		return err
	}
	return g.hintAtAlerts()
}

// hintAtAlerts says how to set up alerts.
func (g *globals) hintAtAlerts() error {
	_, err := fmt.Fprintln(g.stderr, "no alerts are set up: see asyncflow alerts set")
	return err
}

type alertsDeleteCmd struct{}

// Run ends alerts.
func (c *alertsDeleteCmd) Run(ctx context.Context, g *globals) error {
	return g.printDeleted("alerts", g.client().DeleteAlerts(ctx))
}
