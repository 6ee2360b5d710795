package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

type typesDiffCmd struct {
	File     string `short:"f" required:"" placeholder:"FILE" help:"YAML document; - is standard input."`
	ExitCode bool   `help:"Exit with 1 if there is a difference."`
}

// Help is shown by asyncflow types diff --help.
func (c *typesDiffCmd) Help() string {
	return `It changes nothing. A change that the server would refuse, such as removing a stage in which tasks stand, is
marked so. What only the server has (other types, endpoints and schedules) is left out: apply takes nothing away.

Example:

    asyncflow types diff -f asyncflow.yaml
    ~ type thumbnails
        stages: inspect → resize becomes inspect → resize → report
        stages[resize].timeout: "10s" becomes "20s"
    + endpoint thumbnails report https://worker.example.com/report`
}

// Run compares the document with what the server has.
func (c *typesDiffCmd) Run(ctx context.Context, g *globals) error {
	doc, err := readDocument(c.File, g.env)
	if err != nil {
		return usageError(err)
	}
	found, err := doc.diff(ctx, g.client())
	if err != nil {
		return err
	}
	if err := printDifferences(g, found); err != nil {
		return err
	}
	if c.ExitCode && len(found) > 0 {
		return silent(exitFailed)
	}
	return nil
}

func printDifferences(g *globals, found []difference) error {
	if g.output == "json" {
		return g.printJSON(asList(found, ""))
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(g.stdout, "no difference")
		return err
	}
	for _, d := range found {
		if _, err := fmt.Fprint(g.stdout, d); err != nil {
			return err
		}
	}
	return nil
}

// difference is an item of a document that the server has otherwise, or not at all.
type difference struct {
	Kind    string      `json:"kind"` // "type", "endpoint" or "schedule"
	Name    string      `json:"name"` // of the type or schedule; type, stage and URL of the endpoint
	New     bool        `json:"new,omitempty"`
	Fields  []fieldDiff `json:"fields,omitempty"`
	Refused string      `json:"refused,omitempty"` // why the server would not take it
}

// fieldDiff is a field that differs; "" is the value of one that isn't there.
type fieldDiff struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// String returns the difference in a line for itself and one for each field.
func (d difference) String() string {
	sign := "~"
	if d.New {
		sign = "+"
	}
	lines := []string{sign + " " + d.Kind + " " + d.Name}
	for _, f := range d.Fields {
		lines = append(lines, "    "+f.String())
	}
	if d.Refused != "" {
		lines = append(lines, "    would be refused: "+d.Refused)
	}
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n") + "\n"
}

func (f fieldDiff) String() string {
	switch {
	case f.From == "":
		return f.Field + ": new, " + f.To
	case f.To == "":
		return f.Field + ": removed, was " + f.From
	}
	return f.Field + ": " + f.From + " becomes " + f.To
}

// diff returns the items that apply would create or change.
func (doc document) diff(ctx context.Context, c *client.Client) ([]difference, error) {
	var found []difference
	for _, t := range doc.Types {
		d, err := t.diff(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("type %s: %w", t.Name, err)
		}
		if d.New || len(d.Fields) > 0 {
			found = append(found, d)
		}
	}
	existing, err := c.Endpoints(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, e := range doc.Endpoints {
		if existingEndpoint(existing, e) < 0 {
			found = append(found, difference{Kind: "endpoint", Name: e.Type + " " + e.Stage + " " + e.URL, New: true})
		}
	}
	schedules, err := doc.diffSchedules(ctx, c)
	return append(found, schedules...), err
}

// diff compares a type with the server's, and asks the server what it thinks.
func (t typeEntry) diff(ctx context.Context, c *client.Client) (difference, error) {
	d := difference{Kind: "type", Name: t.Name}
	would, err := c.CheckTaskType(ctx, t.Name, t.TaskTypeSpec)
	var refused *client.Error
	if errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 409) {
		d.Refused = refused.Problem.Detail
	} else if err != nil {
		return d, err
	}
	old, err := c.TaskType(ctx, t.Name)
	switch {
	case errors.As(err, &refused) && refused.Status == 404:
		d.New = true
		return d, nil
	case err != nil:
		return d, err
	case d.Refused != "":
		full := t.taskType().WithDefaults().After(asyncflow.TaskType{StageMapping: old.StageMapping})
		would = client.TaskType{Stages: full.Stages, Retry: full.Retry, ScheduleLimit: full.ScheduleLimit, ScheduleInterval: full.ScheduleInterval,
			MaxInFlight: full.MaxInFlight, Rate: full.Rate, Flow: full.Flow,
			RollRows: full.RollRows, RollAge: full.RollAge, Retention: full.Retention, StageMapping: full.StageMapping}
	}
	d.Fields = diffTypes(old, would)
	return d, nil
}

// diffTypes returns the fields in which two versions of a type differ, by name.
func diffTypes(old, next client.TaskType) []fieldDiff {
	both := func(stage string) bool { return hasStage(old, stage) && hasStage(next, stage) }
	return diffValues(flatten(old, both), flatten(next, both))
}

func hasStage(t client.TaskType, name string) bool {
	return slices.ContainsFunc(t.Stages, func(s client.Stage) bool { return s.Name == name })
}

// flatten returns the fields of a type by their paths, with the stages by name; of the
// stages only those that are in both versions, as "stages" tells of the others.
func flatten(t client.TaskType, both func(string) bool) map[string]string {
	fields := map[string]string{
		"stages":            stageNames(t),
		"schedule_limit":    jsonText(t.ScheduleLimit),
		"schedule_interval": jsonText(t.ScheduleInterval),
		"max_in_flight":     jsonText(t.MaxInFlight),
		"rate":              jsonText(t.Rate),
		"flow":              jsonText(t.Flow),
		"roll_rows":         jsonText(t.RollRows),
		"roll_age":          jsonText(t.RollAge),
		"retention":         jsonText(t.Retention),
		"retry":             jsonText(t.Retry),
	}
	for from, to := range t.StageMapping {
		fields["stage_mapping."+from] = jsonText(to)
	}
	for _, s := range t.Stages {
		var values map[string]json.RawMessage
		if !both(s.Name) || json.Unmarshal([]byte(jsonText(s)), &values) != nil {
			continue
		}
		for name, value := range values {
			if name != "name" {
				fields["stages["+s.Name+"]."+name] = string(value)
			}
		}
	}
	return fields
}

// existingEndpoint returns which of the server's endpoints is one of a document; -1:
// none.
func existingEndpoint(existing []client.Endpoint, e client.NewEndpoint) int {
	return slices.IndexFunc(existing, func(o client.Endpoint) bool {
		return sameEndpoint(e, client.NewEndpoint{Type: o.Type, Stage: o.Stage, URL: o.URL})
	})
}
