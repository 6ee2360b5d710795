package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Diff returns the items that Apply would create or change.
func (doc Document) Diff(ctx context.Context, c *client.Client) ([]Difference, error) {
	var found []Difference
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
		if indexEndpoint(existing, e) < 0 {
			found = append(found, Difference{Kind: "endpoint", Name: endpointName(e), New: true})
		}
	}
	schedules, err := doc.diffSchedules(ctx, c)
	return append(found, schedules...), err
}

// diff compares a type with the server's, and asks the server whether it would accept it.
func (t Type) diff(ctx context.Context, c *client.Client) (Difference, error) {
	d := Difference{Kind: "type", Name: t.Name}
	would, err := c.CheckTaskType(ctx, t.Name, t.TaskTypeSpec)
	var refused *client.Error
	if d.Refused = refusedWhy(err); d.Refused == "" && err != nil {
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
		would = t.after(asyncflow.TaskType{StageMapping: old.StageMapping})
	}
	d.Fields = diffTypes(old, would)
	return d, nil
}

// after returns the type as it would be on the server after a version.
func (t Type) after(present asyncflow.TaskType) client.TaskType {
	full := t.taskType().WithDefaults().After(present)
	return client.TaskType{Stages: full.Stages, Retry: full.Retry,
		ScheduleLimit: full.ScheduleLimit, ScheduleInterval: full.ScheduleInterval,
		MaxInFlight: full.MaxInFlight, Rate: full.Rate, Flow: full.Flow,
		RollRows: full.RollRows, RollAge: full.RollAge,
		Retention:       full.Kept(),
		MaxDeliverBytes: full.MaxDeliverBytes, MaxSteps: full.MaxSteps,
		StageMapping: full.StageMapping, OnFinal: withoutSecret(t.OnFinal),
		Searchable: full.Searchable, StartBy: full.StartBy, EndBy: full.EndBy}
}

// DiffSpecs returns how a version of a type differs from an older one.
func DiffSpecs(name string, old, next client.TaskTypeSpec) []Difference {
	before := Type{Name: name, TaskTypeSpec: old}.after(asyncflow.TaskType{})
	after := Type{Name: name, TaskTypeSpec: next}.after(asyncflow.TaskType{})
	fields := diffTypes(before, after)
	if len(fields) == 0 {
		return nil
	}
	return []Difference{{Kind: "type", Name: name, Fields: fields}}
}

// refusedWhy says why the server would refuse an item; "" stands for any other error.
func refusedWhy(err error) string {
	var refused *client.Error
	if errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 409) {
		return refused.Problem.Detail
	}
	return ""
}

// diffTypes returns the fields in which two versions of a type differ, by name.
func diffTypes(old, next client.TaskType) []FieldDifference {
	both := func(stage string) bool { return hasStage(old, stage) && hasStage(next, stage) }
	return diffValues(flatten(old, both), flatten(next, both))
}

func hasStage(t client.TaskType, name string) bool {
	return slices.ContainsFunc(t.Stages, func(s client.Stage) bool { return s.Name == name })
}

// flatten returns the fields of a type by their paths, fields of stages by the stage's name. It
// leaves out stages that are in only one version: the field "stages" shows them.
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
		"max_deliver_bytes": jsonText(t.MaxDeliverBytes),
		"max_steps":         jsonText(t.MaxSteps),
		"on_final":          jsonText(t.OnFinal),
		"searchable":        jsonText(t.Searchable),
		"start_by":          jsonText(t.StartBy),
		"end_by":            jsonText(t.EndBy),
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

// diffValues returns the fields that differ, by name.
func diffValues(before, after map[string]string) []FieldDifference {
	fields := maps.Clone(before)
	maps.Copy(fields, after)
	var found []FieldDifference
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if before[field] != after[field] {
			found = append(found, FieldDifference{field, before[field], after[field]})
		}
	}
	return found
}

// stageNames returns the stages of a type in their order.
func stageNames(t client.TaskType) string {
	names := make([]string, len(t.Stages))
	for i, s := range t.Stages {
		names[i] = s.Name
	}
	return strings.Join(names, " → ")
}

// jsonText returns a small value as JSON.
func jsonText(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

// Difference is an item of a document that the server lacks, or knows with other fields.
type Difference struct {
	Kind   string            `json:"kind"` // "type", "endpoint" or "schedule"
	Name   string            `json:"name"` // as in Change
	New    bool              `json:"new,omitempty"`
	Fields []FieldDifference `json:"fields,omitempty"`
	// Refused says why the server would refuse the change.
	Refused string `json:"refused,omitempty"`
}

// FieldDifference is a field that differs; "" is the value of one that isn't there.
type FieldDifference struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// Lines returns a line for the difference itself and one for each field.
func (d Difference) Lines() []string {
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
	return lines
}

// String returns the field with its values before and after.
func (f FieldDifference) String() string {
	switch {
	case f.From == "":
		return f.Field + ": new, " + f.To
	case f.To == "":
		return f.Field + ": removed, was " + f.From
	}
	return f.Field + ": " + f.From + " becomes " + f.To
}

// Change is what applying a document did with one of its items.
type Change struct {
	Kind string `json:"kind"` // "type", "endpoint" or "schedule"
	Name string `json:"name"` // of the type or schedule; type, stage and URL of the endpoint
	Did  string `json:"did"`  // "created", "changed" or "unchanged"
	ID   string `json:"id,omitempty"`
	// Secret of the endpoint, if the server made one just now.
	Secret string `json:"secret,omitempty"`
	// Unverified says why an endpoint that was just created gets no deliveries yet.
	Unverified string `json:"unverified,omitempty"`
}

// String returns the change in one line.
func (c Change) String() string {
	line := fmt.Sprintf("%-9s  %s %s", c.Did, c.Kind, c.Name)
	if c.Secret != "" {
		line += "  secret " + c.Secret + " (shown this once)"
	}
	if c.Unverified != "" {
		line += "  gets no deliveries until asyncflow endpoints verify " + c.ID + ": " +
			c.Unverified
	}
	return line
}
